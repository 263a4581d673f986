// SPDX-License-Identifier: Apache-2.0
// Who may do what, exactly once, and what a session's end leaves behind. Storage targets are stand-ins.
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override { world.start_server(); }
  wire::MknodRequestT mkdir(std::string_view name) {
    wire::MknodRequestT q;
    q.parent = kRootIno.v;
    q.name = as_bytes(name);
    q.mode = 0040755;
    return q;
  }
  World world;
};

TEST_F(SessionTest, WithoutTheKeyThereIsNothing) {
  TestClient c(world);
  wire::Key wrong = world.key();
  wrong[0] ^= 1;
  auto refused = c.connect(wire::kRoleClient, wrong);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kAuth) << refused.error().message();
}

TEST_F(SessionTest, WithoutASessionThereIsNothing) {
  TestClient c(world);
  ASSERT_TRUE(c.connect());
  EXPECT_EQ(c.stat(kRootIno).error().code, Errc::kNoSession);
  EXPECT_EQ(c.call<rpc::Method::kMknod>(mkdir("d"), 0, 1).error().code, Errc::kNoSession);
  wire::SessionBindRequestT bind;
  bind.session = 12345;
  EXPECT_EQ(c.call<rpc::Method::kSessionBind>(bind).error().code, Errc::kNoSession);
}

TEST_F(SessionTest, RolesAreKeptApart) {
  TestClient client(world), tool(world), storage(world);
  ASSERT_TRUE(client.mount());
  EXPECT_EQ(client.call<rpc::Method::kMdsStatus>({}).error().code, Errc::kPerm);
  EXPECT_EQ(client.call<rpc::Method::kClientList>({}).error().code, Errc::kPerm);
  EXPECT_EQ(client.call<rpc::Method::kClientEvict>({}).error().code, Errc::kPerm);
  EXPECT_EQ(client.call<rpc::Method::kOstSetState>({}).error().code, Errc::kPerm);
  EXPECT_EQ(client.call<rpc::Method::kOstRegister>({}).error().code, Errc::kPerm);
  EXPECT_EQ(client.call<rpc::Method::kOstHeartbeat>({}).error().code, Errc::kPerm);

  ASSERT_TRUE(tool.connect(wire::kRoleAdmin));
  auto status = tool.call<rpc::Method::kMdsStatus>({});
  ASSERT_TRUE(status) << status.error().message();
  EXPECT_EQ(status->sessions, 1u);
  EXPECT_EQ(tool.call<rpc::Method::kMknod>(mkdir("d"), 0, 1).error().code, Errc::kPerm);
  EXPECT_EQ(tool.call<rpc::Method::kSessionOpen>({}).error().code, Errc::kPerm);
  EXPECT_TRUE(tool.call<rpc::Method::kStatfs>({}));
  auto list = tool.call<rpc::Method::kClientList>({});
  ASSERT_TRUE(list);
  ASSERT_EQ(list->clients.size(), 1u);
  EXPECT_EQ(list->clients[0]->mount, "/mnt");

  ASSERT_TRUE(storage.connect(wire::kRoleOss));
  EXPECT_EQ(storage.call<rpc::Method::kMdsStatus>({}).error().code, Errc::kPerm);
  EXPECT_EQ(storage.stat(kRootIno).error().code, Errc::kPerm);
  EXPECT_EQ(storage.call<rpc::Method::kOstRegister>({}).error().code, Errc::kInval) << "may register, but not like this";
}

