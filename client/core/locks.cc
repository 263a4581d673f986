// SPDX-License-Identifier: Apache-2.0
#include "client/core/locks.h"

#include <algorithm>

namespace nacre::client {

void LockSet::apply(const wire::LockSpecT& spec) {
  if (spec.flock) {
    std::erase_if(locks_, [&](auto& l) { return l.flock && l.owner == spec.owner; });
    if (spec.type != kLockFree) locks_.push_back(spec);
    return;
  }
  // What the owner held in the range gives way; what sticks out at either side stays.
  std::vector<wire::LockSpecT> kept;
  wire::LockSpecT merged = spec;
  for (auto& l : locks_) {
    if (l.flock || l.owner != spec.owner) {
      kept.push_back(l);
      continue;
    }
    bool overlaps = l.start <= spec.end && spec.start <= l.end;
    bool touches = overlaps || (l.end != kLockToEnd && l.end + 1 == spec.start) || (spec.end != kLockToEnd && spec.end + 1 == l.start);
    if (l.type == spec.type && touches) {
      merged.start = std::min(merged.start, l.start);
      merged.end = std::max(merged.end, l.end);
      continue;
    }
    if (!overlaps) {
      kept.push_back(l);
      continue;
    }
    if (l.start < spec.start) {
      auto left = l;
      left.end = spec.start - 1;
      kept.push_back(left);
    }
    if (l.end > spec.end) {
      auto right = l;
      right.start = spec.end + 1;
      kept.push_back(right);
    }
  }
  if (spec.type != kLockFree) kept.push_back(merged);
  locks_ = std::move(kept);
}

bool LockSet::holds(uint64_t owner, bool flock) const {
  return std::any_of(locks_.begin(), locks_.end(), [&](auto& l) { return l.owner == owner && l.flock == flock; });
}

void Locks::apply(Ino ino, const wire::LockSpecT& spec) {
  std::lock_guard lock(mutex_);
  auto& set = held_[ino.v];
  set.apply(spec);
  if (set.empty()) held_.erase(ino.v);
}

bool Locks::holds(Ino ino, uint64_t owner, bool flock) const {
  std::lock_guard lock(mutex_);
  auto it = held_.find(ino.v);
  return it != held_.end() && it->second.holds(owner, flock);
}

void Locks::forget_owner(Ino ino, uint64_t owner, bool flock) {
  wire::LockSpecT spec;
  spec.flock = flock;
  spec.owner = owner;
  spec.type = kLockFree;
  spec.end = kLockToEnd;
  apply(ino, spec);
}

std::vector<std::unique_ptr<wire::ReclaimLockT>> Locks::held() const {
  std::vector<std::unique_ptr<wire::ReclaimLockT>> out;
  std::lock_guard lock(mutex_);
  for (auto& [ino, set] : held_) {
    for (auto& l : set.all()) {
      auto r = std::make_unique<wire::ReclaimLockT>();
      r->ino = ino;
      r->lock = std::make_unique<wire::LockSpecT>(l);
      out.push_back(std::move(r));
    }
  }
  return out;
}

uint64_t Locks::count() const {
  std::lock_guard lock(mutex_);
  uint64_t n = 0;
  for (auto& [ino, set] : held_) n += set.all().size();
  return n;
}

void Locks::lost(Error why) {
  std::lock_guard lock(mutex_);
  held_.clear();
  for (auto& [number, w] : waiters_) {
    if (w->state != LockWaiter::State::kWaiting) continue;
    w->state = LockWaiter::State::kRefused;
    w->error = why;
    w->signal.set();
  }
}

std::shared_ptr<LockWaiter> Locks::add_waiter(Ino ino, wire::LockSpecT spec) {
  auto w = std::make_shared<LockWaiter>();
  std::lock_guard lock(mutex_);
  w->number = next_++;
  w->ino = ino;
  w->spec = std::move(spec);
  waiters_[w->number] = w;
  return w;
}

void Locks::remove_waiter(const std::shared_ptr<LockWaiter>& waiter) {
  std::lock_guard lock(mutex_);
  waiters_.erase(waiter->number);
}

void Locks::arm(const std::shared_ptr<LockWaiter>& waiter) {
  Signal fresh;
  std::lock_guard lock(mutex_);
  waiter->signal = fresh;
  if (waiter->state == LockWaiter::State::kAskAgain) waiter->state = LockWaiter::State::kWaiting;
  if (waiter->state != LockWaiter::State::kWaiting) waiter->signal.set();
}

LockWaiter::State Locks::state(const std::shared_ptr<LockWaiter>& waiter) const {
  std::lock_guard lock(mutex_);
  return waiter->state;
}

void Locks::granted(uint64_t number, Errc status) {
  std::lock_guard lock(mutex_);
  auto it = waiters_.find(number);
  if (it == waiters_.end()) return;
  auto& w = *it->second;
  if (w.state == LockWaiter::State::kGranted || w.state == LockWaiter::State::kRefused) return;
  if (status == Errc::kOk) {
    w.state = LockWaiter::State::kGranted;
    auto& set = held_[w.ino.v];
    set.apply(w.spec);
  } else {
    w.state = LockWaiter::State::kRefused;
    w.error = Error(status);
  }
  w.signal.set();
}

void Locks::ask_again() {
  std::lock_guard lock(mutex_);
  for (auto& [number, w] : waiters_) {
    if (w->state != LockWaiter::State::kWaiting) continue;
    w->state = LockWaiter::State::kAskAgain;
    w->signal.set();
  }
}

}  // namespace nacre::client
