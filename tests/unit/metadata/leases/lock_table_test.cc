// SPDX-License-Identifier: Apache-2.0
// Locks against a model that knows only bytes: for every byte who holds it how. Plus the cases that fcntl(2) and flock(2) name.
#include "metadata/leases/lock_table.h"

#include <gtest/gtest.h>

#include <random>

namespace nacre::mds {
namespace {

constexpr Ino kFile{7};

LockAsk ask(uint64_t session, uint64_t owner, uint8_t type, uint64_t start, uint64_t end, uint64_t waiter = 0) {
  return {kFile, {SessionId(session), owner}, false, type, start, end, 100, owner, waiter};
}
LockAsk whole(uint64_t session, uint64_t owner, uint8_t type, uint64_t waiter = 0) {
  return {kFile, {SessionId(session), owner}, true, type, 0, kLockEnd, 100, owner, waiter};
}

class Table {
 public:
  LockOutcome set(const LockAsk& a, bool wait = false) { return table.set(a, wait, woken); }
  std::vector<std::pair<uint64_t, uint64_t>> take() {
    std::vector<std::pair<uint64_t, uint64_t>> out;
    for (const LockWake& w : woken) out.emplace_back(w.session.v, w.waiter);
    woken.clear();
    return out;
  }
  std::string held() {
    std::string out;
    for (const LockAsk& l : table.held(kFile))
      out += fmt::format("{}:{}{}[{},{}] ", l.who.owner, l.flock ? "f" : "", l.type == kLockWrite ? "W" : "R", l.start, l.end == kLockEnd ? -1 : static_cast<int64_t>(l.end));
    return out;
  }
  LockTable table;
  std::vector<LockWake> woken;
};

using Wakes = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(LockTable, UnlockInTheMiddleSplits) {
  Table t;
  EXPECT_EQ(t.set(ask(1, 1, kLockWrite, 0, 99)), LockOutcome::kGranted);
  EXPECT_EQ(t.set(ask(1, 1, kLockNone, 40, 59)), LockOutcome::kGranted);
  EXPECT_EQ(t.held(), "1:W[0,39] 1:W[60,99] ");
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 40, 59)), LockOutcome::kGranted);
  EXPECT_EQ(t.set(ask(2, 2, kLockRead, 39, 39)), LockOutcome::kBusy);
}

TEST(LockTable, NeighboursOfOneTypeMergeAndDowngradeSplits) {
  Table t;
  t.set(ask(1, 1, kLockRead, 0, 9));
  t.set(ask(1, 1, kLockRead, 20, 29));
  t.set(ask(1, 1, kLockRead, 10, 19));
  EXPECT_EQ(t.held(), "1:R[0,29] ");
  t.set(ask(1, 1, kLockWrite, 5, 7));
  EXPECT_EQ(t.held(), "1:R[0,4] 1:W[5,7] 1:R[8,29] ");
  EXPECT_EQ(t.table.total(), 3u);
  t.set(ask(1, 1, kLockNone, 0, kLockEnd));
  EXPECT_EQ(t.held(), "");
  EXPECT_EQ(t.table.total(), 0u);
}

TEST(LockTable, RangeToTheEndOfTheFile) {
  Table t;
  t.set(ask(1, 1, kLockWrite, 100, kLockEnd));
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, uint64_t{1} << 40, uint64_t{1} << 41)), LockOutcome::kBusy);
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 99)), LockOutcome::kGranted);
  t.set(ask(1, 1, kLockNone, 1000, kLockEnd));
  EXPECT_EQ(t.held(), "1:W[100,999] 2:W[0,99] ");
}

TEST(LockTable, GetlkNamesTheFirstLockInTheWay) {
  Table t;
  t.set(ask(1, 1, kLockRead, 50, 59));
  t.set(ask(2, 2, kLockRead, 10, 19));
  EXPECT_FALSE(t.table.test(ask(3, 3, kLockRead, 0, 99)));
  auto found = t.table.test(ask(3, 3, kLockWrite, 0, 99));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->start, 10u);
  EXPECT_EQ(found->who.owner, 2u);
  EXPECT_FALSE(t.table.test(ask(1, 1, kLockWrite, 50, 59))) << "own locks are never in the way";
}

