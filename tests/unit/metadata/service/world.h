// SPDX-License-Identifier: Apache-2.0
// What a service test stands on: event loops for the other side of the wire, a metadata server that can be killed and started
// again on the same directory, and waiting for things that have no event.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "common/base/rng.h"
#include "common/rpc/server.h"
#include "common/wire/bits.h"
#include "metadata/service/server.h"

namespace nacre::mds::testing {

inline constexpr Nanos kPatience = 60 * kSecond;  ///< a test that waits longer has failed; the machine may be busy

/// True as soon as `what` is; false after kPatience.
template <class F>
bool eventually(F what) {
  const Nanos until = system_clock().boot() + kPatience;
  while (!what()) {
    if (system_clock().boot() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline RuntimeOptions small_runtime(const char* name) {
  RuntimeOptions o;
  o.loops = 2;
  o.pin = false;
  o.workers = 2;
  o.name = name;
  return o;
}

class World {
 public:
  World() : runtime_(small_runtime("world")), transport_(rpc::tcp_transport(runtime_)) {
    directory_ = std::filesystem::temp_directory_path() / fmt::format("nacre-mds-service-{:016x}", system_rng().u64());
    std::filesystem::create_directories(directory_);
    key_.fill(7);
    options_.cluster.name = "test";
    options_.cluster.id.fill(9);
    options_.cluster.mds.push_back({"localhost", "127.0.0.1:0", (directory_ / "mds").string()});
    auto& s = options_.cluster.settings;
    s.mds_commit_interval = 20;
    s.mds_session_slots = 16;
    s.mds_block_cache = 8 << 20;
    s.mds_recovery_window = 20'000;
    s.mds_ost_timeout = 500;
    s.lease_term = 20'000;
    options_.key = key_;
    options_.data = options_.cluster.mds[0].data;
    options_.host = "test";
    options_.fatal = [](Error e) { ADD_FAILURE() << "journal: " << e.message(); };
    runtime_.start();
    Store::Options so;
    so.path = options_.data;
    so.cluster_id = options_.cluster.id;
    auto made = Store::format(so);
    EXPECT_TRUE(made) << made.error().message();
  }
  ~World() {
    stop_server(true);
    runtime_.stop();
    std::error_code ec;
    std::filesystem::remove_all(directory_, ec);
  }

  config::Settings& settings() { return options_.cluster.settings; }
  Runtime& runtime() { return runtime_; }
  rpc::Transport& transport() { return *transport_; }
  const wire::Key& key() const { return key_; }
  std::array<uint8_t, 16> cluster_id() const { return options_.cluster.id; }
  std::string mds() const { return address_; }
  Core& core() { return server_->core(); }

  void start_server() {
    mds_runtime_ = std::make_unique<Runtime>(small_runtime("mds"));
    mds_transport_ = rpc::tcp_transport(*mds_runtime_);
    mds_runtime_->start();
    auto server = MetadataServer::start(*mds_runtime_, *mds_transport_, options_, address_.empty() ? "127.0.0.1:0" : address_);
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
    address_ = server_->address();
  }
  /// clean false: as kill -9 leaves it, nothing is written or closed any more.
  void stop_server(bool clean) {
    if (!server_) return;
    server_->stop();
    mds_runtime_->stop();
    if (clean) {
      auto closed = server_->close_clean();
      EXPECT_TRUE(closed) << closed.error().message();
    }
    server_.reset();
    mds_transport_.reset();
    mds_runtime_.reset();
  }
  void kill_and_restart() {
    stop_server(false);
    start_server();
  }

  /// Runs a coroutine on one of the world's loops and waits for it.
  template <class T>
  T run(Task<T> task) {
    auto promise = std::make_shared<std::promise<T>>();
    auto future = promise->get_future();
    auto wrap = [](Task<T> t, std::shared_ptr<std::promise<T>> p) -> Task<void> { p->set_value(co_await std::move(t)); };
    runtime_.loop(0).spawn(wrap(std::move(task), promise));
    if (future.wait_for(std::chrono::nanoseconds(2 * kPatience)) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      std::abort();
    }
    return future.get();
  }
  Task<Result<rpc::PeerPtr>> connect(std::string address, uint8_t role, rpc::Handler handler, std::optional<wire::Key> key = std::nullopt) {
    rpc::ConnectOptions o;
    o.address = std::move(address);
    o.cluster_id = cluster_id();
    o.key = key.value_or(key_);
    o.role = role;
    o.host = "test";
    o.deadline = system_clock().boot() + 10 * kSecond;
    return rpc::connect(*transport_, std::move(o), std::move(handler));
  }

 private:
  Runtime runtime_;
  std::unique_ptr<rpc::Transport> transport_;
  std::filesystem::path directory_;
  wire::Key key_{};
  CoreOptions options_;
  std::string address_;
  std::unique_ptr<Runtime> mds_runtime_;
  std::unique_ptr<rpc::Transport> mds_transport_;
  std::unique_ptr<MetadataServer> server_;
};

}  // namespace nacre::mds::testing
