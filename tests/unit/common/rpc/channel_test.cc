// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"
#include "tests/unit/common/rpc/peers.h"

namespace nacre::rpc {
namespace {

struct ChannelTest : ::testing::Test {
  ChannelTest() : net(1), client_host(net.host("c")), server_host(net.host("s")), other_host(net.host("t")) {}
  std::unique_ptr<Server> start(const std::string& address = "s:1") {
    ServerOptions o;
    o.address = address;
    auto s = serve(hand.runtime, address[0] == 's' ? *server_host : *other_host, o, echo, [this](PeerPtr) { ++accepted; });
    EXPECT_TRUE(s);
    return std::move(*s);
  }
  Channel::Options options(std::vector<std::string> addresses = {"s:1"}) {
    Channel::Options o;
    o.addresses = std::move(addresses);
    return o;
  }
  template <class F>
  void spawn(F f) { hand.runtime.loop(0).spawn(as_task(std::move(f))); }
  template <class F>
  void go(F f) {
    spawn(std::move(f));
    hand.run();
  }
  testing::Hand hand;
  testing::MemoryNetwork net;
  std::unique_ptr<Transport> client_host, server_host, other_host;
  int accepted = 0;
};

TEST_F(ChannelTest, CallersShareOneConnection) {
  auto server = start();
  Channel channel(*client_host, options(), nullptr);
  std::set<Peer*> seen;
  for (int i = 0; i < 5; ++i)
    spawn([&]() -> Task<void> {
      auto p = co_await channel.get();
      EXPECT_TRUE(p);
      if (p) seen.insert(p->get());
    });
  EXPECT_EQ(channel.peek(), nullptr);
  hand.run();
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_EQ(accepted, 1);
  EXPECT_NE(channel.peek(), nullptr);
  channel.close();
  hand.run();
  EXPECT_EQ(channel.peek(), nullptr);
  go([&]() -> Task<void> { EXPECT_EQ(code_of(co_await channel.get()), Errc::kShutdown); });
}

TEST_F(ChannelTest, WaitsForTheServerAndReconnects) {
  Channel channel(*client_host, options(), nullptr);
  std::vector<Nanos> times;
  const Nanos begin = hand.clock.boot();
  auto get = [&]() -> Task<void> {
    auto p = co_await channel.get();
    EXPECT_TRUE(p);
    times.push_back(hand.clock.boot() - begin);
  };
  spawn(get);
  hand.run(10 * kSecond);
  EXPECT_TRUE(times.empty());
  auto server = start();
  hand.run(2 * kSecond);
  ASSERT_EQ(times.size(), 1u);
  EXPECT_LE(times[0], 12 * kSecond);
  net.break_all();
  hand.settle();
  EXPECT_EQ(channel.peek(), nullptr);
  spawn(get);
  hand.run(2 * kSecond);
  EXPECT_EQ(times.size(), 2u);
  EXPECT_EQ(accepted, 2);
  server.reset();
  hand.settle();
  EXPECT_EQ(channel.peek(), nullptr);
  auto again = start();
  spawn(get);
  hand.run(2 * kSecond);
  EXPECT_EQ(times.size(), 3u);
}

TEST_F(ChannelTest, GivesUpAtTheDeadlineAndSaysWhy) {
  Channel channel(*client_host, options(), nullptr);
  go([&]() -> Task<void> {
    auto p = co_await channel.get(hand.clock.boot() + kSecond);
    EXPECT_EQ(code_of(p), Errc::kDeadline);
    EXPECT_NE(p.error().detail.find("s:1"), std::string::npos) << p.error().detail;
    auto cancel = std::make_shared<Cancel>();
    Loop::current()->post([cancel] { cancel->fire(); });
    EXPECT_EQ(code_of(co_await channel.get(kForever, cancel)), Errc::kIntr);
  });
  EXPECT_EQ(hand.runtime.next_timer(), -1);  // nobody waits, nobody tries
}

TEST_F(ChannelTest, TriesTheOtherAddress) {
  auto server = start("t:1");
  Channel channel(*client_host, options({"s:1", "t:1"}), nullptr);
  go([&]() -> Task<void> {
    auto p = co_await channel.get(hand.clock.boot() + 10 * kMillisecond);
    EXPECT_TRUE(p) << p.error().message();
  });
}

TEST_F(ChannelTest, BindsBeforeAnybodyGetsThePeer) {
  auto server = start();
  int binds = 0;
  auto o = options();
  o.on_connected = [&](PeerPtr p) -> Task<Result<void>> {
    auto r = co_await p->call(Method::kSessionBind, {}, {});
    EXPECT_TRUE(r);
    if (++binds < 3) co_return Err(Errc::kNoSession, "not yet");
    co_return Result<void>{};
  };
  Channel channel(*client_host, o, nullptr);
  go([&]() -> Task<void> {
    EXPECT_TRUE(co_await channel.get());
    EXPECT_EQ(binds, 3);
  });
  EXPECT_EQ(accepted, 3);
}

TEST_F(ChannelTest, AWrongKeyIsNoReasonToWait) {
  auto server = start();
  auto o = options();
  o.connect.key[0] = 1;
  Channel channel(*client_host, o, nullptr);
  go([&]() -> Task<void> { EXPECT_EQ(code_of(co_await channel.get()), Errc::kAuth); });
}

TEST_F(ChannelTest, ClosingWakesThoseWhoWait) {
  Channel channel(*client_host, options(), nullptr);
  std::optional<Errc> got;
  spawn([&]() -> Task<void> { got = code_of(co_await channel.get()); });
  hand.run(kSecond);
  EXPECT_FALSE(got);
  channel.close();
  hand.run();
  EXPECT_EQ(got, Errc::kShutdown);
}

}  // namespace
}  // namespace nacre::rpc
