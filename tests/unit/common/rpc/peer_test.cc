// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/peer.h"

#include "common/rpc/peer_impl.h"
#include "tests/unit/common/rpc/peers.h"

namespace nacre::rpc {
namespace {

TEST(Methods, NamesAndFlags) {
  EXPECT_STREQ(method_name(20), "Lookup");
  EXPECT_STREQ(method_name(19), "unknown");
  EXPECT_STREQ(method_name(65535), "unknown");
  EXPECT_EQ(method_flags(static_cast<uint16_t>(Method::kMknod)), kOnce);
  EXPECT_EQ(method_flags(static_cast<uint16_t>(Method::kLockGranted)), kPush);
  EXPECT_EQ(method_flags(19), 0u);
}

TEST_F(PeersTest, HeaderBodyAndPayloadArrive) {
  std::optional<wire::FrameHeader> seen;
  join([&](PeerPtr, Request r) -> Task<Reply> {
    seen = r.header;
    co_return echo_of(r);
  });
  go([&]() -> Task<void> {
    CallOptions o;
    o.session = 77, o.slot = 3, o.sequence = 9, o.deadline = hand.clock.boot() + 1500 * kMicrosecond;
    o.payload = Buffer::copy_of(std::as_bytes(std::span("payload", 7)));
    auto r = co_await client->call(Method::kGetattr, text("body"), o);
    EXPECT_TRUE(r) << r.error().message();
    if (!r) co_return;
    EXPECT_EQ(r->body, text("body"));
    EXPECT_EQ(std::string(reinterpret_cast<char*>(r->payload.data()), r->payload.size()), "payload");
  });
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->method, 21);
  EXPECT_EQ(seen->session, 77u);
  EXPECT_EQ(seen->slot, 3);
  EXPECT_EQ(seen->sequence, 9u);
  EXPECT_EQ(seen->timeout_ms, 2u);  // rounded up
}

TEST_F(PeersTest, TypedCall) {
  join([](PeerPtr, Request r) -> Task<Reply> {
    auto m = decode<wire::GetattrRequestT>(r.body);
    EXPECT_TRUE(m);
    wire::AttrReplyT reply;
    reply.attr = std::make_unique<wire::AttrT>();
    reply.attr->ino = m->ino + 1;
    co_return ok(reply);
  });
  go([&]() -> Task<void> {
    wire::GetattrRequestT m;
    m.ino = 41;
    auto r = co_await call<Method::kGetattr>(client, m);
    EXPECT_TRUE(r);
    if (r) EXPECT_EQ(r->attr->ino, 42u);
  });
}

TEST_F(PeersTest, ErrorsCarryTheirSentence) {
  join([](PeerPtr, Request r) -> Task<Reply> { co_return fail(Error(r.body.empty() ? Errc::kNoEnt : Errc::kIo, r.body.empty() ? "no 'x' in 5" : std::string(511, 'a') + "äb\n")); });
  go([&]() -> Task<void> {
    auto r = co_await client->call(Method::kLookup, {}, {});
    EXPECT_EQ(code_of(r), Errc::kNoEnt);
    EXPECT_EQ(r.error().detail, "no 'x' in 5");
    auto longer = co_await client->call(Method::kLookup, text("x"), {});
    EXPECT_EQ(longer.error().detail, std::string(511, 'a'));  // not cut within a character
    auto back = co_await server->call(Method::kLockGranted, {}, {});
    EXPECT_EQ(code_of(back), Errc::kOpNotSupp);  // this end serves nothing
    auto unknown = co_await client->call(static_cast<Method>(19), {}, {});
    EXPECT_EQ(code_of(unknown), Errc::kOpNotSupp);
    EXPECT_NE(unknown.error().detail.find("method 19"), std::string::npos);
    auto hello = co_await client->call(Method::kHello, {}, {});
    EXPECT_EQ(code_of(hello), Errc::kProtocol);
    auto big = co_await client->call(Method::kLookup, Bytes(wire::kMaxBody + 1), {});
    EXPECT_EQ(code_of(big), Errc::kTooBig);
  });
}

TEST_F(PeersTest, ReplyOverTheLimitIsAnError) {
  join([](PeerPtr, Request) -> Task<Reply> { co_return Reply{Errc::kOk, {}, Bytes(wire::kMaxBody + 1), {}}; });
  go([&]() -> Task<void> { EXPECT_EQ(code_of(co_await client->call(Method::kReaddir, {}, {})), Errc::kTooBig); });
  EXPECT_FALSE(client->closed());
}

TEST_F(PeersTest, BothEndsCallEachOther) {
  join(
      [](PeerPtr peer, Request r) -> Task<Reply> {
        auto inner = co_await peer->call(Method::kLockGranted, std::move(r.body), {});
        EXPECT_TRUE(inner);
        co_return Reply{Errc::kOk, {}, inner->body, {}};
      },
      [](PeerPtr, Request r) -> Task<Reply> {
        r.body.push_back('!');
        co_return Reply{Errc::kOk, {}, r.body, {}};
      });
  go([&]() -> Task<void> {
    auto r = co_await client->call(Method::kLock, text("hi"), {});
    EXPECT_TRUE(r);
    if (r) EXPECT_EQ(r->body, text("hi!"));
  });
}

TEST_F(PeersTest, ManyInFlightAnswersOutOfOrder) {
  join([](PeerPtr, Request r) -> Task<Reply> {
    (void)co_await sleep_for((100 - r.body[0] % 100) * kMillisecond);
    co_return echo_of(r);
  });
  int good = 0;
  for (int i = 0; i < 1000; ++i)
    loop().spawn(as_task([&, i]() -> Task<void> {
      auto r = co_await client->call(Method::kGetattr, Bytes{static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)}, {});
      if (r && r->body == Bytes{static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)}) ++good;
    }));
  hand.run();
  EXPECT_EQ(good, 1000);
}