TEST(LockTable, WaitersAreServedInOrder) {
  Table t;
  t.set(ask(1, 1, kLockWrite, 0, 9));
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 9, 21), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(ask(3, 3, kLockWrite, 0, 9, 31), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 9, 21), true), LockOutcome::kQueued) << "a repeat changes nothing";
  EXPECT_TRUE(t.take().empty());
  t.set(ask(1, 1, kLockNone, 0, 9));
  EXPECT_EQ(t.take(), (Wakes{{2, 21}}));
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 9, 21), true), LockOutcome::kGranted) << "a repeat after the grant";
  t.table.release_owner(kFile, {SessionId(2), 2}, t.woken);
  EXPECT_EQ(t.take(), (Wakes{{3, 31}}));
  t.table.release_session(SessionId(3), t.woken);
  EXPECT_EQ(t.table.total(), 0u);
}

TEST(LockTable, OneReleaseWakesAllReaders) {
  Table t;
  t.set(ask(1, 1, kLockWrite, 0, 99));
  t.set(ask(2, 2, kLockRead, 0, 9, 21), true);
  t.set(ask(3, 3, kLockRead, 5, 30, 31), true);
  t.set(ask(4, 4, kLockWrite, 8, 8, 41), true);
  t.set(ask(5, 5, kLockRead, 50, 60, 51), true);
  t.set(ask(1, 1, kLockRead, 0, 99));  // a downgrade lets readers in
  EXPECT_EQ(t.take(), (Wakes{{2, 21}, {3, 31}, {5, 51}}));
}

TEST(LockTable, DeadlockOfTwoClientsIsRefused) {
  Table t;
  t.set(ask(1, 1, kLockWrite, 0, 0));
  t.set(ask(2, 2, kLockWrite, 1, 1));
  EXPECT_EQ(t.set(ask(1, 1, kLockWrite, 1, 1, 11), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 0, 22), true), LockOutcome::kDeadlock);
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, 0)), LockOutcome::kBusy) << "F_SETLK is never EDEADLK";
  t.table.release_owner(kFile, {SessionId(2), 2}, t.woken);
  EXPECT_EQ(t.take(), (Wakes{{1, 11}}));
}

