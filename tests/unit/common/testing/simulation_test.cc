// SPDX-License-Identifier: Apache-2.0
// Thousands of exchanges over a network that delays, breaks and parts, without threads: the same seed gives the same
// run, and whatever the network does, a request that is retried is carried out and answered rightly.
#include <gtest/gtest.h>

#include "common/base/rng.h"
#include "common/rpc/server.h"
#include "common/testing/memory_transport.h"
#include "tests/unit/common/runtime/hand.h"

namespace nacre::rpc {
namespace {

struct Outcome {
  std::string trace;
  int answered = 0, wrong = 0;
  uint64_t handled = 0;
  testing::MemoryNetwork::Counters network;
  Nanos took = 0;
};

struct Simulation {
  explicit Simulation(uint64_t seed) : rng(seed), net(seed, options()), client_host(net.host("c")), server_host(net.host("s")) {}
  static testing::MemoryNetworkOptions options() {
    testing::MemoryNetworkOptions o;
    o.breaks_per_million = 4000;
    o.max_read = 2000;
    o.window = 20'000;
    return o;
  }

  Task<Reply> handle(Request r) {
    ++out.handled;
    const uint64_t pick = rng.below(10);
    if (pick < 3) (void)co_await sleep_for(static_cast<Nanos>(rng.below(5 * kMillisecond)));
    Bytes body = r.body;
    for (auto& b : body) b ^= 0x5a;
    co_return Reply{Errc::kOk, {}, std::move(body), std::move(r.payload)};
  }

  Task<void> worker(Channel& channel, int id, int requests) {
    Loop& loop = *Loop::current();
    for (int i = 0; i < requests; ++i) {
      Bytes body(8 + rng.below(200));
      for (size_t k = 0; k < body.size(); ++k) body[k] = static_cast<uint8_t>(static_cast<size_t>(id * 31 + i) + k);
      Buffer payload = rng.below(4) == 0 ? Buffer::allocate(1 + rng.below(60'000)) : Buffer();
      if (!payload.empty()) std::memset(payload.data(), id, payload.size());
      for (int attempt = 1;; ++attempt) {
        auto peer = co_await channel.get();
        if (!peer) co_return;
        CallOptions o;
        o.payload = payload;
        if (!payload.empty() && rng.below(2)) o.receive_into = Buffer::allocate(payload.size());
        o.deadline = loop.clock().boot() + 200 * kMillisecond;
        auto r = co_await (*peer)->call(Method::kObjectWrite, body, o);
        out.trace += fmt::format("{}:{}:{}:{}@{}\n", id, i, attempt, r ? "ok" : name_of(r.error().code), loop.clock().boot());
        if (!r) continue;
        ++out.answered;
        bool good = r->body.size() == body.size() && r->payload.size() == payload.size();
        for (size_t k = 0; good && k < body.size(); ++k) good = r->body[k] == (body[k] ^ 0x5a);
        for (size_t k = 0; good && k < payload.size(); k += 97) good = r->payload.data()[k] == static_cast<std::byte>(id);
        if (!good) ++out.wrong;
        break;
      }
    }
    --running;
  }

  Task<void> weather() {
    while (running > 0) {
      (void)co_await sleep_for(static_cast<Nanos>(rng.below(100 * kMillisecond)));
      const uint64_t pick = rng.below(3);
      if (pick == 0) net.break_between("c", "s");
      if (pick != 1) continue;
      net.set_partition("c", "s", true);
      (void)co_await sleep_for(static_cast<Nanos>(rng.below(600 * kMillisecond)));
      net.set_partition("c", "s", false);
    }
  }

  Outcome run(int requests) {
    ServerOptions so;
    so.address = "s:1";
    auto server = serve(hand.runtime, *server_host, so, [this](PeerPtr, Request r) { return handle(std::move(r)); });
    EXPECT_TRUE(server);
    const Nanos begin = hand.clock.boot();
    std::vector<std::unique_ptr<Channel>> channels;
    for (size_t loop = 0; loop < 2; ++loop) {
      Channel::Options co;
      co.addresses = {"s:1"};
      channels.push_back(std::make_unique<Channel>(*client_host, co, nullptr));
      for (int w = 0; w < 4; ++w) {
        ++running;
        hand.runtime.loop(loop).spawn(worker(*channels.back(), static_cast<int>(loop) * 10 + w, requests));
      }
    }
    hand.runtime.loop(0).spawn(weather());
    hand.run(100'000 * kSecond);
    EXPECT_EQ(running, 0);
    out.network = net.counters();
    out.took = hand.clock.boot() - begin;
    for (size_t loop = 0; loop < 2; ++loop) hand.runtime.loop(loop).post([&channels, loop] { channels[loop]->close(); });
    (*server)->stop();
    hand.run();
    return std::move(out);
  }

  SeededRng rng;
  testing::Hand hand{2};
  testing::MemoryNetwork net;
  std::unique_ptr<Transport> client_host, server_host;
  int running = 0;
  Outcome out;
};

TEST(Simulation, FaultsDelayButNeverFalsify) {
  uint64_t broken = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Outcome o = Simulation(seed).run(100);
    EXPECT_EQ(o.answered, 800) << "seed " << seed;
    EXPECT_EQ(o.wrong, 0) << "seed " << seed;
    EXPECT_GE(o.handled, 800u);
    broken += o.network.broken;
  }
  EXPECT_GT(broken, 100u);
}

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  Outcome a = Simulation(42).run(150), b = Simulation(42).run(150), c = Simulation(43).run(150);
  EXPECT_EQ(a.trace, b.trace);
  EXPECT_EQ(a.took, b.took);
  EXPECT_EQ(a.network.writes, b.network.writes);
  EXPECT_EQ(a.network.bytes, b.network.bytes);
  EXPECT_NE(a.trace, c.trace);
}

}  // namespace
}  // namespace nacre::rpc