TEST_F(PeersTest, RequestsBeyondTheLimitAreRefused) {
  std::optional<Signal> gate;
  join([&](PeerPtr, Request r) -> Task<Reply> {
    co_await gate->wait_through();
    co_return echo_of(r);
  });
  go([&]() -> Task<void> {
    gate.emplace();
    co_return;
  });
  int good = 0, refused = 0;
  for (uint32_t i = 0; i < kMaxInFlight + 5; ++i)
    loop().spawn(as_task([&]() -> Task<void> {
      auto r = co_await client->call(Method::kGetattr, {}, {});
      if (r) ++good;
      else if (r.error().code == Errc::kRetryLater) ++refused;
    }));
  hand.run();
  EXPECT_EQ(refused, 5);
  gate->set();
  hand.run();
  EXPECT_EQ(good, static_cast<int>(kMaxInFlight));
}

TEST_F(PeersTest, LargePayloadsGoWhereTheyBelong) {
  join(echo);
  Buffer out = Buffer::allocate(1 << 20), into = Buffer::allocate(1 << 20);
  for (size_t i = 0; i < out.size(); ++i) out.data()[i] = static_cast<std::byte>(i * 7 + (i >> 12));
  go([&]() -> Task<void> {
    CallOptions o;
    o.payload = out, o.receive_into = into;
    auto r = co_await client->call(Method::kObjectRead, text("x"), o);
    EXPECT_TRUE(r);
    if (!r) co_return;
    EXPECT_EQ(r->payload.data(), into.data());
    EXPECT_EQ(r->payload.size(), out.size());
    EXPECT_EQ(0, std::memcmp(into.data(), out.data(), out.size()));
    CallOptions small;
    small.payload = out.slice(0, 5000), small.receive_into = Buffer::allocate(4096);
    auto r2 = co_await client->call(Method::kObjectRead, text("x"), small);
    EXPECT_TRUE(r2);
    if (!r2) co_return;
    EXPECT_NE(r2->payload.data(), small.receive_into.data());  // doesn't fit
    EXPECT_EQ(r2->payload.size(), 5000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(r2->payload.data()) % 4096, 0u);
  });
}

TEST_F(PeersTest, LargeBodies) {
  join(echo);
  go([&]() -> Task<void> {
    for (size_t n : {size_t{65'463}, size_t{65'464}, size_t{65'465}, size_t{200'000}, size_t{wire::kMaxBody}}) {
      Bytes body(n);
      for (size_t i = 0; i < n; ++i) body[i] = static_cast<uint8_t>(i * 13);
      auto r = co_await client->call(Method::kReaddir, body, {});
      EXPECT_TRUE(r && r->body == body) << n;
    }
  });
}

