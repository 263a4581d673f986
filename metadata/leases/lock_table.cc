// SPDX-License-Identifier: Apache-2.0
// The locks of an inode are kept per owner, so that splitting and merging look at one owner's ranges only and a conflict is
// found by binary search in the others'. One mutex guards the whole table: an operation is a few microseconds.
#include "metadata/leases/lock_table.h"

#include <algorithm>

namespace nacre::mds {

// ---------------------------------------------------------------- one owner's ranges

/// First range that ends at or after `at`.
template <class R>
static auto first_reaching(R& ranges, uint64_t at) {
  return std::lower_bound(ranges.begin(), ranges.end(), at, [](const auto& r, uint64_t x) { return r.end < x; });
}

/// True if every byte of the request already has exactly the type asked for.
bool LockTable::covers(const Ranges& ranges, const LockAsk& ask) {
  auto it = first_reaching(ranges, ask.start);
  return it != ranges.end() && it->start <= ask.start && it->end >= ask.end && it->exclusive == (ask.type == kLockWrite);
}

/// A range that the request can't coexist with, if it is another owner's.
const LockTable::Range* LockTable::opposing(const Ranges& ranges, const LockAsk& ask) {
  for (auto it = first_reaching(ranges, ask.start); it != ranges.end() && it->start <= ask.end; ++it)
    if (it->exclusive || ask.type == kLockWrite) return &*it;
  return nullptr;
}

/// fcntl(2): the new type replaces what the owner had in the range; what sticks out on either side stays (it is split off),
/// and neighbours of the same type become one.
void LockTable::replace(Ranges& ranges, const LockAsk& ask) {
  Ranges out;
  out.reserve(ranges.size() + 2);
  auto add = [&out](const Range& r) {
    if (!out.empty() && out.back().exclusive == r.exclusive && out.back().end + 1 == r.start) out.back().end = r.end;
    else out.push_back(r);
  };
  const bool sets = ask.type != kLockNone;
  const Range fresh{ask.start, ask.end, ask.type == kLockWrite, ask.pid, ask.handle};
  bool placed = !sets;
  for (const Range& r : ranges) {
    if (r.start < ask.start) add({r.start, std::min(r.end, ask.start - 1), r.exclusive, r.pid, r.handle});
    if (!placed && r.end >= ask.start) {
      add(fresh);
      placed = true;
    }
    if (r.end > ask.end) add({std::max(r.start, ask.end + 1), r.end, r.exclusive, r.pid, r.handle});
  }
  if (!placed) add(fresh);
  ranges.swap(out);
}

// ---------------------------------------------------------------- conflicts

bool LockTable::opposed(const InodeLocks& locks, const LockAsk& ask) const {
  if (ask.type == kLockNone) return false;
  if (ask.flock)
    return std::any_of(locks.flocks.begin(), locks.flocks.end(), [&](const Flock& f) { return f.who != ask.who && (f.exclusive || ask.type == kLockWrite); });
  return std::any_of(locks.posix.begin(), locks.posix.end(), [&](const auto& p) { return p.first != ask.who && opposing(p.second, ask); });
}

/// Would waiting for `ask` close a circle? Follows from the owners in the way to what these wait for, and so on. Only POSIX
/// locks: flock(2) has no EDEADLK.
bool LockTable::would_deadlock(const InodeLocks& locks, const LockAsk& ask) const {
  std::vector<LockOwner> next;
  std::set<LockOwner> seen;
  auto blockers = [&](const InodeLocks& in, const LockAsk& of) {
    for (const auto& [owner, ranges] : in.posix)
      if (owner != of.who && opposing(ranges, of) && seen.insert(owner).second) next.push_back(owner);
  };
  blockers(locks, ask);
  while (!next.empty()) {
    const LockOwner owner = next.back();
    next.pop_back();
    if (owner == ask.who || seen.size() > kMaxDeadlockSteps) return true;
    auto [first, last] = waits_.equal_range(owner);
    for (auto it = first; it != last; ++it)
      if (auto in = inodes_.find(it->second.ino); in != inodes_.end()) blockers(in->second, it->second);
  }
  return false;
}

// ---------------------------------------------------------------- changes

size_t LockTable::weight(const InodeLocks& locks, LockOwner who) const {
  auto it = locks.posix.find(who);
  return it == locks.posix.end() ? 0 : it->second.size();
}

void LockTable::apply(InodeLocks& locks, const LockAsk& ask) {
  if (ask.flock) {
    total_ -= std::erase_if(locks.flocks, [&](const Flock& f) { return f.who == ask.who; });
    if (ask.type != kLockNone) {
      locks.flocks.push_back({ask.who, ask.type == kLockWrite, ask.pid, ask.handle});
      ++total_;
    }
  } else {
    total_ -= weight(locks, ask.who);
    Ranges& ranges = locks.posix[ask.who];
    replace(ranges, ask);
    total_ += ranges.size();
    if (ranges.empty()) locks.posix.erase(ask.who);
  }
}

void LockTable::forget_wait(const LockAsk& ask) {
  --total_;
  if (auto s = sessions_.find(ask.who.session); s != sessions_.end()) --s->second.waiting;
  if (ask.flock) return;
  auto [first, last] = waits_.equal_range(ask.who);
  for (auto it = first; it != last; ++it)
    if (it->second.ino == ask.ino && it->second.waiter == ask.waiter) {
      waits_.erase(it);
      return;
    }
}

/// Grants what nothing opposes any more, in the order of the queue. A grant may itself set others free (a shared range that
/// replaces an exclusive one of its owner), so this goes round until nothing changes.
void LockTable::wake(Ino ino, InodeLocks& locks, std::vector<LockWake>& woken) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < locks.queue.size();) {
      if (opposed(locks, locks.queue[i])) {
        ++i;
        continue;
      }
      const LockAsk ask = locks.queue[i];
      locks.queue.erase(locks.queue.begin() + static_cast<std::ptrdiff_t>(i));
      forget_wait(ask);
      apply(locks, ask);
      auto& granted = sessions_[ask.who.session].granted;
      granted.push_back(ask.waiter);
      if (granted.size() > kRememberedWaiters) granted.pop_front();
      woken.push_back({ino, ask.who.session, ask.waiter});
      changed = true;
    }
  }
}

