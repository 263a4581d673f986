// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/handshake.h"

#include "common/wire/bits.h"
#include "tests/unit/common/rpc/peers.h"

namespace nacre::rpc {
namespace {

struct HandshakeTest : ::testing::Test {
  HandshakeTest() : net(1), client_host(net.host("c")), server_host(net.host("s")) {
    options.address = "s:1";
    options.key[0] = 7;
    options.cluster_id[0] = 9;
    options.incarnation = 123;
  }
  void start() {
    auto s = serve(hand.runtime, *server_host, options, echo, [this](PeerPtr p) { peers.push_back(p); });
    ASSERT_TRUE(s) << s.error().message();
    server = std::move(*s);
  }
  ConnectOptions connect_options() {
    ConnectOptions o;
    o.address = "s:1", o.key = options.key, o.cluster_id = options.cluster_id, o.host = "node7", o.role = wire::kRoleOss;
    return o;
  }
  template <class F>
  void go(F f) {
    hand.runtime.loop(0).spawn(as_task(std::move(f)));
    hand.run();
  }
  Result<PeerPtr> try_connect(ConnectOptions o) {
    Result<PeerPtr> out = Err(Errc::kIo, "not run to its end");
    go([&]() -> Task<void> { out = co_await connect(*client_host, o, nullptr); });
    return out;
  }
  testing::Hand hand{2};
  testing::MemoryNetwork net;
  std::unique_ptr<Transport> client_host, server_host;
  ServerOptions options;
  std::unique_ptr<Server> server;
  std::vector<PeerPtr> peers;
};

TEST_F(HandshakeTest, BothEndsKnowEachOther) {
  start();
  auto peer = try_connect(connect_options());
  ASSERT_TRUE(peer) << peer.error().message();
  EXPECT_EQ((*peer)->info().incarnation, 123u);
  EXPECT_EQ((*peer)->info().server_time / kSecond, hand.clock.real() / kSecond);
  EXPECT_EQ((*peer)->info().address, "s:1");
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0]->info().role, wire::kRoleOss);
  EXPECT_EQ(peers[0]->info().host, "node7");
  EXPECT_TRUE(peers[0]->info().trusted);
  EXPECT_EQ(peers[0]->info().uid, 0u);
  go([&]() -> Task<void> { EXPECT_TRUE(co_await (*peer)->call(Method::kGetattr, text("x"), {})); });
  server->stop();
  hand.run();
  EXPECT_TRUE((*peer)->closed());
}

TEST_F(HandshakeTest, WrongKeyIsToldToBoth) {
  start();
  ConnectOptions o = connect_options();
  o.key[5] ^= 1;
  auto r = try_connect(o);
  ASSERT_EQ(code_of(r), Errc::kAuth);
  EXPECT_NE(r.error().detail.find("key"), std::string::npos);
  EXPECT_TRUE(peers.empty());
}

TEST_F(HandshakeTest, AnotherCluster) {
  start();
  ConnectOptions o = connect_options();
  o.cluster_id[3] = 1;
  auto r = try_connect(o);
  ASSERT_EQ(code_of(r), Errc::kNotOurs);
  EXPECT_NE(r.error().detail.find("09000000-0000"), std::string::npos) << r.error().detail;
}

TEST_F(HandshakeTest, NobodyThere) {
  auto r = try_connect(connect_options());
  EXPECT_EQ(code_of(r), Errc::kUnavailable);
  net.set_partition("c", "s", true);
  ConnectOptions o = connect_options();
  o.deadline = hand.clock.boot() + kSecond;
  EXPECT_EQ(code_of(try_connect(o)), Errc::kDeadline);
}

TEST_F(HandshakeTest, TooManyConnections) {
  options.max_connections = 2;
  start();
  auto one = try_connect(connect_options()), two = try_connect(connect_options()), three = try_connect(connect_options());
  ASSERT_TRUE(one && two);
  ASSERT_EQ(code_of(three), Errc::kRetryLater);
  EXPECT_NE(three.error().detail.find("maximum of 2"), std::string::npos);
  (*one)->close(Errc::kShutdown);
  hand.run();
  auto four = try_connect(connect_options());
  EXPECT_TRUE(four);
}

TEST_F(HandshakeTest, ASilentCallerIsDropped) {
  start();
  std::unique_ptr<Stream> raw;
  go([&]() -> Task<void> {
    auto s = co_await client_host->connect("s:1", kForever);
    EXPECT_TRUE(s);
    if (!s) co_return;
    const Nanos start = hand.clock.boot();
    std::byte b;
    EXPECT_EQ(code_of(co_await (*s)->read_some(std::span(&b, 1))), Errc::kDisconnected);
    EXPECT_GE(hand.clock.boot() - start, 10 * kSecond - kMillisecond);
    EXPECT_LE(hand.clock.boot() - start, 11 * kSecond);
  });
}