TEST_F(PeersTest, DeadlineAndCancel) {
  std::optional<Signal> gate;
  int handled = 0;
  join([&](PeerPtr, Request r) -> Task<Reply> {
    co_await gate->wait_through();
    ++handled;
    co_return echo_of(r);
  });
  go([&]() -> Task<void> {
    gate.emplace();
    CallOptions o;
    o.deadline = hand.clock.boot() + kSecond;
    const Nanos start = hand.clock.boot();
    EXPECT_EQ(code_of(co_await client->call(Method::kGetattr, {}, o)), Errc::kDeadline);
    EXPECT_EQ(hand.clock.boot() - start, kSecond);
    EXPECT_EQ(code_of(co_await client->call(Method::kGetattr, {}, o)), Errc::kDeadline);  // passed before it began
    CallOptions c;
    c.cancel = std::make_shared<Cancel>();
    Loop::current()->post([cancel = c.cancel] { cancel->fire(); });
    EXPECT_EQ(code_of(co_await client->call(Method::kGetattr, {}, c)), Errc::kIntr);
    EXPECT_EQ(code_of(co_await client->call(Method::kGetattr, {}, c)), Errc::kIntr);
  });
  EXPECT_EQ(handled, 0);
  gate->set();
  hand.run();
  EXPECT_EQ(handled, 1);  // the one that was sent, and its late reply finds nobody; the cancelled ones never left
  go([&]() -> Task<void> { EXPECT_TRUE(co_await client->call(Method::kGetattr, text("next"), {})); });
}

TEST_F(PeersTest, EndOfTheConnectionEndsAllCalls) {
  std::optional<Signal> gate;
  join([&](PeerPtr, Request r) -> Task<Reply> {
    co_await gate->wait_through();
    co_return echo_of(r);
  });
  std::vector<Errc> results, closings;
  client->on_close([&](Error e) { closings.push_back(e.code); });
  loop().spawn(as_task([&]() -> Task<void> {
    gate.emplace();
    co_return;
  }));
  for (int i = 0; i < 3; ++i)
    loop().spawn(as_task([&]() -> Task<void> { results.push_back(code_of(co_await client->call(Method::kGetattr, {}, {}))); }));
  hand.run();
  EXPECT_TRUE(results.empty());
  net.break_all();
  hand.run();
  EXPECT_EQ(results, (std::vector<Errc>(3, Errc::kDisconnected)));
  EXPECT_EQ(closings.size(), 1u);
  EXPECT_TRUE(client->closed());
  EXPECT_TRUE(server->closed());
  client->on_close([&](Error e) { closings.push_back(e.code); });
  hand.run();
  EXPECT_EQ(closings.size(), 2u);
  go([&]() -> Task<void> { EXPECT_EQ(code_of(co_await client->call(Method::kGetattr, {}, {})), Errc::kDisconnected); });
  gate->set();
  hand.run();
  std::weak_ptr<Peer> weak = client;
  client.reset();
  EXPECT_TRUE(weak.expired());
}

TEST_F(PeersTest, CloseSaysWhy) {
  join(echo);
  client->close(Error(Errc::kStale, "evicted"));
  go([&]() -> Task<void> {
    auto r = co_await client->call(Method::kGetattr, {}, {});
    EXPECT_EQ(code_of(r), Errc::kDisconnected);
    EXPECT_NE(r.error().detail.find("evicted"), std::string::npos);
  });
  EXPECT_TRUE(server->closed());
}

/// A tiny window, so that writes and reads of payloads are interrupted in the middle.
struct SlowPeersTest : PeersTest {
  SlowPeersTest() : PeersTest(options()) {}
  static testing::MemoryNetworkOptions options() {
    testing::MemoryNetworkOptions o;
    o.window = 20'000, o.max_read = 3000;
    return o;
  }
};

TEST_F(SlowPeersTest, ACancelledCallLetsGoOfItsBufferFirst) {
  // The reply's payload is under way when the call is cancelled: the call returns when nobody fills the buffer any more.
  join([](PeerPtr, Request) -> Task<Reply> { co_return Reply{Errc::kOk, {}, {}, Buffer::allocate(1 << 20)}; });
  Buffer into = Buffer::allocate(1 << 20);
  bool returned = false;
  CallOptions o;
  o.receive_into = into, o.cancel = std::make_shared<Cancel>();
  auto cancel = o.cancel;
  loop().spawn(as_task([&, o]() -> Task<void> {
    EXPECT_EQ(code_of(co_await client->call(Method::kObjectRead, {}, o)), Errc::kIntr);
    returned = true;
    EXPECT_EQ(into.use_count(), 3);  // this test's, o's and its copy: none of the peer's
  }));
  while (into.use_count() < 5) {  // the reader took its slice
    hand.settle();
    hand.clock.advance(hand.runtime.next_timer() - hand.clock.boot());
    hand.runtime.fire_timers();
    hand.runtime.run_ready();
  }
  cancel->fire();
  hand.run();
  EXPECT_TRUE(returned);
  EXPECT_FALSE(client->closed());
}