TEST_F(SessionTest, NumbersThatTargetsHaveAreNotGivenOutAgain) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient client(world), storage(world);
  ASSERT_TRUE(client.mount());
  ASSERT_TRUE(storage.connect(wire::kRoleOss));
  auto next = [&](std::string_view name) { return client.once<rpc::Method::kMknod>(mkdir(name))->attr->ino; };
  const uint64_t first = next("a");
  wire::OstRegisterRequestT q;
  q.ost = 0;
  q.uuid.assign(16, 1);
  q.address = "127.0.0.1:1";
  q.max_ino = 1'000'000;
  EXPECT_EQ(storage.call<rpc::Method::kOstRegister>(q).error().code, Errc::kNotOurs) << "ost0 is another one";
  EXPECT_EQ(next("b"), first + 1) << "what it says is not believed";
  q.ost = 1;
  q.max_ino = kInoLimit;
  EXPECT_EQ(storage.call<rpc::Method::kOstRegister>(q).error().code, Errc::kCorrupt) << "another metadata target's number";
  q.max_ino = 1'000'000;
  ASSERT_TRUE(storage.call<rpc::Method::kOstRegister>(q));
  EXPECT_EQ(next("c"), 1'000'001u);
  q.max_ino = kInoLimit - 1;
  ASSERT_TRUE(storage.call<rpc::Method::kOstRegister>(q));
  EXPECT_EQ(client.once<rpc::Method::kMknod>(mkdir("d")).error().code, Errc::kNoSpc);
}

TEST_F(SessionTest, AClientThatBeginsAnewDoesNotWaitForItsOwnLease) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient dead(world), other(world);
  ASSERT_TRUE(dead.mount());
  ASSERT_TRUE(other.mount());
  auto made = dead.create("f", 1);
  ASSERT_TRUE(made);
  const Ino ino(made->attr->ino);
  ASSERT_EQ(dead.lock(ino, 1, 5, kLockWrite), Errc::kOk);
  ASSERT_TRUE(other.open(ino, 1, O_RDWR));
  ASSERT_EQ(other.lock(ino, 1, 6, kLockWrite), Errc::kAgain);
  const uint64_t old = dead.session;
  dead.session = 0;  // its process was killed, and another started in its place
  ASSERT_TRUE(dead.mount());
  EXPECT_NE(dead.session, old);
  EXPECT_TRUE(world.eventually([&] { return !world.core().sessions->find(SessionId(old)); }));
  EXPECT_EQ(other.lock(ino, 1, 6, kLockWrite), Errc::kOk);
}

TEST_F(SessionTest, MalformedBodiesAreRefused) {
  TestClient c(world);
  ASSERT_TRUE(c.mount());
  auto raw = [&](rpc::Method m, Bytes body) {
    auto send = [](rpc::PeerPtr p, rpc::Method method, Bytes b) -> Task<Errc> {
      auto r = co_await p->call(method, std::move(b), {});
      co_return r ? Errc::kOk : r.error().code;
    };
    return world.run(send(c.peer(), m, std::move(body)));
  };
  for (uint16_t m = 3; m < 100; ++m) {
    if (rpc::method_flags(m) == 0 || (rpc::method_flags(m) & rpc::kPush)) continue;
    const Errc got = raw(static_cast<rpc::Method>(m), Bytes(13, 0xff));
    EXPECT_NE(got, Errc::kOk) << rpc::method_name(m);
    if (rpc::Method(m) == rpc::Method::kSessionClose) ASSERT_TRUE(c.mount());
  }
}

TEST_F(SessionTest, ARepeatGetsTheFirstAnswer) {
  TestClient c(world);
  ASSERT_TRUE(c.mount());
  auto first = c.call<rpc::Method::kMknod>(mkdir("once"), 3, 1);
  ASSERT_TRUE(first) << first.error().message();
  auto again = c.call<rpc::Method::kMknod>(mkdir("once"), 3, 1);
  ASSERT_TRUE(again) << "a repeat is no second mkdir: " << again.error().message();
  EXPECT_EQ(again->attr->ino, first->attr->ino);
  c.disconnect();
  ASSERT_TRUE(c.mount()) << "the session goes on over a new connection";
  again = c.call<rpc::Method::kMknod>(mkdir("once"), 3, 1);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->attr->ino, first->attr->ino);
  EXPECT_EQ(c.call<rpc::Method::kMknod>(mkdir("once"), 3, 2).error().code, Errc::kExist) << "a new request is a new mkdir";
  EXPECT_EQ(c.call<rpc::Method::kMknod>(mkdir("other"), 3, 1).error().code, Errc::kProtocol) << "an old sequence";
  EXPECT_EQ(c.call<rpc::Method::kMknod>(mkdir("other"), 16, 1).error().code, Errc::kProtocol) << "no such slot";
}