/// After a change by `session`: wakes others and drops what has become empty.
void LockTable::settle(Ino ino, SessionId session, std::vector<LockWake>& woken) {
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return;
  InodeLocks& locks = it->second;
  wake(ino, locks, woken);
  auto from = locks.posix.lower_bound({session, 0});
  const bool holds = (from != locks.posix.end() && from->first.session == session) ||
                     std::any_of(locks.flocks.begin(), locks.flocks.end(), [&](const Flock& f) { return f.who.session == session; }) ||
                     std::any_of(locks.queue.begin(), locks.queue.end(), [&](const LockAsk& a) { return a.who.session == session; });
  if (!holds)
    if (auto s = sessions_.find(session); s != sessions_.end()) s->second.inodes.erase(ino);
  if (locks.empty()) inodes_.erase(it);
}

LockOutcome LockTable::enqueue(InodeLocks& locks, const LockAsk& ask) {
  if (!ask.flock && would_deadlock(locks, ask)) return LockOutcome::kDeadlock;
  SessionState& s = sessions_[ask.who.session];
  if (s.waiting >= kMaxWaitersPerSession) return LockOutcome::kFull;
  locks.queue.push_back(ask);
  if (!ask.flock) waits_.emplace(ask.who, ask);
  s.inodes.insert(ask.ino);
  ++s.waiting;
  ++total_;
  return LockOutcome::kQueued;
}