/// What the server answers to one frame on a fresh connection.
struct RawHandshakeTest : HandshakeTest {
  Errc first_answer(Method method, Bytes body, bool after_hello = false) {
    Errc out = Errc::kOk;
    go([&]() -> Task<void> {
      auto s = co_await client_host->connect("s:1", kForever);
      if (!s) co_return;
      wire::FrameHeader h;
      h.request = 1;
      if (after_hello) {
        h.method = 1;
        (void)co_await write_frame(**s, h, hello());
        EXPECT_TRUE(co_await read_frame(**s));
      }
      h.method = static_cast<uint16_t>(method);
      (void)co_await write_frame(**s, h, std::move(body));
      auto f = co_await read_frame(**s);
      EXPECT_TRUE(f) << f.error().message();
      if (f) out = from_wire(f->header.status);
      std::byte b;
      auto end = co_await (*s)->read_some(std::span(&b, 1));
      if (out != Errc::kOk) EXPECT_EQ(code_of(end), Errc::kDisconnected);  // one reply, then the end
    });
    return out;
  }
  Bytes hello(std::function<void(wire::HelloRequestT&)> change = nullptr) {
    wire::HelloRequestT h;
    h.cluster_id.assign(options.cluster_id.begin(), options.cluster_id.end());
    h.protocol_min = wire::kProtocolMin, h.protocol_max = wire::kProtocolMax;
    h.nonce.assign(kNonceSize, 1);
    if (change) change(h);
    return encode(h);
  }
};

TEST_F(RawHandshakeTest, NothingIsServedBeforeAuth) {
  start();
  EXPECT_EQ(first_answer(Method::kGetattr, {}), Errc::kAuth);
  EXPECT_EQ(first_answer(Method::kAuth, {}), Errc::kAuth);
  EXPECT_EQ(first_answer(static_cast<Method>(999), {}), Errc::kAuth);
  EXPECT_EQ(first_answer(Method::kGetattr, {}, true), Errc::kAuth);
  EXPECT_EQ(first_answer(Method::kHello, text("no flatbuffer")), Errc::kProtocol);
  EXPECT_EQ(first_answer(Method::kHello, hello([](auto& h) { h.nonce.resize(8); })), Errc::kProtocol);
  EXPECT_EQ(first_answer(Method::kHello, hello([](auto& h) { h.protocol_min = 7, h.protocol_max = 9; })), Errc::kVersion);
  EXPECT_EQ(first_answer(Method::kHello, hello([](auto& h) { h.cluster_id.clear(); })), Errc::kNotOurs);
  wire::AuthRequestT auth;
  EXPECT_EQ(first_answer(Method::kAuth, encode(auth), true), Errc::kAuth);
  auth.mac.assign(32, 0);
  EXPECT_EQ(first_answer(Method::kAuth, encode(auth), true), Errc::kAuth);
  auth.munge = "MUNGE:AwQDAAC:";
  EXPECT_EQ(first_answer(Method::kAuth, encode(auth), true), Errc::kAuth);
  EXPECT_TRUE(peers.empty());
}

TEST_F(RawHandshakeTest, LargeMessagesAreNotReadBeforeAuth) {
  start();
  go([&]() -> Task<void> {
    auto s = co_await client_host->connect("s:1", kForever);
    EXPECT_TRUE(s);
    if (!s) co_return;
    wire::FrameHeader h;
    h.method = 1;
    (void)co_await write_frame(**s, h, Bytes(kMaxHandshakeBody + 1));
    EXPECT_EQ(code_of(co_await read_frame(**s)), Errc::kDisconnected);
  });
}

TEST_F(HandshakeTest, AServerWithoutTheKeyIsNotBelieved) {
  // It answers HELLO with the right cluster id, as anybody could who has seen one.
  auto acceptor = server_host->listen(hand.runtime.loop(0), "s:1", [&](std::unique_ptr<Stream> stream) {
    auto shared = std::make_shared<std::unique_ptr<Stream>>(std::move(stream));
    hand.runtime.loop(0).spawn(as_task([this, shared]() -> Task<void> {
      ServerIdentity me;
      me.cluster_id = options.cluster_id;
      (void)co_await accept_handshake(**shared, me, 0, "");
    }));
  });
  ASSERT_TRUE(acceptor);
  auto r = try_connect(connect_options());
  ASSERT_EQ(code_of(r), Errc::kAuth);
  EXPECT_NE(r.error().detail.find("doesn't hold"), std::string::npos);
}

TEST_F(HandshakeTest, ASilentServerIsGivenUpAtTheDeadline) {
  std::vector<std::unique_ptr<Stream>> kept;
  auto acceptor = server_host->listen(hand.runtime.loop(0), "s:1", [&](std::unique_ptr<Stream> stream) { kept.push_back(std::move(stream)); });
  ConnectOptions o = connect_options();
  o.deadline = hand.clock.boot() + 3 * kSecond;
  EXPECT_EQ(code_of(try_connect(o)), Errc::kDeadline);
}

TEST_F(HandshakeTest, ConnectionsOfOtherHostsAreSpread) {
  start();
  std::vector<PeerPtr> mine;
  std::map<size_t, int> loops;
  for (int i = 0; i < 6; ++i) {
    auto p = try_connect(connect_options());
    ASSERT_TRUE(p);
    mine.push_back(*p);
  }
  for (auto& p : peers) ++loops[p->loop().index()];
  EXPECT_EQ(loops, (std::map<size_t, int>{{0, 3}, {1, 3}}));
  for (auto& p : mine) go([&]() -> Task<void> { EXPECT_TRUE(co_await p->call(Method::kGetattr, text("x"), {})); });
}

}  // namespace
}  // namespace nacre::rpc
