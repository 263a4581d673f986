// SPDX-License-Identifier: Apache-2.0
// Real sockets and real threads: what the simulation can't show.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include <gtest/gtest.h>

#include "common/rpc/connection.h"
#include "common/rpc/server.h"

namespace nacre::rpc {
namespace {

template <class F>
Task<void> as_task(F f) {
  co_await f();
}
template <class R>
Errc code_of(const R& r) { return r ? Errc::kOk : r.error().code; }
RuntimeOptions named(const char* name, size_t loops = 0) {
  RuntimeOptions o;
  o.name = name, o.loops = loops;
  return o;
}
Task<Reply> echo(PeerPtr, Request r) { co_return Reply{Errc::kOk, {}, std::move(r.body), std::move(r.payload)}; }

struct TcpTest : ::testing::Test {
  TcpTest() : client(named("client")), servers(named("server")), client_net(tcp_transport(client)), server_net(tcp_transport(servers)) {
    client.start();
    servers.start();
  }
  void serve_with(Handler h) {
    ServerOptions o;
    o.address = "127.0.0.1:0";
    auto s = serve(servers, *server_net, o, std::move(h), [this](PeerPtr p) {
      std::lock_guard lock(mutex);
      accepted.push_back({p->loop().index(), p->info().cpu});
    });
    ASSERT_TRUE(s) << s.error().message();
    server = std::move(*s);
  }
  Task<PeerPtr> connected() {
    ConnectOptions o;
    o.address = server->address();
    auto p = co_await connect(*client_net, o, nullptr);
    EXPECT_TRUE(p) << p.error().message();
    co_return p ? *p : nullptr;
  }
  template <class F>
  void go(F f, size_t loop = 0) {
    std::promise<void> done;
    client.loop(loop).spawn(as_task([&]() -> Task<void> {
      co_await f();
      done.set_value();
    }));
    done.get_future().get();
  }
  void TearDown() override {
    if (server) server->stop();
    client.stop();
    servers.stop();
  }
  Runtime client, servers;
  std::unique_ptr<Transport> client_net, server_net;
  std::unique_ptr<Server> server;
  std::mutex mutex;
  std::vector<std::pair<size_t, int>> accepted;
};

TEST_F(TcpTest, ServedByTheLoopOfTheCallersCpu) {
  serve_with(echo);
  for (size_t i = 0; i < client.size(); ++i)
    go([&]() -> Task<void> {
      auto p = co_await connected();
      if (p) EXPECT_TRUE(co_await p->call(Method::kGetattr, Bytes{1}, {}));
      if (p) p->close(Errc::kShutdown);
    }, i);
  std::lock_guard lock(mutex);
  ASSERT_EQ(accepted.size(), client.size());
  for (auto [loop, cpu] : accepted) EXPECT_EQ(servers.cpu_of(loop), cpu);
}

TEST_F(TcpTest, PayloadsInBothDirectionsFromAllLoops) {
  serve_with(echo);
  std::vector<std::promise<void>> done(client.size());
  for (size_t i = 0; i < client.size(); ++i)
    client.loop(i).spawn(as_task([&, i]() -> Task<void> {
      auto p = co_await connected();
      if (!p) {
        done[i].set_value();
        co_return;
      }
      auto one = [](PeerPtr peer, size_t n) -> Task<int> {
        CallOptions o;
        o.payload = Buffer::allocate(n);
        for (size_t k = 0; k < n; k += 8) *reinterpret_cast<uint64_t*>(o.payload.data() + k) = n * 31 + k;
        o.receive_into = Buffer::allocate(n);
        Buffer sent = o.payload, got = o.receive_into;
        auto r = co_await peer->call(Method::kObjectWrite, Bytes(n % 1000), o);
        co_return r && r->body.size() == n % 1000 && r->payload.data() == got.data() && std::memcmp(sent.data(), got.data(), n) == 0 ? 1 : 0;
      };
      int good = 0;
      for (int round = 0; round < 5; ++round) {
        std::vector<Task<int>> calls;
        for (size_t n : {8, 4096, 64, 1 << 20, 100'000, 65'536, 8, 1 << 20, 300'000}) calls.push_back(one(p, n));
        for (int g : co_await when_all(std::move(calls))) good += g;
      }
      EXPECT_EQ(good, 45);
      p->close(Errc::kShutdown);
      done[i].set_value();
    }));
  for (auto& d : done) d.get_future().get();
}

TEST_F(TcpTest, ManyConnectionsComeAndGo) {
  serve_with([](PeerPtr, Request r) -> Task<Reply> {
    if (r.body[0] % 3 == 0) co_await run_blocking([] {});
    co_return Reply{Errc::kOk, {}, std::move(r.body), {}};
  });
  std::vector<std::promise<int>> done(8);
  for (size_t i = 0; i < done.size(); ++i)
    client.loop(i).spawn(as_task([&, i]() -> Task<void> {
      int good = 0;
      for (int round = 0; round < 10; ++round) {
        auto p = co_await connected();
        if (!p) break;
        auto one = [](PeerPtr peer, uint8_t k) -> Task<int> {
          auto r = co_await peer->call(Method::kGetattr, Bytes{k}, {});
          co_return r && r->body == Bytes{k} ? 1 : 0;
        };
        std::vector<Task<int>> calls;
        for (uint8_t k = 0; k < 20; ++k) calls.push_back(one(p, k));
        for (int g : co_await when_all(std::move(calls))) good += g;
        p->close(Errc::kShutdown);
      }
      done[i].set_value(good);
    }));
  for (auto& d : done) EXPECT_EQ(d.get_future().get(), 200);
}

TEST_F(TcpTest, SocketOptionsAreSet) {
  auto listener = server_net->listen(servers.loop(0), "127.0.0.1:0", [](std::unique_ptr<Stream>) {});
  ASSERT_TRUE(listener);
  go([&]() -> Task<void> {
    auto s = co_await client_net->connect((*listener)->address(), kForever);
    EXPECT_TRUE(s);
    if (s) EXPECT_TRUE((*s)->same_host());
  });
  // The options of a socket can't be asked through Stream: look at the process's own sockets.
  auto s = std::make_shared<std::unique_ptr<Stream>>();
  go([&]() -> Task<void> {
    auto r = co_await client_net->connect((*listener)->address(), kForever);
    if (r) *s = std::move(*r);
  });
  ASSERT_TRUE(*s);
  bool found = false;
  for (int fd = 3; fd < 256; ++fd) {
    int nodelay = 0, timeout = 0;
    char congestion[16] = {};
    socklen_t n = sizeof nodelay, m = sizeof congestion;
    sockaddr_in local{}, peer{};
    socklen_t l = sizeof local, q = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &q) != 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &l) != 0) continue;
    if (fmt::format("127.0.0.1:{}", ntohs(peer.sin_port)) != (*s)->remote()) continue;
    found = true;
    ::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &n);
    ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &m);
    ::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, &n);
    EXPECT_EQ(nodelay, 1);
    EXPECT_STREQ(congestion, "cubic");
    EXPECT_EQ(timeout, 30'000);
  }
  EXPECT_TRUE(found);
  go([&]() -> Task<void> {
    s->reset();
    co_return;
  });
}

