// SPDX-License-Identifier: Apache-2.0
#include "client/core/atimes.h"

namespace nacre::client {

bool Atimes::add(Ino ino, Nanos atime) {
  std::lock_guard lock(mutex_);
  auto it = owed_.find(ino.v);
  if (it == owed_.end() && owed_.size() >= kMaxPendingAtimes) return false;
  owed_[ino.v] = atime;
  count_.store(owed_.size(), std::memory_order_release);
  return true;
}

void Atimes::forget(Ino ino) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  std::lock_guard lock(mutex_);
  owed_.erase(ino.v);
  count_.store(owed_.size(), std::memory_order_release);
}

Nanos Atimes::of(Ino ino) const {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  std::lock_guard lock(mutex_);
  auto it = owed_.find(ino.v);
  return it == owed_.end() ? 0 : it->second;
}

void Atimes::overlay(wire::AttrT& attr) const {
  if (count_.load(std::memory_order_acquire) == 0) return;
  std::lock_guard lock(mutex_);
  auto it = owed_.find(attr.ino);  // times before 1970 are negative: only what is owed counts
  if (it != owed_.end() && it->second > attr.atime) attr.atime = it->second;
}

std::vector<wire::AtimeReport> Atimes::pending(size_t most) const {
  std::vector<wire::AtimeReport> out;
  std::lock_guard lock(mutex_);
  for (auto& [ino, atime] : owed_) {
    if (out.size() == most) break;
    out.emplace_back(ino, atime);
  }
  return out;
}

void Atimes::reported(const std::vector<wire::AtimeReport>& reports) {
  if (reports.empty()) return;
  std::lock_guard lock(mutex_);
  for (auto& r : reports)
    if (auto it = owed_.find(r.ino()); it != owed_.end() && it->second == r.atime()) owed_.erase(it);
  count_.store(owed_.size(), std::memory_order_release);
}

}  // namespace nacre::client