LockOutcome LockTable::set(const LockAsk& ask, bool wait, std::vector<LockWake>& woken) {
  std::lock_guard guard(mutex_);
  auto found = inodes_.find(ask.ino);
  if (ask.type == kLockNone) {
    if (found == inodes_.end()) return LockOutcome::kGranted;
    if (!ask.flock && !found->second.posix.contains(ask.who)) return LockOutcome::kGranted;
    apply(found->second, ask);
    settle(ask.ino, ask.who.session, woken);
    return LockOutcome::kGranted;
  }
  if (total_ >= kMaxLocks) return LockOutcome::kFull;
  InodeLocks& locks = found == inodes_.end() ? inodes_[ask.ino] : found->second;
  if (wait) {
    for (const LockAsk& q : locks.queue)
      if (q.who.session == ask.who.session && q.waiter == ask.waiter) return LockOutcome::kQueued;
    auto s = sessions_.find(ask.who.session);
    if (s != sessions_.end() && std::find(s->second.cancelled.begin(), s->second.cancelled.end(), ask.waiter) != s->second.cancelled.end()) {
      settle(ask.ino, ask.who.session, woken);
      return LockOutcome::kCancelled;
    }
  }
  if (ask.flock) {  // flock(2): a conversion first gives up the old lock, also if the new one is then refused
    auto own = std::find_if(locks.flocks.begin(), locks.flocks.end(), [&](const Flock& f) { return f.who == ask.who; });
    if (own != locks.flocks.end()) {
      if (own->exclusive == (ask.type == kLockWrite)) return LockOutcome::kGranted;
      LockAsk drop = ask;
      drop.type = kLockNone;
      apply(locks, drop);
      wake(ask.ino, locks, woken);
    }
  } else if (auto own = locks.posix.find(ask.who); own != locks.posix.end() && covers(own->second, ask)) {
    return LockOutcome::kGranted;
  }
  LockOutcome outcome = LockOutcome::kGranted;
  if (!opposed(locks, ask)) {
    apply(locks, ask);
    sessions_[ask.who.session].inodes.insert(ask.ino);
  } else if (wait) {
    outcome = enqueue(locks, ask);
    if (outcome == LockOutcome::kQueued) return outcome;  // that sets nobody free, and the queue may be long
  } else {
    outcome = LockOutcome::kBusy;
  }
  settle(ask.ino, ask.who.session, woken);
  return outcome;
}

std::vector<LockAsk> LockTable::queued(size_t most) const {
  std::vector<LockAsk> out;
  std::lock_guard guard(mutex_);
  for (const auto& [ino, locks] : inodes_)
    for (const LockAsk& ask : locks.queue) {
      if (out.size() == most) return out;
      out.push_back(ask);
    }
  return out;
}

std::optional<LockAsk> LockTable::test(const LockAsk& ask) const {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ask.ino);
  if (it == inodes_.end() || ask.type == kLockNone) return std::nullopt;
  std::optional<LockAsk> best;
  if (ask.flock) {
    for (const Flock& f : it->second.flocks)
      if (f.who != ask.who && (f.exclusive || ask.type == kLockWrite))
        return LockAsk{ask.ino, f.who, true, f.exclusive ? kLockWrite : kLockRead, 0, kLockEnd, f.pid, f.handle, 0};
    return best;
  }
  for (const auto& [owner, ranges] : it->second.posix) {
    if (owner == ask.who) continue;
    const Range* r = opposing(ranges, ask);
    if (r && (!best || r->start < best->start))
      best = LockAsk{ask.ino, owner, false, r->exclusive ? kLockWrite : kLockRead, r->start, r->end, r->pid, r->handle, 0};
  }
  return best;
}

bool LockTable::cancel(Ino ino, SessionId session, uint64_t waiter) {
  std::lock_guard guard(mutex_);
  SessionState& s = sessions_[session];
  if (auto it = inodes_.find(ino); it != inodes_.end()) {
    auto& queue = it->second.queue;
    for (size_t i = 0; i < queue.size(); ++i) {
      if (queue[i].who.session != session || queue[i].waiter != waiter) continue;
      forget_wait(queue[i]);
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      std::vector<LockWake> none;  // a wait that ends frees nobody
      settle(ino, session, none);
      return false;
    }
  }
  if (auto g = std::find(s.granted.begin(), s.granted.end(), waiter); g != s.granted.end()) {
    s.granted.erase(g);
    return true;
  }
  s.cancelled.push_back(waiter);
  if (s.cancelled.size() > kRememberedWaiters) s.cancelled.pop_front();
  return false;
}