TEST_F(SessionTest, TheAnswerSurvivesAKill) {
  TestClient c(world);
  ASSERT_TRUE(c.mount());
  auto first = c.call<rpc::Method::kMknod>(mkdir("once"), 3, 7);
  ASSERT_TRUE(first);
  world.kill_and_restart();
  ASSERT_TRUE(c.mount());
  EXPECT_TRUE(c.recovering);
  EXPECT_EQ(c.call<rpc::Method::kMknod>(mkdir("once"), 3, 7).error().code, Errc::kRecovering) << "first it gives back what it holds";
  wire::ReclaimRequestT done;
  done.done = true;
  ASSERT_TRUE(c.call<rpc::Method::kReclaim>(done));
  auto again = c.call<rpc::Method::kMknod>(mkdir("once"), 3, 7);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->attr->ino, first->attr->ino);
}

TEST_F(SessionTest, ReplayedCreateHasAFreshCapability) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient c(world);
  ASSERT_TRUE(c.mount());
  wire::CreateRequestT q;
  q.parent = kRootIno.v;
  q.name = as_bytes("f");
  q.mode = 0644;
  q.flags = O_CREAT | O_EXCL | O_WRONLY;
  q.handle = 5;
  auto first = c.call<rpc::Method::kCreate>(q, 0, 1);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE(first->cap);
  world.kill_and_restart();
  ASSERT_TRUE(c.mount());
  wire::ReclaimRequestT done;  // the client hasn't heard of its open, so it doesn't bring it back
  done.done = true;
  ASSERT_TRUE(c.call<rpc::Method::kReclaim>(done));
  auto again = c.call<rpc::Method::kCreate>(q, 0, 1);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_TRUE(again->created);
  ASSERT_TRUE(again->cap);
  EXPECT_GE(again->cap->expires, first->cap->expires);
  const ObjectId object{Ino(again->attr->ino), Generation(1), 0, 0};
  EXPECT_TRUE(wire::verify(wire::capability_key(world.key()), *again->cap, object, wire::kCapWrite, world.clock().real()));
  EXPECT_TRUE(world.core().opens.open_for_write(Ino(again->attr->ino))) << "the open is known again";
}

TEST_F(SessionTest, ReadOnlySessionsChangeNothing) {
  StandInOst ost(world, 0, [this] { return world.mds(); });  // without any a writer waits
  TestClient rw(world), ro(world);
  ASSERT_TRUE(rw.mount());
  ASSERT_TRUE(ro.mount(true));
  auto made = rw.create("f", 1);
  ASSERT_TRUE(made);
  EXPECT_EQ(ro.once<rpc::Method::kMknod>(mkdir("d")).error().code, Errc::kRoFs);
  EXPECT_EQ(ro.create("g", 1).error().code, Errc::kRoFs);
  EXPECT_EQ(ro.open(Ino(made->attr->ino), 1, O_WRONLY).error().code, Errc::kRoFs);
  EXPECT_TRUE(ro.open(Ino(made->attr->ino), 1, O_RDONLY));
}

TEST_F(SessionTest, SubdirectoriesAreFoundAtMount) {
  TestClient c(world);
  ASSERT_TRUE(c.mount());
  auto made = c.once<rpc::Method::kMknod>(mkdir("home"));
  ASSERT_TRUE(made);
  TestClient other(world);
  ASSERT_TRUE(other.connect());
  wire::SessionOpenRequestT q;
  q.client_uuid = other.uuid();
  q.subdir = "/nowhere";
  EXPECT_EQ(other.call<rpc::Method::kSessionOpen>(q).error().code, Errc::kNoEnt);
  EXPECT_EQ(world.core().sessions->size(), 1u) << "a failed mount leaves no session";
  q.subdir = "/home/";
  auto opened = other.call<rpc::Method::kSessionOpen>(q);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->root->ino, made->attr->ino);
}

TEST_F(SessionTest, AConnectionBelongsToOneSession) {
  TestClient a(world), b(world);
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(b.mount());
  wire::SessionBindRequestT bind;
  bind.session = b.session;
  EXPECT_EQ(a.call<rpc::Method::kSessionBind>(bind).error().code, Errc::kProtocol) << "it would get what b is told";
  bind.session = a.session;
  EXPECT_TRUE(a.call<rpc::Method::kSessionBind>(bind)) << "again the same";
  wire::SessionOpenRequestT open;
  open.client_uuid = a.uuid();
  EXPECT_EQ(a.call<rpc::Method::kSessionOpen>(open).error().code, Errc::kProtocol);
  EXPECT_EQ(world.core().sessions->size(), 2u);
}

