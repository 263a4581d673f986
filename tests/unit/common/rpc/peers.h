// SPDX-License-Identifier: Apache-2.0
// Two peers joined by a connection in memory, driven by hand, without a handshake.
#pragma once
#include <gtest/gtest.h>

#include "common/rpc/connection.h"
#include "common/testing/memory_transport.h"
#include "tests/unit/common/runtime/hand.h"

namespace nacre::rpc {

template <class F>
Task<void> as_task(F f) {
  co_await f();
}
template <class R>
Errc code_of(const R& r) { return r ? Errc::kOk : r.error().code; }

struct PeersTest : ::testing::Test {
  explicit PeersTest(testing::MemoryNetworkOptions options = {}) : net(1, options), a(net.host("a")), b(net.host("b")) {}

  Loop& loop() { return hand.runtime.loop(0); }
  /// Runs the coroutine to its end, or until only waiting is left that lasts longer than an hour.
  template <class F>
  void go(F f) {
    loop().spawn(as_task(std::move(f)));
    hand.run();
  }
  /// `raw` is what the client end is when a test writes frames by itself.
  void join(Handler server_handler, Handler client_handler = nullptr, std::unique_ptr<Stream>* raw = nullptr) {
    auto acceptor = b->listen(loop(), "b:0", [this, server_handler](std::unique_ptr<Stream> s) { server = start_peer(loop(), std::move(s), {}, server_handler); });
    ASSERT_TRUE(acceptor);
    go([&]() -> Task<void> {
      auto s = co_await a->connect((*acceptor)->address(), kForever);
      EXPECT_TRUE(s);
      if (!s) co_return;
      if (raw) *raw = std::move(*s);
      else client = start_peer(loop(), std::move(*s), {}, client_handler);
    });
    ASSERT_TRUE(server);
  }
  void TearDown() override {
    if (client) client->close(Errc::kShutdown);
    if (server) server->close(Errc::kShutdown);
    hand.settle();
  }

  testing::Hand hand;
  testing::MemoryNetwork net;
  std::unique_ptr<Transport> a, b;
  PeerPtr client, server;
};

inline Bytes text(std::string_view s) { return Bytes(s.begin(), s.end()); }
inline Reply echo_of(const Request& r) { return Reply{Errc::kOk, {}, r.body, r.payload}; }
inline Task<Reply> echo(PeerPtr, Request request) { co_return echo_of(request); }

}  // namespace nacre::rpc
