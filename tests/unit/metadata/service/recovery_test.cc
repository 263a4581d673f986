// SPDX-License-Identifier: Apache-2.0
// Restarts after a kill (the server is dropped without closing anything): reclaim, the recovery window, and what of an evicted
// or lost session is put right. Storage targets are stand-ins.
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start_server();
    ost = std::make_unique<StandInOst>(world, 0, [this] { return world.mds(); });
    ASSERT_TRUE(a.mount());
    ASSERT_TRUE(b.mount());
    auto made = a.create("f", 1);
    ASSERT_TRUE(made);
    ino = Ino(made->attr->ino);
    ASSERT_TRUE(b.open(ino, 1, O_RDWR));
  }
  static wire::ReclaimRequestT done() {
    wire::ReclaimRequestT q;
    q.done = true;
    return q;
  }
  static void add_open(wire::ReclaimRequestT& q, Ino ino, uint64_t handle, uint32_t flags) {
    auto o = std::make_unique<wire::ReclaimOpenT>();
    o->ino = ino.v;
    o->handle = handle;
    o->flags = flags;
    q.opens.push_back(std::move(o));
  }
  static void add_lock(wire::ReclaimRequestT& q, Ino ino, uint64_t handle, uint64_t owner, uint8_t type) {
    auto l = std::make_unique<wire::ReclaimLockT>();
    l->ino = ino.v;
    l->lock = std::make_unique<wire::LockSpecT>();
    l->lock->handle = handle;
    l->lock->owner = owner;
    l->lock->type = type;
    l->lock->end = kLockEnd;
    q.locks.push_back(std::move(l));
  }
  ObjectId object() const { return {ino, Generation(1), 0, 0}; }
  World world;
  std::unique_ptr<StandInOst> ost;
  TestClient a{world}, b{world};
  Ino ino;
};

TEST_F(RecoveryTest, OpensAndLocksComeBack) {
  ASSERT_EQ(a.lock(ino, 1, 5, kLockWrite), Errc::kOk);
  ost->write(object(), 100);
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.recovering);
  auto q = done();
  add_open(q, ino, 1, O_RDWR);
  auto back = b.call<rpc::Method::kReclaim>(q);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(back->refused.empty());
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kRecovering) << "a may still hold it";
  EXPECT_EQ(b.stat(ino)->size, 100u);

  ASSERT_TRUE(a.mount());
  q = done();
  add_open(q, ino, 1, O_RDWR);
  add_lock(q, ino, 1, 5, kLockWrite);
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(q)->refused.empty());
  EXPECT_FALSE(world.core().sessions->recovering()) << "all are back: the window is over";
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kAgain) << "and a does hold it";
  EXPECT_EQ(a.lock(ino, 1, 5, kLockNone), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kOk);
  ost->write(object(), 300);
  ASSERT_TRUE(a.close(ino, 1));
  ASSERT_TRUE(b.close(ino, 1, {ost->report(object())}));
  EXPECT_EQ(a.stat(ino)->size, 300u);
  EXPECT_TRUE(world.eventually([&] { return !world.core().opens.is_open(ino); })) << "what stood for the opens of before the restart goes too";
}

TEST_F(RecoveryTest, LocksSurviveTwoRestartsInARow) {
  ASSERT_EQ(a.lock(ino, 1, 5, kLockWrite), Errc::kOk);
  for (int i = 0; i < 2; ++i) {
    world.kill_and_restart();
    for (TestClient* c : {&a, &b}) {
      ASSERT_TRUE(c->mount());
      auto q = done();
      add_open(q, ino, 1, O_RDWR);
      if (c == &a) add_lock(q, ino, 1, 5, kLockWrite);
      ASSERT_TRUE(c->call<rpc::Method::kReclaim>(q)->refused.empty());
    }
    EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kAgain) << "restart " << i;
  }
  EXPECT_EQ(a.lock(ino, 1, 5, kLockNone), Errc::kOk);
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kOk);
}

TEST_F(RecoveryTest, AWriterThatIsNotReclaimedIsSettledFromItsObjects) {
  ost->write(object(), 2222);
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  EXPECT_EQ(b.stat(ino).error().code, Errc::kRecovering);
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(done())) << "neither has the file open any more";
  EXPECT_TRUE(world.eventually([&] { return !world.core().opens.is_open(ino); }));
  const size_t before = ost->stats();
  EXPECT_EQ(a.stat(ino)->size, 2222u);
  EXPECT_EQ(ost->stats(), before) << "the record is the truth again";
  world.kill_and_restart();
  EXPECT_FALSE(world.core().opens.is_open(ino)) << "no OpenRecord is left";
}

