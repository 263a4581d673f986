// SPDX-License-Identifier: Apache-2.0
// What a round trip and a large message cost over loopback. Run by hand: rpc_bench [seconds per figure].
// Both ends are runtimes of their own with one thread per CPU, as client and server are. Figures: docs/performance.md.
#include <sys/resource.h>

#include <cstdio>
#include <future>

#include "common/rpc/server.h"

namespace nacre::rpc {
namespace {

Nanos seconds_per_figure = kSecond;

double cpu_seconds() {
  rusage u;
  ::getrusage(RUSAGE_SELF, &u);
  auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  return s(u.ru_utime) + s(u.ru_stime);
}

template <class F>
Task<void> as_task(F f) {
  co_await f();
}

struct Bench {
  Bench(const char* name) {
    RuntimeOptions o;
    o.name = name;
    client = std::make_unique<Runtime>(o);
    servers = std::make_unique<Runtime>(o);
    client->start(), servers->start();
    client_net = tcp_transport(*client), server_net = tcp_transport(*servers);
    ServerOptions so;
    so.address = "127.0.0.1:0";
    server = *serve(*servers, *server_net, so, [](PeerPtr, Request r) -> Task<Reply> {
      // A body of one byte asks for the payload back to be left out (writes) or, with a zero, made (reads).
      Buffer payload;
      if (!r.body.empty() && r.body[0] == 'r') payload = Buffer::allocate(1 << 20);
      co_return Reply{Errc::kOk, {}, std::move(r.body), std::move(payload)};
    });
  }
  ~Bench() {
    server->stop();
    client->stop();
    servers->stop();
  }

  /// `depth` callers on loop `from` call a server on the CPU of loop `to` until time is up; prints the rate.
  void run(const char* what, size_t from, size_t to, int depth, Bytes body, size_t payload, size_t reply) {
    std::promise<void> done;
    client->loop(from).spawn(as_task([&]() -> Task<void> {
      ConnectOptions o;
      o.address = server->address();
      o.cpu = servers->cpu_of(to);
      auto peer = co_await connect(*client_net, o, nullptr);
      if (!peer) {
        std::printf("no connection: %s\n", peer.error().message().c_str());
        done.set_value();
        co_return;
      }
      const Nanos start = system_clock().boot();
      const double cpu = cpu_seconds();
      uint64_t calls = 0;
      auto caller = [&]() -> Task<int> {
        CallOptions co;
        if (payload) co.payload = Buffer::allocate(payload);
        if (payload) std::memset(co.payload.data(), 1, payload);
        if (reply) co.receive_into = Buffer::allocate(reply);
        while (system_clock().boot() - start < seconds_per_figure) {
          co.deadline = system_clock().boot() + 30 * kSecond;
          auto r = co_await (*peer)->call(Method::kGetattr, body, co);
          if (!r) co_return 1;
          ++calls;
        }
        co_return 0;
      };
      std::vector<Task<int>> callers;
      for (int i = 0; i < depth; ++i) callers.push_back(caller());
      for (int failed : co_await when_all(std::move(callers)))
        if (failed) std::printf("a call failed\n");
      const double s = static_cast<double>(system_clock().boot() - start) / 1e9, used = cpu_seconds() - cpu;
      const double n = static_cast<double>(calls), bytes = static_cast<double>(payload + reply) * n;
      std::printf("%-44s %8.1f us/call %9.0f calls/s %7.2f GB/s %6.1f us CPU/call\n", what, s * depth / n * 1e6, n / s, bytes / s / 1e9, used / n * 1e6);
      (*peer)->close(Errc::kShutdown);
      done.set_value();
    }));
    done.get_future().get();
  }

  std::unique_ptr<Runtime> client, servers;
  std::unique_ptr<Transport> client_net, server_net;
  std::unique_ptr<Server> server;
};

void runtime_costs() {
  RuntimeOptions o;
  o.loops = 1;
  Runtime rt(o);
  rt.start();
  std::promise<void> done;
  rt.loop(0).spawn(as_task([&]() -> Task<void> {
    constexpr int kN = 1'000'000;
    auto measure = [](const char* what, Nanos start) { std::printf("%-44s %8.0f ns\n", what, static_cast<double>(system_clock().boot() - start) / kN); };
    Nanos start = system_clock().boot();
    int left = 0;
    Signal all;
    auto nothing = [](int* l) -> Task<void> {
      --*l;
      co_return;
    };
    for (int i = 0; i < kN / 100; ++i) {
      for (int k = 0; k < 100; ++k) ++left, Loop::current()->spawn(nothing(&left));
      while (left) co_await yield_now();
    }
    measure("spawn of a coroutine", start);
    start = system_clock().boot();
    for (int i = 0; i < kN; ++i) {
      Signal s;
      Loop::current()->spawn([](Signal x) -> Task<void> {
        x.set();
        co_return;
      }(s));
      (void)co_await s.wait(start + 3600 * kSecond);
    }
    measure("spawn, set and wait with a deadline", start);
    done.set_value();
  }));
  done.get_future().get();
}

}  // namespace
}  // namespace nacre::rpc

int main(int argc, char** argv) {
  using namespace nacre;
  using namespace nacre::rpc;
  if (argc > 1) seconds_per_figure = static_cast<Nanos>(std::atof(argv[1]) * 1e9);
  runtime_costs();
  Bench b("bench");
  const size_t other = b.client->size() > 1 ? 1 : 0;
  b.run("64 B, same CPU, one at a time", 0, 0, 1, Bytes(64, 'x'), 0, 0);
  b.run("64 B, same CPU, 32 in flight", 0, 0, 32, Bytes(64, 'x'), 0, 0);
  b.run("64 B, other CPU, one at a time", 0, other, 1, Bytes(64, 'x'), 0, 0);
  b.run("64 B, other CPU, 32 in flight", 0, other, 32, Bytes(64, 'x'), 0, 0);
  b.run("1 MiB out, same CPU, one at a time", 0, 0, 1, Bytes(1, 'w'), 1 << 20, 0);
  b.run("1 MiB out, same CPU, 4 in flight", 0, 0, 4, Bytes(1, 'w'), 1 << 20, 0);
  b.run("1 MiB out, other CPU, one at a time", 0, other, 1, Bytes(1, 'w'), 1 << 20, 0);
  b.run("1 MiB out, other CPU, 4 in flight", 0, other, 4, Bytes(1, 'w'), 1 << 20, 0);
  b.run("1 MiB in, same CPU, one at a time", 0, 0, 1, Bytes(1, 'r'), 0, 1 << 20);
  b.run("1 MiB in, same CPU, 4 in flight", 0, 0, 4, Bytes(1, 'r'), 0, 1 << 20);
  b.run("1 MiB in, other CPU, 4 in flight", 0, other, 4, Bytes(1, 'r'), 0, 1 << 20);
  b.run("4 KiB out, same CPU, 16 in flight", 0, 0, 16, Bytes(1, 'w'), 4096, 0);
}
