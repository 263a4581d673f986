// SPDX-License-Identifier: Apache-2.0
#include "storage/object/allocator.h"

#include <algorithm>
#include <cassert>

namespace nacre::storage {

void ExtentMap::add(Extent e) {
  uint64_t at = e.at, end = e.at + e.length;
  auto next = extents_.lower_bound(at);
  if (next != extents_.end() && next->first == end) {
    end = next->second;
    next = extents_.erase(next);
  }
  if (next != extents_.begin()) {
    auto before = std::prev(next);
    if (before->second >= at) {
      before->second = std::max(before->second, end);
      return;
    }
  }
  extents_.emplace_hint(next, at, end);
}

void ExtentMap::remove(uint64_t at, uint64_t end) {
  auto it = extents_.upper_bound(at);
  if (it != extents_.begin() && std::prev(it)->second > at) --it;
  while (it != extents_.end() && it->first < end) {
    const uint64_t from = it->first, to = it->second;
    it = extents_.erase(it);
    if (from < at) extents_.emplace_hint(it, from, at);
    if (to > end) extents_.emplace_hint(it, end, to);
  }
}

void Allocator::insert(Extent e) {
  auto next = by_at_.lower_bound(e.at);
  assert(next == by_at_.end() || next->first >= e.at + e.length);
  if (next != by_at_.end() && next->first == e.at + e.length) {
    e.length += next->second;
    by_size_.erase({next->second, next->first});
    next = by_at_.erase(next);
  }
  if (next != by_at_.begin()) {
    auto before = std::prev(next);
    assert(before->first + before->second <= e.at);
    if (before->first + before->second == e.at) {
      by_size_.erase({before->second, before->first});
      before->second += e.length;
      by_size_.emplace(before->second, before->first);
      return;
    }
  }
  by_at_.emplace_hint(next, e.at, e.length);
  by_size_.emplace(e.length, e.at);
}

void Allocator::take(uint64_t at, uint64_t length) {
  auto it = std::prev(by_at_.upper_bound(at));
  const uint64_t first = it->first, end = first + it->second;
  assert(first <= at && at + length <= end);
  by_size_.erase({it->second, first});
  it = by_at_.erase(it);
  if (at + length < end) {
    it = by_at_.emplace_hint(it, at + length, end - at - length);
    by_size_.emplace(end - at - length, at + length);
  }
  if (first < at) {
    by_at_.emplace_hint(it, first, at - first);
    by_size_.emplace(at - first, first);
  }
}

std::optional<Extent> Allocator::best_fit(uint64_t count) const {
  auto it = by_size_.lower_bound({count, 0});
  if (it == by_size_.end()) return std::nullopt;
  return Extent{it->second, it->first};
}

uint64_t Allocator::take_at(uint64_t at, uint64_t count, std::vector<Extent>& out) {
  if (at == kNoGoal) return 0;
  auto it = by_at_.upper_bound(at);
  if (it == by_at_.begin()) return 0;
  --it;
  const uint64_t end = it->first + it->second;
  if (end <= at) return 0;
  const uint64_t n = std::min(count, end - at);
  take(at, n);
  out.push_back({at, n});
  return n;
}

uint64_t Allocator::take_window(const Hint& hint, uint64_t count, std::vector<Extent>& out) {
  auto it = windows_.find(hint.object);
  if (it == windows_.end() || it->second.extent.at != hint.goal || it->second.extent.length == 0) return 0;
  Extent& w = it->second.extent;
  const uint64_t n = std::min(count, w.length);
  out.push_back({w.at, n});
  w.at += n;
  w.length -= n;
  it->second.used = true;
  return n;
}

void Allocator::take_fit(const Hint& hint, uint64_t count, std::vector<Extent>& out) {
  if (hint.growing) {
    auto it = windows_.find(hint.object);
    if (it == windows_.end() && windows_.size() < kMaxWindows) it = windows_.emplace(hint.object, Window{}).first;
    if (it != windows_.end()) {
      Window& w = it->second;
      if (w.extent.length) insert(w.extent);
      w.extent = {};
      w.used = true;
      w.size = std::clamp(w.size * 2, kMinWindow, kMaxWindow);
      if (auto fit = best_fit(count + w.size)) {
        take(fit->at, count + w.size);
        out.push_back({fit->at, count});
        w.extent = {fit->at + count, w.size};
        return;
      }
    }
  }
  while (count > 0) {
    Extent fit;
    if (auto whole = best_fit(count)) {
      fit = {whole->at, count};
    } else if (!by_size_.empty()) {
      fit = {by_size_.rbegin()->second, by_size_.rbegin()->first};  // the largest, whole
    } else {
      drop_windows();  // what is left lies in windows: free_ said there is enough
      continue;
    }
    take(fit.at, fit.length);
    out.push_back(fit);
    count -= fit.length;
  }
}

std::optional<std::vector<Extent>> Allocator::allocate(uint64_t count, uint64_t leave, const Hint& hint) {
  std::vector<Extent> out;
  if (count == 0) return out;
  std::lock_guard lock(mutex_);
  if (free_ < count || free_ - count < leave) return std::nullopt;
  uint64_t left = count;
  left -= take_window(hint, left, out);
  if (left) {
    const uint64_t goal = out.empty() ? hint.goal : out.back().at + out.back().length;
    left -= take_at(goal, left, out);
  }
  if (left) take_fit(hint, left, out);
  free_ -= count;
  // Pieces that follow each other on disk are one.
  std::vector<Extent> joined;
  for (const Extent& e : out) {
    unpunched_.remove(e.at, e.at + e.length);
    if (!joined.empty() && joined.back().at + joined.back().length == e.at) joined.back().length += e.length;
    else joined.push_back(e);
  }
  return joined;
}

void Allocator::release(std::span<const Extent> extents) {
  std::lock_guard lock(mutex_);
  for (const Extent& e : extents) {
    insert(e);
    unpunched_.add(e);
    free_ += e.length;
  }
}

void Allocator::add_clean(Extent extent) {
  std::lock_guard lock(mutex_);
  insert(extent);
  free_ += extent.length;
}

uint64_t Allocator::free() const {
  std::lock_guard lock(mutex_);
  return free_;
}

size_t Allocator::extents() const {
  std::lock_guard lock(mutex_);
  return by_at_.size();
}

std::vector<Extent> Allocator::all_free() const {
  std::lock_guard lock(mutex_);
  ExtentMap map;
  for (auto [at, length] : by_at_) map.add({at, length});
  for (auto& [object, w] : windows_)
    if (w.extent.length) map.add(w.extent);
  std::vector<Extent> out;
  out.reserve(map.all().size());
  for (auto [at, end] : map.all()) out.push_back({at, end - at});
  return out;
}

void Allocator::drop_windows() {
  for (auto& [object, w] : windows_)
    if (w.extent.length) insert(w.extent);
  windows_.clear();
}

void Allocator::age_windows() {
  std::lock_guard lock(mutex_);
  for (auto it = windows_.begin(); it != windows_.end();) {
    if (!it->second.used) {
      if (it->second.extent.length) insert(it->second.extent);
      it = windows_.erase(it);
    } else {
      it->second.used = false;
      ++it;
    }
  }
}

std::optional<Extent> Allocator::take_for_punch() {
  std::lock_guard lock(mutex_);
  const uint64_t most = std::clamp(free_ / 16, kMinPunch, kMaxPunch);  // what is out can't be allocated meanwhile
  auto candidate = unpunched_.all().lower_bound(punch_cursor_);
  for (size_t looked = 0; candidate != unpunched_.all().end() && looked < kPunchLook; ++candidate, ++looked) {
    const auto [at, end] = *candidate;
    punch_cursor_ = end;
    if (end - at < kMinPunch) continue;
    // A window may lie in it and isn't in the maps then: only what the maps hold can be taken.
    auto it = by_at_.upper_bound(at);
    if (it != by_at_.begin() && std::prev(it)->first + std::prev(it)->second > at) --it;
    for (; it != by_at_.end() && it->first < end; ++it) {
      const uint64_t from = std::max(at, it->first), all = std::min(end, it->first + it->second);
      if (all <= from || all - from < kMinPunch) continue;
      const Extent e{from, all - from < most + kMinPunch ? all - from : most};  // no remainder too small to be punched
      take(e.at, e.length);
      unpunched_.remove(e.at, e.at + e.length);
      free_ -= e.length;
      punch_cursor_ = from;
      return e;
    }
  }
  if (candidate == unpunched_.all().end()) punch_cursor_ = 0;
  return std::nullopt;
}

void Allocator::punched(Extent extent) {
  std::lock_guard lock(mutex_);
  insert(extent);
  free_ += extent.length;
}

void Allocator::mark_unpunched() {
  std::lock_guard lock(mutex_);
  unpunched_ = ExtentMap();
  for (auto [at, length] : by_at_) unpunched_.add({at, length});
}

}  // namespace nacre::storage