TEST_F(RecoveryTest, WhatTheJournalHasLostIsPutRightFromTheObjects) {
  ASSERT_TRUE(a.close(ino, 1));
  ASSERT_TRUE(b.close(ino, 1));
  EXPECT_EQ(a.stat(ino)->size, 0u);
  // An open, a write and its close, a truncation, and a file, of which the journal has nothing.
  ost->write(object(), 4000);
  const ObjectId truncated{ino, Generation(2), 0, 0}, nameless{Ino(ino.v + 1), Generation(1), 0, 0}, other{Ino(uint64_t{1} << 40), Generation(1), 0, 0};
  ost->write(truncated, 10);
  ost->write(nameless, 10);
  ost->write(other, 10);
  world.kill_and_restart();
  EXPECT_TRUE(world.eventually([&] { return !ost->exists(truncated) && !ost->exists(nameless); }));
  EXPECT_TRUE(ost->exists(object()));
  EXPECT_TRUE(ost->exists(other)) << "its number was not given out before this run";
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(done()));
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  EXPECT_TRUE(world.eventually([&] { return !world.core().opens.is_open(ino); }));
  const size_t before = ost->stats();
  EXPECT_EQ(a.stat(ino)->size, 4000u);
  EXPECT_EQ(ost->stats(), before) << "the record is the truth again";
  ASSERT_TRUE(a.open(ino, 9, O_WRONLY | O_TRUNC));
  auto record = View(*world.core().store, Tier::kFull).inode(ino);
  EXPECT_GT((*record)->layout->generation, 2u) << "generation 2 was destroyed: nothing could be written there";
}

TEST_F(RecoveryTest, AHandleThatWasClosedBeforeTheRestartDoesNotStayOpen) {
  ASSERT_TRUE(b.close(ino, 1));
  ASSERT_TRUE(a.open(ino, 2, O_RDWR));
  ost->write(object(), 7);
  wire::CloseRequestT close;
  close.ino = ino.v;
  close.handle = 2;
  close.atime = world.clock().real() + kSecond;  // something to write, so the answer is stored
  ASSERT_TRUE(a.call<rpc::Method::kClose>(close, 0, ++a.sequence));
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  ASSERT_TRUE(a.mount());
  auto q = done();
  add_open(q, ino, 1, O_RDWR);
  add_open(q, ino, 2, O_RDWR);  // its answer was lost
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(q)->refused.empty());
  ASSERT_TRUE(a.call<rpc::Method::kClose>(close, 0, a.sequence));
  EXPECT_FALSE(world.core().opens.flags(ino, SessionId(a.session), 2));
  ASSERT_TRUE(a.close(ino, 1));
  EXPECT_TRUE(world.eventually([&] { return !world.core().opens.is_open(ino); }));
  EXPECT_EQ(a.stat(ino)->size, 7u);
}

TEST_F(RecoveryTest, TheWindowEndsForThoseWhoStayAway) {
  world.settings().mds_recovery_window = 5'000;
  ASSERT_EQ(a.lock(ino, 1, 5, kLockWrite), Errc::kOk);
  ost->write(object(), 10);
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  auto q = done();
  add_open(q, ino, 1, O_RDWR);
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(q));
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kRecovering);
  EXPECT_TRUE(world.eventually([&] { return b.lock(ino, 1, 6, kLockWrite) == Errc::kOk; }));
  EXPECT_EQ(ost->fenced(), (std::vector<uint64_t>{a.session})) << "nobody else locks before a is fenced";
  const uint64_t lost = a.session;
  EXPECT_FALSE(a.mount()) << "too late";
  EXPECT_NE(a.session, lost);
}

TEST_F(RecoveryTest, LocksWaitOnlyForThoseWhoMayHaveSome) {
  auto recovered = [&](TestClient& c) {
    EXPECT_TRUE(c.mount());
    auto q = done();
    add_open(q, ino, 1, O_RDWR);
    EXPECT_TRUE(c.call<rpc::Method::kReclaim>(q));
  };
  world.kill_and_restart();
  recovered(b);
  EXPECT_TRUE(world.core().sessions->recovering()) << "a has not come back";
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kOk) << "but it never had a lock";
  EXPECT_EQ(b.lock(ino, 1, 6, kLockNone), Errc::kOk);

  recovered(a);
  ASSERT_EQ(a.lock(ino, 1, 5, kLockWrite), Errc::kOk);
  ASSERT_EQ(a.lock(ino, 1, 5, kLockNone), Errc::kOk);
  world.kill_and_restart();
  recovered(b);
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kRecovering) << "a had one a moment ago";
  recovered(a);
  EXPECT_FALSE(world.core().sessions->recovering_locks());

  auto marked = [&] {
    auto record = View(*world.core().store, Tier::kFull).get_record<schema::SessionRecordT>(Family::kSession, session_key(SessionId(a.session)));
    return record && *record && (*record)->locks;
  };
  EXPECT_TRUE(marked());
  EXPECT_TRUE(world.eventually([&] { return !marked(); })) << "a has had none for kLockIdle";
  world.kill_and_restart();
  recovered(b);
  EXPECT_EQ(b.lock(ino, 1, 6, kLockWrite), Errc::kOk);
}

