// SPDX-License-Identifier: Apache-2.0
// What a peer does with bytes that are no frames, or the wrong ones: it closes the connection and touches nothing.
#include "common/base/rng.h"
#include "tests/unit/common/rpc/peers.h"

namespace nacre::rpc {
namespace {

struct MalformedTest : PeersTest {
  void SetUp() override {
    join(
        [this](PeerPtr, Request r) -> Task<Reply> {
          ++handled;
          co_return echo_of(r);
        },
        nullptr, &raw);
  }
  wire::FrameHeader request(uint16_t method = 21) {
    wire::FrameHeader h;
    h.method = method;
    h.request = 5;
    return h;
  }
  void send(std::span<const std::byte> bytes) {
    go([&]() -> Task<void> {
      std::vector<std::span<const std::byte>> parts{bytes};
      (void)co_await raw->write(std::move(parts));
    });
  }
  void send(wire::FrameHeader h, const Bytes& body, size_t cut = SIZE_MAX) {
    h.body_size = static_cast<uint32_t>(body.size());
    wire::seal(h, body);
    std::vector<std::byte> all(sizeof h + body.size());
    std::memcpy(all.data(), &h, sizeof h);
    if (!body.empty()) std::memcpy(all.data() + sizeof h, body.data(), body.size());
    send(std::span(all).first(std::min(cut, all.size())));
  }
  int handled = 0;
  std::unique_ptr<Stream> raw;
};

TEST_F(MalformedTest, GoodFrameIsServed) {
  send(request(), text("x"));
  EXPECT_EQ(handled, 1);
  EXPECT_FALSE(server->closed());
  go([&]() -> Task<void> {
    auto f = co_await read_frame(*raw);
    EXPECT_TRUE(f);
    if (f) EXPECT_EQ(f->header.request, 5u);
  });
}

TEST_F(MalformedTest, Garbage) {
  std::vector<std::byte> junk(200, std::byte{'G'});
  send(junk);
  EXPECT_TRUE(server->closed());
}

TEST_F(MalformedTest, DamagedBody) {
  wire::FrameHeader h = request();
  const Bytes body = text("hello");
  h.body_size = 5;
  wire::seal(h, body);
  std::vector<std::byte> all(sizeof h + 5);
  std::memcpy(all.data(), &h, sizeof h);
  std::memcpy(all.data() + sizeof h, "jello", 5);
  send(all);
  EXPECT_TRUE(server->closed());
  EXPECT_EQ(handled, 0);
}

TEST_F(MalformedTest, TooLarge) {
  wire::FrameHeader h = request();
  h.payload_size = wire::kMaxPayload + 1;
  send(h, {});
  EXPECT_TRUE(server->closed());
}

TEST_F(MalformedTest, TruncatedFrame) {
  send(request(), text("0123456789"), sizeof(wire::FrameHeader) + 4);
  EXPECT_FALSE(server->closed());  // the rest may still come
  raw->close();
  hand.run();
  EXPECT_TRUE(server->closed());
  EXPECT_EQ(handled, 0);
}

TEST_F(MalformedTest, ReplyNobodyAskedFor) {
  wire::FrameHeader h = request();
  h.kind = wire::FrameKind::kReply;
  h.request = 0xffffffff;
  send(h, {});
  EXPECT_FALSE(server->closed());  // could be the late reply to a call that was given up
}

TEST_F(MalformedTest, ReplyOfAnotherMethod) {
  Errc result = Errc::kOk;
  loop().spawn(as_task([&]() -> Task<void> { result = code_of(co_await server->call(Method::kLockGranted, {}, {})); }));
  std::optional<Frame> asked;
  go([&]() -> Task<void> {
    auto f = co_await read_frame(*raw);
    if (f) asked = *f;
  });
  ASSERT_TRUE(asked);
  wire::FrameHeader h = asked->header;
  h.kind = wire::FrameKind::kReply;
  h.method = 21;
  send(h, {});
  EXPECT_TRUE(server->closed());
  EXPECT_EQ(result, Errc::kDisconnected);
}

TEST_F(MalformedTest, UnknownStatusBecomesAnError) {
  std::optional<Error> result;
  loop().spawn(as_task([&]() -> Task<void> {
    auto r = co_await server->call(Method::kLockGranted, {}, {});
    if (!r) result = r.error();
  }));
  go([&]() -> Task<void> {
    auto f = co_await read_frame(*raw);
    if (!f) co_return;
    wire::FrameHeader h = f->header;
    h.kind = wire::FrameKind::kReply;
    h.status = 60'000;
    (void)co_await write_frame(*raw, h, text("odd\x01\n"));
  });
  ASSERT_TRUE(result);
  EXPECT_EQ(result->code, Errc::kProtocol);
  EXPECT_EQ(result->detail, "odd??");
}

TEST_F(MalformedTest, RandomDamageNeverReachesAHandlerWrongly) {
  SeededRng rng(11);
  for (int round = 0; round < 300; ++round) {
    if (!server || server->closed()) {
      raw.reset();
      server.reset();
      SetUp();
    }
    wire::FrameHeader h = request();
    Bytes body(rng.below(300));
    h.body_size = static_cast<uint32_t>(body.size());
    wire::seal(h, body);
    std::vector<std::byte> all(sizeof h + body.size());
    std::memcpy(all.data(), &h, sizeof h);
    if (!body.empty()) std::memcpy(all.data() + sizeof h, body.data(), body.size());
    const int before = handled;
    const uint64_t bit = rng.below(all.size() * 8);
    all[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    send(all);
    ASSERT_EQ(handled, before);
    ASSERT_TRUE(server->closed());
  }
}

}  // namespace
}  // namespace nacre::rpc
