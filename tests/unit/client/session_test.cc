// SPDX-License-Identifier: Apache-2.0
// The metadata client: exactly once, restarts, reclaim, eviction, interrupts, the soft limit, groups, atime.
#include "client/core/op.h"
#include "tests/unit/client/world.h"

#include <sys/stat.h>

namespace nacre::test {

class SessionTest : public World {};

TEST_F(SessionTest, ALostReplyIsAskedForAgainAndNothingIsDoneTwice) {
  fs();
  mds->inject(rpc::Method::kMknod, {Fault::kDropAfter});
  auto made = run(fs().mkdir(kRootIno, "d", 0755, 0, {}));
  ASSERT_OK(made);
  EXPECT_EQ(mds->served(rpc::Method::kMknod), 1);
  EXPECT_EQ(mds->received(rpc::Method::kMknod), 2);
  mds->inject(rpc::Method::kMknod, {Fault::kDropBefore}, 3);
  ASSERT_OK(run(fs().mkdir(kRootIno, "e", 0755, 0, {})));
  EXPECT_EQ(run(fs().mkdir(kRootIno, "e", 0755, 0, {})).error().code, Errc::kExist);
}

TEST_F(SessionTest, RetryableAnswersAreRetried) {
  fs();
  for (auto code : {Errc::kRecovering, Errc::kRetryLater, Errc::kShutdown}) mds->inject(rpc::Method::kMknod, {Fault::kError, code});
  ASSERT_OK(run(fs().mkdir(kRootIno, "d", 0755, 0, {})));
  EXPECT_EQ(mds->received(rpc::Method::kMknod), 4);
}

TEST_F(SessionTest, BothLoopsShareTheSession) {
  fs();
  ASSERT_OK(run(fs().mkdir(kRootIno, "a", 0755, 0, {}), 0));
  ASSERT_OK(run(fs().mkdir(kRootIno, "b", 0755, 0, {}), 1));
  EXPECT_EQ(mds->served(rpc::Method::kSessionOpen), 1);
  EXPECT_EQ(mds->served(rpc::Method::kSessionBind), 1);
}

TEST_F(SessionTest, ManyRequestsAtOnceShareFewSlots) {
  mds->slots = 8;
  fs();
  std::vector<std::future<Result<client::Attr>>> made;
  for (int i = 0; i < 200; ++i) made.push_back(start(fs().mkdir(kRootIno, "d" + std::to_string(i), 0755, 0, {}), static_cast<size_t>(i % 2)));
  for (auto& m : made) ASSERT_OK(m.get());
  EXPECT_EQ(mds->served(rpc::Method::kMknod), 200);
}

TEST_F(SessionTest, ARestartedServerGetsTheOpensBackBeforeAnythingElse) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("abc")));
  auto reader = run(fs().open(h->ino(), O_RDONLY, {}));
  ASSERT_OK(reader);
  restart(*mds);
  auto st = run(fs().getattr(h->ino(), {}));
  ASSERT_OK(st);
  EXPECT_EQ(st->size, 3u);
  auto got = mds->reclaimed_handles();
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, (std::vector<uint64_t>{h->number(), reader->handle->number()}));
  ASSERT_OK(write(h, 3, data("def")));
  ASSERT_OK(run(fs().release(h, 0)));
  ASSERT_OK(run(fs().release(reader->handle, 0)));
  EXPECT_EQ(mds->open_handles(), 0u);
}

TEST_F(SessionTest, AnOpenAnsweredBeforeARestartIsReclaimedAfterIt) {
  auto h = create("f");
  ASSERT_OK(run(fs().release(h, 0)));
  mds->inject(rpc::Method::kOpen, {Fault::kHoldReply});
  auto opening = start(fs().open(h->ino(), O_RDWR, {}));
  mds->wait_received(rpc::Method::kOpen, 1);
  restart(*mds);
  mds->release_held();
  auto opened = opening.get();
  ASSERT_OK(opened);
  EXPECT_EQ(mds->open_handles(), 1u);
  ASSERT_OK(write(opened->handle, 0, data("x")));
}