// ---------------------------------------------------------------- release

void LockTable::drop_waiters(InodeLocks& locks, SessionId session, const uint64_t* handle) {
  for (size_t i = 0; i < locks.queue.size();) {
    if (locks.queue[i].who.session == session && (!handle || locks.queue[i].handle == *handle)) {
      forget_wait(locks.queue[i]);
      locks.queue.erase(locks.queue.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

void LockTable::release_owner(Ino ino, LockOwner who, std::vector<LockWake>& woken) {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return;
  total_ -= weight(it->second, who);
  if (it->second.posix.erase(who) != 0) settle(ino, who.session, woken);
}

void LockTable::release_handle(Ino ino, SessionId session, uint64_t handle, std::vector<LockWake>& woken) {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return;
  InodeLocks& locks = it->second;
  drop_waiters(locks, session, &handle);
  total_ -= std::erase_if(locks.flocks, [&](const Flock& f) { return f.who.session == session && f.handle == handle; });
  for (auto p = locks.posix.lower_bound({session, 0}); p != locks.posix.end() && p->first.session == session;) {
    total_ -= std::erase_if(p->second, [&](const Range& r) { return r.handle == handle; });
    p = p->second.empty() ? locks.posix.erase(p) : std::next(p);
  }
  settle(ino, session, woken);
}

void LockTable::release_inode(Ino ino, SessionId session, std::vector<LockWake>& woken) {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return;
  InodeLocks& locks = it->second;
  drop_waiters(locks, session, nullptr);
  total_ -= std::erase_if(locks.flocks, [&](const Flock& f) { return f.who.session == session; });
  for (auto p = locks.posix.lower_bound({session, 0}); p != locks.posix.end() && p->first.session == session;) {
    total_ -= p->second.size();
    p = locks.posix.erase(p);
  }
  settle(ino, session, woken);
}

void LockTable::release_session(SessionId session, std::vector<LockWake>& woken) {
  std::vector<Ino> inodes;
  {
    std::lock_guard guard(mutex_);
    auto s = sessions_.find(session);
    if (s == sessions_.end()) return;
    inodes.assign(s->second.inodes.begin(), s->second.inodes.end());
  }
  for (Ino ino : inodes) release_inode(ino, session, woken);
  std::lock_guard guard(mutex_);
  sessions_.erase(session);
}

// ---------------------------------------------------------------- status

bool LockTable::idle(SessionId session) const {
  std::lock_guard guard(mutex_);
  auto s = sessions_.find(session);
  return s == sessions_.end() || s->second.inodes.empty();
}

size_t LockTable::count(SessionId session) const {
  std::lock_guard guard(mutex_);
  auto s = sessions_.find(session);
  if (s == sessions_.end()) return 0;
  size_t n = 0;
  for (Ino ino : s->second.inodes) {
    auto it = inodes_.find(ino);
    if (it == inodes_.end()) continue;
    for (auto p = it->second.posix.lower_bound({session, 0}); p != it->second.posix.end() && p->first.session == session; ++p) n += p->second.size();
    for (const Flock& f : it->second.flocks) n += f.who.session == session;
  }
  return n;
}

size_t LockTable::total() const {
  std::lock_guard guard(mutex_);
  return total_;
}

std::vector<LockAsk> LockTable::held(Ino ino) const {
  std::lock_guard guard(mutex_);
  std::vector<LockAsk> out;
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return out;
  for (const auto& [owner, ranges] : it->second.posix)
    for (const Range& r : ranges) out.push_back({ino, owner, false, r.exclusive ? kLockWrite : kLockRead, r.start, r.end, r.pid, r.handle, 0});
  for (const Flock& f : it->second.flocks) out.push_back({ino, f.who, true, f.exclusive ? kLockWrite : kLockRead, 0, kLockEnd, f.pid, f.handle, 0});
  return out;
}

}  // namespace nacre::mds