struct TakenPort {
  int ends[2] = {::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)};  // localhost may be both
  uint16_t port = 0;
  TakenPort() {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof v4;
    EXPECT_EQ(::bind(ends[0], reinterpret_cast<sockaddr*>(&v4), n), 0);
    EXPECT_EQ(::getsockname(ends[0], reinterpret_cast<sockaddr*>(&v4), &n), 0);
    port = ntohs(v4.sin_port);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    v6.sin6_port = v4.sin_port;
    (void)::bind(ends[1], reinterpret_cast<sockaddr*>(&v6), sizeof v6);  // hosts without IPv6
  }
  ~TakenPort() {
    for (int end : ends) ::close(end);
  }
};

TEST_F(TcpTest, BadAddressesSayWhatToWrite) {
  auto listen = [&](const char* a) { return server_net->listen(servers.loop(0), a, [](std::unique_ptr<Stream>) {}); };
  for (const char* a : {"nonsense", ":7000", "127.0.0.1:", "203.0.113.7:1"}) {
    auto r = listen(a);
    ASSERT_FALSE(r) << a;
    EXPECT_EQ(r.error().code, Errc::kConfig) << a;
    EXPECT_NE(r.error().detail.find(a[0] == 'n' ? "HOST:PORT" : a), std::string::npos) << r.error().detail;
  }
  auto first = listen("127.0.0.1:0");
  ASSERT_TRUE(first);
  auto second = listen((*first)->address().c_str());
  EXPECT_EQ(code_of(second), Errc::kInUse);
  // A port that is taken and where nobody listens: a port that merely is free may be anybody's a moment later.
  const TakenPort silent;
  go([&]() -> Task<void> {
    EXPECT_EQ(code_of(co_await client_net->connect("nonsense", kForever)), Errc::kConfig);
    const std::string address = fmt::format("127.0.0.1:{}", silent.port);
    auto r = co_await client_net->connect(address, kForever);
    EXPECT_EQ(code_of(r), Errc::kUnavailable);
    EXPECT_NE(r.error().detail.find(address), std::string::npos) << r.error().detail;
    auto named = co_await client_net->connect(fmt::format("localhost:{}", silent.port), kForever);
    EXPECT_EQ(code_of(named), Errc::kUnavailable);
  });
}

TEST_F(TcpTest, StoppingARuntimeEndsItsConnections) {
  serve_with(echo);
  std::promise<Errc> ended;
  go([&]() -> Task<void> {
    auto p = co_await connected();
    if (!p) co_return;
    p->on_close([&](Error e) { ended.set_value(e.code); });
  });
  servers.stop();
  EXPECT_EQ(ended.get_future().get(), Errc::kDisconnected);
}

TEST_F(TcpTest, CallsInProgressEndWithTheRuntime) {
  std::promise<void> reached;
  std::once_flag once;
  serve_with([&](PeerPtr, Request r) -> Task<Reply> {
    std::call_once(once, [&] { reached.set_value(); });
    auto slept = co_await sleep_for(3600 * kSecond);
    EXPECT_FALSE(slept);
    co_return Reply{Errc::kOk, {}, std::move(r.body), {}};
  });
  std::promise<Errc> result;
  client.loop(0).spawn(as_task([&]() -> Task<void> {
    auto p = co_await connected();
    if (!p) co_return;
    result.set_value(code_of(co_await p->call(Method::kGetattr, {}, {})));
  }));
  reached.get_future().get();
  client.stop();
  const Errc code = result.get_future().get();
  EXPECT_TRUE(code == Errc::kShutdown || code == Errc::kDisconnected);
}

}  // namespace
}  // namespace nacre::rpc