TEST_F(RecoveryTest, OrphansWaitForTheWindow) {
  ASSERT_TRUE(b.close(ino, 1));
  ASSERT_TRUE(a.close(ino, 1));
  ASSERT_TRUE(a.open(ino, 2, O_RDONLY));
  ost->write(object(), 10);
  ASSERT_TRUE(b.unlink("f"));
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  EXPECT_EQ(b.stat(ino)->nlink, 0u) << "a may have it open: only a knows";
  ASSERT_TRUE(a.mount());
  auto q = done();
  add_open(q, ino, 2, O_RDONLY);
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(q)->refused.empty());
  EXPECT_EQ(a.stat(ino)->nlink, 0u);
  ASSERT_TRUE(a.close(ino, 2));
  EXPECT_TRUE(world.eventually([&] { return !ost->exists(object()); }));
  EXPECT_TRUE(world.eventually([&] { return a.stat(ino).error().code == Errc::kStale; }));
}

TEST_F(RecoveryTest, UnlinkInTheWindowKeepsWhatMayBeOpen) {
  ASSERT_TRUE(b.close(ino, 1));
  ASSERT_TRUE(a.close(ino, 1));
  ASSERT_TRUE(a.open(ino, 2, O_RDONLY));
  ost->write(object(), 10);
  world.kill_and_restart();
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  ASSERT_TRUE(b.unlink("f"));
  ASSERT_TRUE(a.mount());
  auto q = done();
  add_open(q, ino, 2, O_RDONLY);
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(q)->refused.empty());
  EXPECT_EQ(a.stat(ino)->nlink, 0u);
  EXPECT_TRUE(ost->exists(object()));
}

TEST_F(RecoveryTest, WhatIsGoneIsRefused) {
  world.kill_and_restart();
  ASSERT_TRUE(a.mount());
  auto q = done();
  add_open(q, ino, 1, O_RDWR);
  add_open(q, Ino(999'999), 2, O_RDONLY);
  add_lock(q, Ino(999'999), 2, 5, kLockRead);
  auto back = a.call<rpc::Method::kReclaim>(q);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->refused, (std::vector<uint64_t>{2, 2})) << "the file, and its lock with it";
  EXPECT_EQ(world.core().locks.total(), 0u);
}

TEST_F(RecoveryTest, AnInterruptedEvictionIsCompleted) {
  ost->write(object(), 55);
  SessionPtr session = world.core().sessions->find(SessionId(a.session));
  ASSERT_TRUE(*world.core().sessions->begin_evict(*session));
  session.reset();
  world.kill_and_restart();
  EXPECT_FALSE(a.mount()) << "the mark was on record";
  EXPECT_TRUE(world.eventually([&] { return ost->fenced().size() == 1; }));
  ASSERT_TRUE(b.mount());
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done()));
  EXPECT_TRUE(world.eventually([&] { return !world.core().sessions->recovering() && !world.core().opens.is_open(ino); }));
  EXPECT_EQ(b.stat(ino)->size, 55u);
}

TEST_F(RecoveryTest, ACleanStopKeepsSessionsToo) {
  world.stop_server(true);
  world.start_server();
  EXPECT_TRUE(world.core().store->was_clean());
  ASSERT_TRUE(a.mount());
  auto q = done();
  add_open(q, ino, 1, O_RDWR);
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(q)->refused.empty());
  auto more = a.create("g", 2);
  ASSERT_TRUE(more) << more.error().message();
  EXPECT_GT(more->attr->ino, ino.v);
}

TEST_F(RecoveryTest, AccessTimesAreTakenFromKeepalives) {
  const Nanos later = world.clock().real() + 100 * kSecond;
  wire::KeepaliveRequestT q;
  q.atimes.emplace_back(ino.v, later);
  q.atimes.emplace_back(424242, later);
  ASSERT_TRUE(a.call<rpc::Method::kKeepalive>(q));
  EXPECT_EQ(b.stat(ino)->atime, later);
  q.atimes[0] = wire::AtimeReport(ino.v, 5);
  ASSERT_TRUE(a.call<rpc::Method::kKeepalive>(q));
  EXPECT_EQ(b.stat(ino)->atime, later) << "never backwards";
}

}  // namespace
}  // namespace nacre::mds::testing
