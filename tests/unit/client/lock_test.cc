// SPDX-License-Identifier: Apache-2.0
// Locks: grants by push, interrupts, asking again after a restart, reclaim, and what a close frees.
#include "tests/unit/client/world.h"

namespace nacre::test {

namespace {
wire::LockSpecT flock_spec(uint64_t owner, uint8_t type = 1) {
  wire::LockSpecT s;
  s.flock = true;
  s.owner = owner;
  s.type = type;
  s.end = INT64_MAX;
  return s;
}
wire::LockSpecT posix_spec(uint64_t owner, uint8_t type, uint64_t start, uint64_t end) {
  wire::LockSpecT s;
  s.owner = owner;
  s.type = type;
  s.start = start;
  s.end = end;
  return s;
}
}  // namespace

class LockTest : public World {
 protected:
  void until_waiting(size_t n) {
    while (mds->waiters() < n) std::this_thread::yield();
  }
};

TEST_F(LockTest, AWaiterIsWokenByTheServer) {
  auto h = create("f");
  mds->hold_lock(h->ino(), 99);
  EXPECT_EQ(run(fs().lock_set(h, flock_spec(1), false, {})).error().code, Errc::kAgain);
  auto waiting = start(fs().lock_set(h, flock_spec(1), true, {}));
  until_waiting(1);
  mds->drop_lock(h->ino(), 99);
  ASSERT_OK(waiting.get());
  EXPECT_EQ(fs().status().held_locks, 1u);
  ASSERT_OK(run(fs().lock_set(h, flock_spec(1, 2), false, {})));
  EXPECT_EQ(fs().status().held_locks, 0u);
}

TEST_F(LockTest, AnInterruptEndsTheWaitAtOnce) {
  auto h = create("f");
  mds->hold_lock(h->ino(), 99);
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto waiting = start(fs().lock_set(h, flock_spec(1), true, caller));
  until_waiting(1);
  auto begun = std::chrono::steady_clock::now();
  caller.cancel->fire();
  EXPECT_EQ(waiting.get().error().code, Errc::kIntr);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(500));
  EXPECT_EQ(mds->waiters(), 0u);
  EXPECT_EQ(fs().status().held_locks, 0u);
}

TEST_F(LockTest, WaitersAskAgainAfterARestartAndHeldLocksAreReclaimed) {
  auto a = create("a"), b = create("b");
  ASSERT_OK(run(fs().lock_set(a, posix_spec(5, 1, 0, 99), false, {})));
  ASSERT_OK(run(fs().lock_set(a, posix_spec(5, 2, 40, 49), false, {})));
  mds->hold_lock(b->ino(), 99);
  auto waiting = start(fs().lock_set(b, flock_spec(1), true, {}), 1);
  until_waiting(1);
  restart(*mds);  // forgets all locks, the other's too
  ASSERT_OK(waiting.get());
  EXPECT_EQ(mds->reclaimed_locks(), 2u);  // 0-39 and 50-99
  EXPECT_EQ(fs().status().held_locks, 3u);
}

TEST_F(LockTest, FlushFreesThePosixLocksOfItsOwnerOnly) {
  auto h = create("f");
  ASSERT_OK(run(fs().lock_set(h, posix_spec(5, 1, 0, 9), false, {})));
  ASSERT_OK(run(fs().lock_set(h, posix_spec(6, 1, 10, 19), false, {})));
  ASSERT_OK(run(fs().flush(h, 77, {})));  // holds nothing: nobody is asked
  EXPECT_EQ(mds->received(rpc::Method::kClose), 0);
  ASSERT_OK(run(fs().flush(h, 5, {})));
  EXPECT_EQ(mds->received(rpc::Method::kClose), 1);
  EXPECT_EQ(fs().status().held_locks, 1u);
  ASSERT_OK(run(fs().lock_set(h, posix_spec(7, 1, 0, 9), false, {})));
  EXPECT_EQ(run(fs().lock_set(h, posix_spec(7, 1, 0, 19), false, {})).error().code, Errc::kAgain);
}

TEST_F(LockTest, ReleaseFreesTheFlockAndARefusedOneIsTriedForAMoment) {
  auto a = create("f");
  auto& other = mount(options());
  auto b = run(other.open(a->ino(), O_RDWR, {}));
  ASSERT_OK(b);
  ASSERT_OK(run(fs().lock_set(a, flock_spec(1), false, {})));
  EXPECT_EQ(run(other.lock_set(b->handle, flock_spec(2), false, {})).error().code, Errc::kAgain);
  // close(2) has returned, but the kernel's RELEASE is only worked on after the first two tries
  mds->inject(rpc::Method::kLock, {Fault::kError, Errc::kAgain}, 2);
  mds->inject(rpc::Method::kLock, {Fault::kHold});
  int before = mds->received(rpc::Method::kLock);
  auto locking = start(other.lock_set(b->handle, flock_spec(2), false, {}), 1);
  mds->wait_received(rpc::Method::kLock, before + 3);
  ASSERT_OK(run(fs().release(a, 1)));
  mds->release_held();
  ASSERT_OK(locking.get());
  ASSERT_OK(run(other.release(b->handle, 2)));
}

}  // namespace nacre::test