TEST_F(SlowPeersTest, AStuckPayloadClosesTheConnection) {
  join([](PeerPtr, Request) -> Task<Reply> { co_return Reply{Errc::kOk, {}, {}, Buffer::allocate(1 << 20)}; });
  // The first request is written in part and then nothing moves any more.
  net.set_partition("a", "b", true);
  CallOptions o;
  o.payload = Buffer::allocate(1 << 20), o.deadline = hand.clock.boot() + kSecond;
  std::vector<Errc> results;
  auto one = [&](CallOptions options) -> Task<void> { results.push_back(code_of(co_await client->call(Method::kObjectWrite, {}, options))); };
  loop().spawn(one(o));
  loop().spawn(one(o));
  hand.run(kSecond / 2);
  const Nanos before = hand.clock.boot();
  loop().spawn(one(o));  // stays in the queue: it can be dropped at once
  hand.run(3600 * kSecond);
  EXPECT_EQ(results, (std::vector<Errc>(3, Errc::kDeadline)));
  EXPECT_LE(hand.clock.boot() - before, 10 * kSecond);
  net.set_partition("a", "b", false);
}

TEST_F(SlowPeersTest, AReplyThatOvertakesItsRequestWaitsForTheWrite) {
  std::unique_ptr<Stream> raw;
  join(nullptr, nullptr, &raw);
  std::optional<Errc> result;
  Buffer payload = Buffer::allocate(1 << 20);
  loop().spawn(as_task([&]() -> Task<void> {
    CallOptions o;
    o.payload = payload;
    result = code_of(co_await server->call(Method::kObjectWrite, {}, o));
  }));
  hand.run(kSecond);
  go([&]() -> Task<void> {
    std::array<uint8_t, sizeof(wire::FrameHeader)> bytes;
    for (auto& b : bytes) EXPECT_TRUE(co_await raw->read_some(std::as_writable_bytes(std::span(&b, 1))));
    auto h = wire::parse_header(bytes);
    EXPECT_TRUE(h);
    if (!h) co_return;
    h->kind = wire::FrameKind::kReply;
    h->payload_size = 0;
    EXPECT_TRUE(co_await write_frame(*raw, *h, {}));
    (void)co_await sleep_for(kSecond);
    EXPECT_FALSE(result) << "the payload is still being sent";
    std::vector<std::byte> rest(1 << 16);
    for (size_t left = payload.size(); left > 0;) {
      auto n = co_await raw->read_some(rest);
      EXPECT_TRUE(n);
      if (!n) co_return;
      left -= *n;
    }
  });
  EXPECT_EQ(result, Errc::kOk);
  EXPECT_FALSE(server->closed());
  EXPECT_EQ(payload.use_count(), 1);
}

TEST_F(SlowPeersTest, TheWriteQueueIsBounded) {
  join(echo);
  net.set_partition("a", "b", true);
  int started = 0, ended = 0;
  Buffer payload = Buffer::allocate(1 << 20);
  for (int i = 0; i < 100; ++i)
    loop().spawn(as_task([&]() -> Task<void> {
      ++started;
      CallOptions o;
      o.payload = payload;
      auto r = co_await client->call(Method::kObjectWrite, {}, o);
      EXPECT_TRUE(r) << r.error().message();
      ++ended;
    }));
  hand.run(kSecond);
  EXPECT_EQ(started, 100);
  auto& impl = static_cast<PeerImpl&>(*client);
  EXPECT_LE(impl.queued_bytes(), kMaxQueuedBytes);
  EXPECT_GT(impl.queued_bytes(), kMaxQueuedBytes - 2 * payload.size());
  net.set_partition("a", "b", false);
  hand.run();
  EXPECT_EQ(ended, 100);
  EXPECT_EQ(impl.queued_bytes(), 0u);
}

}  // namespace
}  // namespace nacre::rpc
