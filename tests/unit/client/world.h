// SPDX-License-Identifier: Apache-2.0
// A client core with stand-in servers: three storage targets and a metadata server on loopback, a client with two loops.
#pragma once
#include <gtest/gtest.h>

#include <fcntl.h>

#include <future>

#include "client/core/filesystem.h"
#include "common/base/rng.h"
#include "tests/unit/client/stand_in.h"

namespace nacre::test {

class World : public ::testing::Test {
 protected:
  World() {
    servers.start();
    client_rt.start();
    for (uint32_t i = 0; i < 3; ++i) {
      osts.push_back(std::make_unique<StandInOst>(servers, *server_transport, i));
      osts.back()->start();
    }
    mds = std::make_unique<StandInMds>(servers, *server_transport, std::vector<StandInOst*>{osts[0].get(), osts[1].get(), osts[2].get()});
    mds->start();
  }
  ~World() override {
    for (auto& fs : clients) run(fs->disconnect());
    client_rt.stop();
    clients.clear();
    mds->release_held();
    for (auto& o : osts) o->release_held();
    servers.stop();
  }

  client::MountOptions options() {
    client::MountOptions o;
    o.mds = {mds->address()};
    o.cluster_id = kClusterId;
    o.key = kKey;
    return o;
  }
  /// The first call mounts with `o`.
  client::Filesystem& mount(client::MountOptions o) {
    auto made = client::Filesystem::make(client_rt, *client_transport, std::move(o));
    EXPECT_TRUE(made.has_value());
    clients.push_back(std::move(*made));
    auto done = run(clients.back()->connect());
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return *clients.back();
  }
  client::Filesystem& fs() { return clients.empty() ? mount(options()) : *clients.front(); }

  /// Starts a task on a loop of the client.
  template <class T>
  std::future<T> start(Task<T> task, size_t loop = 0) {
    auto promise = std::make_shared<std::promise<T>>();
    auto future = promise->get_future();
    auto wrapper = [](std::shared_ptr<std::promise<T>> p, Task<T> t) -> Task<void> {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(t);
        p->set_value();
      } else {
        p->set_value(co_await std::move(t));
      }
    };
    client_rt.loop(loop).spawn(wrapper(promise, std::move(task)));
    return future;
  }
  template <class T>
  T run(Task<T> task, size_t loop = 0) {
    auto f = start(std::move(task), loop);
    if (f.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
      ADD_FAILURE() << "a task took more than 30 s";
      std::abort();
    }
    return f.get();
  }

  static Buffer bytes(size_t size, uint64_t seed = 1) {
    auto b = Buffer::allocate(std::max<size_t>(size, 1)).slice(0, size);
    SeededRng rng(seed);
    for (size_t i = 0; i < size; i += 8) {
      uint64_t x = rng.u64();
      std::memcpy(b.data() + i, &x, std::min<size_t>(8, size - i));
    }
    return b;
  }
  client::HandlePtr create(const std::string& name, uint32_t flags = O_RDWR) {
    auto r = run(fs().create(kRootIno, name, 0644, 0, flags, {}));
    EXPECT_TRUE(r.has_value()) << r.error().message();
    return r ? r->handle : nullptr;
  }
  Result<client::WriteResult> write(client::HandlePtr h, uint64_t offset, Buffer data, client::Caller caller = {}) {
    return run(fs().write(std::move(h), offset, std::move(data), {}, std::move(caller)));
  }
  /// Reads up to `size` bytes; the string is what was read.
  Result<std::string> read(client::HandlePtr h, uint64_t offset, size_t size, client::Caller caller = {}) {
    auto b = Buffer::allocate(size).slice(0, size);
    std::memset(b.data(), 0xEE, size);
    auto got = run(fs().read(std::move(h), offset, b, std::move(caller)));
    if (!got) return std::unexpected(got.error());
    return std::string(reinterpret_cast<char*>(b.data()), *got);
  }
  static std::string text(const Buffer& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
  static Buffer data(std::string_view s) { return Buffer::copy_of(std::as_bytes(std::span(s))); }
  void restart(StandIn& server) {
    server.stop();
    server.start();
  }

  Runtime servers{RuntimeOptions{.loops = 1, .pin = false, .name = "servers"}};
  Runtime client_rt{RuntimeOptions{.loops = 2, .pin = false, .name = "client"}};
  std::unique_ptr<rpc::Transport> server_transport = rpc::tcp_transport(servers), client_transport = rpc::tcp_transport(client_rt);
  std::vector<std::unique_ptr<StandInOst>> osts;
  std::unique_ptr<StandInMds> mds;
  std::vector<std::unique_ptr<client::Filesystem>> clients;
};

#define ASSERT_OK(expr)                                              \
  do {                                                               \
    auto&& ok_result = (expr);                                       \
    ASSERT_TRUE(ok_result.has_value()) << ok_result.error().message(); \
  } while (0)

}  // namespace nacre::test