TEST_F(SessionTest, AnFsyncAfterTheServerLostChangesFailsOncePerHandle) {
  std::atomic<uint64_t> told{0};
  mds->alter = [&](const rpc::PeerPtr&, const rpc::Request& request, rpc::Reply& reply) {
    if (request.header.sequence != 0) reply.journal = 70 + request.header.sequence;
    if (request.header.method != static_cast<uint16_t>(rpc::Method::kSessionOpen)) return;
    auto q = decode<wire::SessionOpenRequestT>(request.body);
    auto r = decode<wire::SessionOpenReplyT>(reply.body);
    told = q->acked;
    r->lost = q->resume != 0;
    reply.body = encode(*r);
  };
  auto before = create("before");
  auto dir = *run(fs().opendir(kRootIno, O_RDONLY, {}));
  ASSERT_OK(run(fs().fsync(before, false, {})));
  restart(*mds);
  EXPECT_EQ(run(fs().fsync(before, false, {})).error().code, Errc::kIo);
  EXPECT_GE(told.load(), 71u) << "the highest number of an answer";
  ASSERT_OK(run(fs().fsync(before, false, {})));
  EXPECT_EQ(run(fs().fsyncdir(dir, {})).error().code, Errc::kIo) << "each handle hears of it";
  ASSERT_OK(run(fs().fsyncdir(dir, {})));
  auto after = create("after");
  ASSERT_OK(run(fs().fsync(after, false, {})));
  EXPECT_EQ(run(fs().sync_all({})).error().code, Errc::kIo);
  ASSERT_OK(run(fs().sync_all({})));
}

TEST_F(SessionTest, AnEvictedClientGoesOnWithANewSession) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("abc")));
  mds->evict();
  auto st = run(fs().getattr(h->ino(), {}));
  ASSERT_OK(st);
  EXPECT_TRUE(fs().status().evicted);
  auto w = write(h, 0, data("x"));
  ASSERT_FALSE(w.has_value());
  EXPECT_EQ(w.error().code, Errc::kStale);
  EXPECT_EQ(read(h, 0, 10).error().code, Errc::kStale);
  ASSERT_OK(run(fs().release(h, 0)));
  auto again = run(fs().open(h->ino(), O_RDWR, {}));
  ASSERT_OK(again);
  ASSERT_OK(write(again->handle, 3, data("def")));
}

TEST_F(SessionTest, AnInterruptEndsAWaitForADeadServerAndTheSlotIsDrivenToItsEnd) {
  fs();
  mds->inject(rpc::Method::kMknod, {Fault::kHold});
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto making = start(fs().mkdir(kRootIno, "d", 0755, 0, caller));
  mds->wait_received(rpc::Method::kMknod, 1);
  caller.cancel->fire();
  EXPECT_EQ(making.get().error().code, Errc::kIntr);
  mds->release_held();
  // the repeat in the background finds or makes the one execution
  while (mds->find("d") == Ino{}) std::this_thread::yield();
  ASSERT_OK(run(fs().mkdir(kRootIno, "e", 0755, 0, {})));
  EXPECT_EQ(mds->served(rpc::Method::kMknod), 2);
}

TEST_F(SessionTest, AnAbortEndsAWaitAtOnceWithItsError) {
  fs();
  mds->inject(rpc::Method::kMknod, {Fault::kHold});
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto making = start(fs().mkdir(kRootIno, "d", 0755, 0, caller));
  mds->wait_received(rpc::Method::kMknod, 1);
  auto waiting = fs().status().waiting;
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_TRUE(waiting[0].server.starts_with("mds ")) << waiting[0].server;
  const auto began = std::chrono::steady_clock::now();
  caller.cancel->fire(Error(Errc::kIo, "aborted"));
  EXPECT_EQ(making.get().error().code, Errc::kIo);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::nanoseconds(client::kInterruptGrace));
  mds->release_held();
}

TEST_F(SessionTest, AnInterruptDoesNotBreakAnAnswerThatComesInTime) {
  fs();
  mds->inject(rpc::Method::kMknod, {Fault::kHold});
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto making = start(fs().mkdir(kRootIno, "d", 0755, 0, caller));
  mds->wait_received(rpc::Method::kMknod, 1);
  caller.cancel->fire();
  mds->release_held();
  EXPECT_TRUE(making.get().has_value());
}

