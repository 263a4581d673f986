// SPDX-License-Identifier: Apache-2.0
// Locks between sessions over the wire: conflicts, grants pushed to waiters, cancels, and what lost connections leave.
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

class LockServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start_server();
    ost = std::make_unique<StandInOst>(world, 0, [this] { return world.mds(); });  // without any a writer waits
    ASSERT_TRUE(a.mount());
    ASSERT_TRUE(b.mount());
    auto made = a.create("f", 1);
    ASSERT_TRUE(made);
    ino = Ino(made->attr->ino);
    ASSERT_TRUE(b.open(ino, 1, O_RDWR));
  }
  World world;
  std::unique_ptr<StandInOst> ost;
  TestClient a{world}, b{world};
  Ino ino;
};

TEST_F(LockServiceTest, ConflictsAreSeenAcrossSessions) {
  EXPECT_EQ(a.lock(ino, 1, 7, kLockWrite, false, false, 0, 0, 99), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 7, kLockWrite, false, false, 0, 50, 60), Errc::kAgain);
  EXPECT_EQ(b.lock(ino, 1, 7, kLockWrite, false, false, 0, 100, 200), Errc::kOk);
  wire::LockTestRequestT q;
  q.ino = ino.v;
  q.lock = std::make_unique<wire::LockSpecT>();
  q.lock->type = kLockRead;
  q.lock->start = 0;
  q.lock->end = kLockEnd;
  q.lock->owner = 7;
  q.lock->handle = 1;
  auto found = b.call<rpc::Method::kLockTest>(q);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lock->type, kLockWrite);
  EXPECT_EQ(found->lock->end, 99u);
  q.lock->start = 100;
  EXPECT_EQ(b.call<rpc::Method::kLockTest>(q)->lock->type, kLockNone) << "its own lock is not in the way";
}

TEST_F(LockServiceTest, WaitersHearOfTheirGrant) {
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, true, true, 42), Errc::kWouldBlock);
  EXPECT_EQ(b.grants(), 0u);
  EXPECT_EQ(a.lock(ino, 1, 1, kLockNone, true), Errc::kOk);
  EXPECT_EQ(b.next_grant(), 42u);
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kAgain);
}

TEST_F(LockServiceTest, AGrantWaitsForTheNextConnection) {
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, true, true, 42), Errc::kWouldBlock);
  b.disconnect();
  EXPECT_TRUE(world.eventually([&] { return !world.core().sessions->find(SessionId(b.session))->connected(); }));
  EXPECT_EQ(a.lock(ino, 1, 1, kLockNone, true), Errc::kOk);
  ASSERT_TRUE(b.mount());
  EXPECT_EQ(b.next_grant(), 42u);
}

TEST_F(LockServiceTest, CancelledWaitersGetNothing) {
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 2, kLockWrite, false, true, 5), Errc::kWouldBlock);
  wire::LockCancelRequestT q;
  q.ino = ino.v;
  q.waiter = 5;
  auto cancelled = b.once<rpc::Method::kLockCancel>(q);
  ASSERT_TRUE(cancelled);
  EXPECT_FALSE(cancelled->was_granted);
  EXPECT_EQ(a.lock(ino, 1, 1, kLockNone), Errc::kOk);
  EXPECT_EQ(a.lock(ino, 1, 3, kLockWrite), Errc::kOk) << "nobody holds it";
}

TEST_F(LockServiceTest, DeadlockBetweenClientsIsRefused) {
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, false, false, 0, 0, 0), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, false, false, 0, 1, 1), Errc::kOk);
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, false, true, 8, 1, 1), Errc::kWouldBlock);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, false, true, 9, 0, 0), Errc::kDeadlk);
}

TEST_F(LockServiceTest, ClosingFreesWhatTheHandleHeld) {
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockRead, true, true, 3), Errc::kWouldBlock);
  ASSERT_TRUE(a.close(ino, 1));
  EXPECT_EQ(b.next_grant(), 3u);
}

TEST_F(LockServiceTest, LocksNeedAnOpenHandleOfTheRightKind) {
  ASSERT_TRUE(b.open(ino, 2, O_RDONLY));
  ASSERT_TRUE(b.open(ino, 3, O_WRONLY));
  EXPECT_EQ(b.lock(ino, 2, 1, kLockWrite), Errc::kBadF);
  EXPECT_EQ(b.lock(ino, 3, 1, kLockRead), Errc::kBadF);
  EXPECT_EQ(b.lock(ino, 2, 1, kLockWrite, true), Errc::kOk) << "flock asks for no mode";
  EXPECT_EQ(b.lock(ino, 9, 1, kLockRead), Errc::kStale);
  EXPECT_EQ(b.lock(ino, 1, 1, 3), Errc::kInval);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockRead, false, false, 0, 10, 5), Errc::kInval);
  EXPECT_EQ(b.lock(ino, 1, 1, kLockRead, false, false, 0, 10, UINT64_MAX), Errc::kInval);
}

TEST_F(LockServiceTest, ManyWaitersAreServedOneByOne) {
  constexpr uint64_t kWaiters = 16;
  EXPECT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  for (uint64_t i = 0; i < kWaiters; ++i) {
    ASSERT_TRUE(b.open(ino, 100 + i, O_RDONLY));
    ASSERT_EQ(b.lock(ino, 100 + i, 100 + i, kLockWrite, true, true, 100 + i), Errc::kWouldBlock);
  }
  EXPECT_EQ(a.lock(ino, 1, 1, kLockNone, true), Errc::kOk);
  for (uint64_t i = 0; i < kWaiters; ++i) {
    EXPECT_EQ(b.next_grant(), 100 + i);
    EXPECT_EQ(b.grants(), 0u);
    ASSERT_TRUE(b.close(ino, 100 + i));
  }
}

}  // namespace
}  // namespace nacre::mds::testing