TEST_F(SessionTest, GoodbyeLeavesNothing) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient a(world), b(world);
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(b.mount());
  auto made = a.create("f", 1);
  ASSERT_TRUE(made);
  const Ino ino(made->attr->ino);
  ASSERT_EQ(a.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  ASSERT_TRUE(b.open(ino, 1, O_RDWR));
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, true), Errc::kAgain);
  ost.write({ino, Generation(1), 0, 0}, 777);
  ASSERT_TRUE(a.call<rpc::Method::kSessionClose>({}));
  EXPECT_EQ(b.lock(ino, 1, 1, kLockWrite, true), Errc::kOk);
  EXPECT_EQ(a.stat(ino).error().code, Errc::kNoSession);
  ASSERT_TRUE(b.close(ino, 1));
  EXPECT_EQ(b.stat(ino)->size, 777u) << "settled by the last of both";
  EXPECT_EQ(world.core().sessions->size(), 1u);
  world.kill_and_restart();
  EXPECT_EQ(world.core().sessions->size(), 1u) << "its record is gone";
}

TEST_F(SessionTest, SilentSessionsAreEvictedAndFenced) {
  world.stop_server(true);
  world.settings().lease_term = 20'000;
  world.settings().lease_skew = 1'000;
  world.start_server();
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient quiet(world), busy(world);
  ASSERT_TRUE(quiet.mount());
  auto made = quiet.create("f", 1);
  ASSERT_TRUE(made) << made.error().message();
  const Ino ino(made->attr->ino);
  ASSERT_EQ(quiet.lock(ino, 1, 1, kLockWrite), Errc::kOk);
  ost.write({ino, Generation(1), 0, 0}, 4000);
  ASSERT_TRUE(busy.mount());
  ASSERT_TRUE(busy.open(ino, 1, O_RDWR));
  ASSERT_EQ(busy.lock(ino, 1, 1, kLockWrite, false, true, 99), Errc::kWouldBlock);
  for (int i = 0; i < 20; ++i) {
    world.pass(kSecond);
    ASSERT_TRUE(busy.call<rpc::Method::kKeepalive>({}));
  }
  EXPECT_EQ(busy.grants(), 0u) << "its term, and twice the skew, are not over";
  EXPECT_EQ(busy.next_grant(), 99u) << "the lock passes on";
  EXPECT_EQ(ost.fenced(), (std::vector<uint64_t>{quiet.session})) << "but not before the fence";
  EXPECT_EQ(quiet.stat(ino).error().code, Errc::kNoSession);
  EXPECT_EQ(busy.stat(ino)->size, 4000u);
  EXPECT_FALSE(quiet.mount()) << "an evicted session can't be resumed";
}

TEST_F(SessionTest, AdministratorsEvict) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient c(world), tool(world);
  ASSERT_TRUE(c.mount());
  auto made = c.create("f", 1);
  ASSERT_TRUE(made);
  ost.write({Ino(made->attr->ino), Generation(1), 0, 0}, 123);
  ASSERT_TRUE(tool.connect(wire::kRoleAdmin));
  wire::ClientEvictRequestT q;
  q.session = c.session;
  ASSERT_TRUE(tool.call<rpc::Method::kClientEvict>(q));
  EXPECT_EQ(c.stat(kRootIno).error().code, Errc::kNoSession);
  EXPECT_EQ(ost.fenced(), (std::vector<uint64_t>{q.session}));
  EXPECT_FALSE(world.core().opens.open_for_write(Ino(made->attr->ino)));
  EXPECT_EQ(tool.call<rpc::Method::kClientEvict>(q).error().code, Errc::kNoSession);
  TestClient other(world);
  ASSERT_TRUE(other.mount());
  EXPECT_EQ(other.stat(Ino(made->attr->ino))->size, 123u) << "settled from the objects";
}

}  // namespace
}  // namespace nacre::mds::testing