TEST_F(SessionTest, AnAbandonedOpenIsClosedWhenItsAnswerComes) {
  auto h = create("f");
  ASSERT_OK(run(fs().release(h, 0)));
  mds->inject(rpc::Method::kOpen, {Fault::kHold});
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto opening = start(fs().open(h->ino(), O_RDWR, caller));
  mds->wait_received(rpc::Method::kOpen, 1);
  caller.cancel->fire();
  EXPECT_EQ(opening.get().error().code, Errc::kIntr);
  mds->release_held();
  mds->wait_received(rpc::Method::kClose, 2);
  ASSERT_OK(run(fs().getattr(h->ino(), {})));
  EXPECT_EQ(mds->open_handles(), 0u);
}

TEST_F(SessionTest, AnInterruptEndsAWriteToADeadTarget) {
  auto h = create("f");
  for (auto& o : osts) o->stop();
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  auto writing = start(fs().write(h, 0, data("x"), {}, caller));
  caller.cancel->fire();
  EXPECT_EQ(writing.get().error().code, Errc::kIntr);
  ASSERT_OK(run(fs().release(h, 0)));
  EXPECT_TRUE(mds->closes().back().unsure);
}

TEST_F(SessionTest, SoftMountsGiveUpWithEio) {
  auto o = options();
  o.soft = 1 * kSecond;
  mount(o);
  auto h = create("f");
  for (auto& t : osts) t->stop();
  auto begun = std::chrono::steady_clock::now();
  auto w = write(h, 0, data("x"));
  ASSERT_FALSE(w.has_value());
  EXPECT_EQ(to_errno(w.error().code), EIO);
  EXPECT_NE(w.error().message().find("ost0"), std::string::npos) << w.error().message();
  mds->stop();
  auto st = run(fs().getattr(h->ino(), {}));
  EXPECT_EQ(to_errno(st.error().code), EIO);
  EXPECT_EQ(to_errno(run(fs().mkdir(kRootIno, "d", 0755, 0, {})).error().code), EIO);
  auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_GT(took, std::chrono::milliseconds(2500));
  EXPECT_LT(took, std::chrono::seconds(10));
  mds->start();
  for (auto& t : osts) t->start();
  while (!write(h, 0, data("x"))) std::this_thread::yield();
}

TEST_F(SessionTest, AnInactiveTargetEndsTheWaitWithEio) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("x")));
  osts[0]->stop();
  auto writing = start(fs().write(h, 0, data("y"), {}, {}));
  mds->set_ost_state(0, wire::kOstInactive);
  auto w = writing.get();
  ASSERT_FALSE(w.has_value());
  EXPECT_EQ(w.error().code, Errc::kOstInactive);
  mds->set_ost_state(0, wire::kOstActive);
  osts[0]->start();
  while (!write(h, 0, data("y"))) std::this_thread::yield();
}

TEST_F(SessionTest, HardMountsWaitForTheServer) {
  auto h = create("f");
  osts[0]->stop();
  mds->stop();
  auto writing = start(fs().write(h, 0, data("patience"), {}, {}));
  auto making = start(fs().mkdir(kRootIno, "d", 0755, 0, {}), 1);
  EXPECT_EQ(writing.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_GE(fs().status().in_flight, 2u);
  EXPECT_FALSE(fs().status().oldest_wait_text.empty());
  mds->start();
  osts[0]->start();
  ASSERT_OK(writing.get());
  ASSERT_OK(making.get());
  auto r = read(h, 0, 100);
  ASSERT_OK(r);
  EXPECT_EQ(*r, "patience");
}

TEST_F(SessionTest, GroupsAreReadOnlyWhenAskedFor) {
  mds->ask_for_groups = true;
  auto h = create("f");
  int asked = 0;
  client::Caller caller;
  caller.uid = caller.gid = 1000;
  caller.groups = [&asked]() -> Result<std::vector<uint32_t>> {
    ++asked;
    return std::vector<uint32_t>{7, 8, 9};
  };
  ASSERT_OK(run(fs().getattr(h->ino(), caller)));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(mds->last_groups(), (std::vector<uint32_t>{7, 8, 9}));
  caller.uid = 0;
  ASSERT_OK(run(fs().getattr(h->ino(), caller)));
  EXPECT_EQ(asked, 1);
}

TEST_F(SessionTest, ReadingMovesAtimeHereAtOnceAndAtTheServerSoon) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("abc")));
  ASSERT_OK(read(h, 0, 3));
  auto st = run(fs().getattr(h->ino(), {}));
  ASSERT_OK(st);
  EXPECT_GT(st->atime, system_clock().real() - 10 * kSecond);
  int before = mds->received(rpc::Method::kKeepalive);
  mds->wait_received(rpc::Method::kKeepalive, before + 2);
  EXPECT_EQ(mds->reported_atimes()[h->ino().v], st->atime);
  // within a day, and nothing changed since: it stays
  ASSERT_OK(read(h, 0, 3));
  EXPECT_EQ(run(fs().getattr(h->ino(), {}))->atime, st->atime);
}