TEST(LockTable, DeadlockAcrossThreeInodes) {
  Table t;
  auto on = [](uint64_t ino, LockAsk a) {
    a.ino = Ino(ino);
    return a;
  };
  for (uint64_t i = 1; i <= 3; ++i) t.set(on(i, ask(i, i, kLockWrite, 0, 0)));
  EXPECT_EQ(t.set(on(2, ask(1, 1, kLockRead, 0, 0, 1)), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(on(3, ask(2, 2, kLockRead, 0, 0, 2)), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(on(1, ask(3, 3, kLockRead, 0, 0, 3)), true), LockOutcome::kDeadlock);
  EXPECT_EQ(t.set(on(1, ask(4, 4, kLockRead, 0, 0, 4)), true), LockOutcome::kQueued) << "waiting without holding is no circle";
  EXPECT_FALSE(t.table.cancel(Ino(3), SessionId(2), 2));
  EXPECT_EQ(t.set(on(1, ask(3, 3, kLockRead, 0, 0, 3)), true), LockOutcome::kQueued) << "the circle was opened by the cancel";
}

TEST(LockTable, FlockHasNoDeadlock) {
  Table t;
  auto on = [](uint64_t ino, LockAsk a) {
    a.ino = Ino(ino);
    return a;
  };
  t.set(on(1, whole(1, 1, kLockWrite)));
  t.set(on(2, whole(2, 2, kLockWrite)));
  EXPECT_EQ(t.set(on(2, whole(1, 1, kLockWrite, 1)), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(on(1, whole(2, 2, kLockWrite, 2)), true), LockOutcome::kQueued);
}

TEST(LockTable, FlockConversionGivesUpTheOldLock) {
  Table t;
  t.set(whole(1, 1, kLockRead));
  t.set(whole(2, 2, kLockRead));
  EXPECT_EQ(t.set(whole(3, 3, kLockWrite, 31), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(whole(1, 1, kLockWrite)), LockOutcome::kBusy);
  EXPECT_EQ(t.held(), "2:fR[0,-1] ") << "as flock(2) says, the shared lock is lost";
  t.set(whole(2, 2, kLockNone));
  EXPECT_EQ(t.take(), (Wakes{{3, 31}}));
}

TEST(LockTable, FlockAndPosixDoNotSeeEachOther) {
  Table t;
  EXPECT_EQ(t.set(whole(1, 1, kLockWrite)), LockOutcome::kGranted);
  EXPECT_EQ(t.set(ask(2, 2, kLockWrite, 0, kLockEnd)), LockOutcome::kGranted);
}

TEST(LockTable, CancelTellsWhetherItCameTooLate) {
  Table t;
  t.set(whole(1, 1, kLockWrite));
  t.set(whole(2, 2, kLockWrite, 21), true);
  t.set(whole(3, 3, kLockWrite, 31), true);
  EXPECT_FALSE(t.table.cancel(kFile, SessionId(2), 21));
  t.set(whole(1, 1, kLockNone));
  EXPECT_EQ(t.take(), (Wakes{{3, 31}}));
  EXPECT_TRUE(t.table.cancel(kFile, SessionId(3), 31));
  EXPECT_FALSE(t.table.cancel(kFile, SessionId(2), 22)) << "before its request came";
  EXPECT_EQ(t.set(whole(2, 2, kLockWrite, 22), true), LockOutcome::kCancelled);
}

TEST(LockTable, AClosedHandleTakesItsLocksAlong) {
  Table t;
  t.set(whole(1, 5, kLockWrite));  // handle 5
  EXPECT_EQ(t.set(whole(2, 6, kLockRead, 61), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(whole(1, 7, kLockRead, 71), true), LockOutcome::kQueued);
  t.table.release_handle(kFile, SessionId(1), 7, t.woken);
  EXPECT_TRUE(t.take().empty()) << "only its waiter went";
  t.table.release_handle(kFile, SessionId(1), 5, t.woken);
  EXPECT_EQ(t.take(), (Wakes{{2, 61}}));
}

TEST(LockTable, SessionThatGoesLeavesNothing) {
  Table t;
  t.set(ask(1, 1, kLockWrite, 0, 9));
  t.set(ask(1, 2, kLockRead, 20, 29));
  t.set(whole(1, 3, kLockWrite));
  t.set(ask(2, 9, kLockWrite, 40, 49));
  t.set(ask(1, 1, kLockWrite, 40, 49, 14), true);
  t.set(ask(2, 8, kLockWrite, 0, 5, 91), true);
  t.set(whole(2, 9, kLockRead, 92), true);
  EXPECT_EQ(t.table.count(SessionId(1)), 3u);
  t.table.release_session(SessionId(1), t.woken);
  EXPECT_EQ(t.table.count(SessionId(1)), 0u);
  EXPECT_EQ(t.take(), (Wakes{{2, 91}, {2, 92}}));
  t.table.release_session(SessionId(2), t.woken);
  EXPECT_EQ(t.table.total(), 0u);
}

TEST(LockTable, WaitersOfASessionAreBounded) {
  Table t;
  t.set(whole(1, 1, kLockWrite));
  for (size_t i = 0; i < kMaxWaitersPerSession; ++i) ASSERT_EQ(t.set(whole(2, 10 + i, kLockWrite, 10 + i), true), LockOutcome::kQueued);
  EXPECT_EQ(t.set(whole(2, 9, kLockWrite, 9), true), LockOutcome::kFull);
}

// ---------------------------------------------------------------- the model

constexpr uint64_t kBytes = 24, kOwners = 5;

/// Per byte and owner: 0 free, 1 shared, 2 exclusive. A queue in order of arrival; a change grants from its head on, again
/// and again.
struct Model {
  std::array<std::array<uint8_t, kBytes>, kOwners> held{};
  std::vector<LockAsk> queue;

  bool opposed(const LockAsk& a) const {
    for (uint64_t o = 0; o < kOwners; ++o)
      for (uint64_t b = a.start; b <= std::min(a.end, kBytes - 1); ++b)
        if (o != a.who.owner && held[o][b] && (held[o][b] == 2 || a.type == kLockWrite)) return true;
    return false;
  }
  void apply(const LockAsk& a) {
    for (uint64_t b = a.start; b <= std::min(a.end, kBytes - 1); ++b) held[a.who.owner][b] = a.type == kLockNone ? 0 : a.type == kLockWrite ? 2 : 1;
  }
  Wakes wake() {
    Wakes out;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < queue.size();) {
        if (opposed(queue[i])) { ++i; continue; }
        apply(queue[i]);
        out.emplace_back(queue[i].who.session.v, queue[i].waiter);
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
      }
    }
    return out;
  }
  /// Does `from` reach itself through "waits for an owner that holds something in the way"?
  bool circle(const LockAsk& a) const {
    std::set<uint64_t> seen;
    std::vector<uint64_t> next;
    auto push = [&](const LockAsk& x) {
      for (uint64_t o = 0; o < kOwners; ++o)
        for (uint64_t b = x.start; b <= std::min(x.end, kBytes - 1); ++b)
          if (o != x.who.owner && held[o][b] && (held[o][b] == 2 || x.type == kLockWrite) && seen.insert(o).second) next.push_back(o);
    };
    push(a);
    while (!next.empty()) {
      uint64_t o = next.back();
      next.pop_back();
      for (const LockAsk& q : queue)
        if (q.who.owner == o) push(q);
    }
    return seen.contains(a.who.owner);
  }
  std::string text() const {
    std::string out;
    for (uint64_t o = 0; o < kOwners; ++o)
      for (uint64_t b = 0; b < kBytes;) {
        uint64_t e = b;
        while (e + 1 < kBytes && held[o][e + 1] == held[o][b]) ++e;
        if (held[o][b]) out += fmt::format("{}:{}[{},{}] ", o, held[o][b] == 2 ? "W" : "R", b, e);
        b = e + 1;
      }
    return out;
  }
};

TEST(LockTable, AgreesWithTheModelOfBytes) {
  size_t deadlocks = 0, waits = 0, grants = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 rng(seed);
    Table t;
    Model m;
    uint64_t waiter = 0;
    for (int step = 0; step < 200; ++step) {
      const uint64_t owner = rng() % kOwners, start = rng() % kBytes;
      LockAsk a = ask(owner % 3 + 1, owner, static_cast<uint8_t>(rng() % 3), start, start + rng() % (kBytes - start), ++waiter);
      const bool wait = rng() % 3 == 0;
      LockOutcome expected;
      if (a.type == kLockNone || !m.opposed(a)) {
        m.apply(a);
        expected = LockOutcome::kGranted;
      } else if (!wait) {
        expected = LockOutcome::kBusy;
      } else if (m.circle(a)) {
        expected = LockOutcome::kDeadlock;
        ++deadlocks;
      } else {
        m.queue.push_back(a);
        expected = LockOutcome::kQueued;
        ++waits;
      }
      const Wakes wakes = m.wake();
      grants += wakes.size();
      ASSERT_EQ(t.set(a, wait), expected) << "seed " << seed << " step " << step;
      ASSERT_EQ(t.take(), wakes) << "seed " << seed << " step " << step;
      std::string sorted;
      std::map<std::pair<uint64_t, uint64_t>, std::string> by;
      for (const LockAsk& l : t.table.held(kFile)) by[{l.who.owner, l.start}] = fmt::format("{}:{}[{},{}] ", l.who.owner, l.type == kLockWrite ? "W" : "R", l.start, l.end);
      for (const auto& [k, v] : by) sorted += v;
      ASSERT_EQ(sorted, m.text()) << "seed " << seed << " step " << step;
    }
    for (uint64_t s = 1; s <= 3; ++s) t.table.release_session(SessionId(s), t.woken);
    ASSERT_EQ(t.table.total(), 0u) << "seed " << seed;
  }
  EXPECT_GT(deadlocks, 50u);
  EXPECT_GT(waits, 1000u);
  EXPECT_GT(grants, 500u);
}

}  // namespace
}  // namespace nacre::mds