TEST_F(SessionTest, NoAtimeHandlesLeaveItAlone) {
  auto h = create("f", O_RDWR | O_NOATIME);
  ASSERT_OK(write(h, 0, data("abc")));
  ASSERT_OK(read(h, 0, 3));
  EXPECT_EQ(run(fs().getattr(h->ino(), {}))->atime, 0);
}

TEST_F(SessionTest, StatfsNeverWaitsLong) {
  fs();
  ASSERT_OK(run(fs().statfs(kRootIno, {})));
  mds->stop();
  auto begun = std::chrono::steady_clock::now();
  auto s = run(fs().statfs(kRootIno, {}));
  ASSERT_OK(s);
  EXPECT_EQ(s->blocks, 1000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
  mds->start();
}

TEST_F(SessionTest, PrivilegesAreClearedBeforeTheWriteIsAcknowledged) {
  auto h = create("f");
  client::SetAttr mode;
  mode.valid = wire::kSetMode;
  mode.mode = 06755;
  ASSERT_OK(run(fs().setattr(h->ino(), mode, {})));
  client::WriteOptions kill;
  kill.kill_priv = true;
  ASSERT_OK(run(fs().write(h, 0, data("x"), kill, {})));
  EXPECT_EQ(run(fs().getattr(h->ino(), {}))->mode & S_ISUID, 0u);
}

TEST_F(SessionTest, RefusalsOfTheMountComeAtOnce) {
  auto wrong_key = options();
  wrong_key.key[0] ^= 1;
  auto made = client::Filesystem::make(client_rt, *client_transport, wrong_key);
  ASSERT_OK(made);
  EXPECT_EQ(run((*made)->connect()).error().code, Errc::kAuth);
  auto nowhere = options();
  nowhere.subdir = "/nowhere";
  auto other = client::Filesystem::make(client_rt, *client_transport, nowhere);
  ASSERT_OK(other);
  EXPECT_EQ(run((*other)->connect()).error().code, Errc::kNoEnt);
  run((*other)->disconnect());
  run((*made)->disconnect());
}

TEST_F(SessionTest, ReadOnlyMountsRefuseChanges) {
  auto o = options();
  o.read_only = true;
  mount(o);
  EXPECT_EQ(run(fs().mkdir(kRootIno, "d", 0755, 0, {})).error().code, Errc::kRoFs);
  EXPECT_EQ(run(fs().create(kRootIno, "f", 0644, 0, O_RDWR, {})).error().code, Errc::kRoFs);
  EXPECT_EQ(run(fs().unlink(kRootIno, "f", {})).error().code, Errc::kRoFs);
}

TEST_F(SessionTest, ToolsMayAskForAFewThingsOnly) {
  auto h = create("f");
  wire::GetattrRequestT request;
  request.ino = h->ino().v;
  request.cred = std::make_unique<wire::CredT>();  // a user can't pretend to be root: it is replaced
  client::Caller caller;
  caller.uid = 1000;
  auto reply = run(fs().call_method(static_cast<uint16_t>(rpc::Method::kGetattr), encode(request), caller));
  ASSERT_OK(reply);
  auto attr = decode<wire::AttrReplyT>(*reply);
  ASSERT_OK(attr);
  EXPECT_EQ(attr->attr->ino, h->ino().v);
  EXPECT_EQ(run(fs().call_method(static_cast<uint16_t>(rpc::Method::kClientEvict), {}, caller)).error().code, Errc::kPerm);
  EXPECT_EQ(run(fs().call_method(static_cast<uint16_t>(rpc::Method::kGetattr), Bytes(5, 9), caller)).error().code, Errc::kProtocol);
}

}  // namespace nacre::test
