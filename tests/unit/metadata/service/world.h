// SPDX-License-Identifier: Apache-2.0
// What a service test stands on: event loops for the other side of the wire, a metadata server that can be killed and started
// again on the same directory, and a clock that a test can make run fast where it would otherwise only wait.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "common/base/rng.h"
#include "common/rpc/server.h"
#include "common/runtime/core.h"
#include "common/wire/bits.h"
#include "metadata/service/server.h"
#include "metadata/store/backup.h"
#include "tests/support/memory_dir.h"

namespace nacre::mds::testing {

inline constexpr Nanos kPatience = 60 * kSecond;       ///< real time; a test that waits longer has failed, the machine may be busy
inline constexpr Nanos kHurryStep = 20 * kMillisecond;

/// The system's clock, set ahead by all that pass() was told.
class TestClock final : public Clock {
 public:
  Nanos real() const override { return system_clock().real() + ahead_.load(); }
  Nanos boot() const override { return system_clock().boot() + ahead_.load(); }
  void pass(Nanos time) { ahead_ += time; }

 private:
  std::atomic<Nanos> ahead_{0};
};

class World {
 public:
  World() : runtime_(runtime_options("world")), transport_(rpc::tcp_transport(runtime_)) {
    directory_ = ::nacre::test::memory_dir() / fmt::format("nacre-mds-service-{:016x}", system_rng().u64());
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
    s.mds_ost_timeout = 5'000;
    s.lease_term = 600'000;
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
  Clock& clock() { return clock_; }
  Runtime& runtime() { return runtime_; }
  rpc::Transport& transport() { return *transport_; }
  const wire::Key& key() const { return key_; }
  std::array<uint8_t, 16> cluster_id() const { return options_.cluster.id; }
  std::string mds() const { return address_; }
  Core& core() { return server_->core(); }

  void start_server() {
    mds_runtime_ = std::make_unique<Runtime>(runtime_options("mds"));
    mds_transport_ = rpc::tcp_transport(*mds_runtime_);
    mds_runtime_->start();
    auto server = MetadataServer::start(*mds_runtime_, *mds_transport_, options_, address_.empty() ? "127.0.0.1:0" : address_);
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
    if (address_.empty()) address_ = server_->address();  // from then on storage targets read it on their loops
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
  /// In the world's directory.
  bool backup(const std::string& name) {
    auto made = make_backup(*core().journal, directory_ / name);
    EXPECT_TRUE(made) << made.error().message();
    return made.has_value();
  }
  void configure_ost(uint32_t id) {
    config::OstServer o;
    o.id = id;
    options_.cluster.osts.push_back(std::move(o));
  }
  /// Kills the server and puts the backup in the place of its metadata.
  bool restore(const std::string& name) {
    stop_server(false);
    Store::Options so;
    so.path = options_.data;
    so.cluster_id = options_.cluster.id;
    auto done = restore_backup(so, directory_ / name);
    EXPECT_TRUE(done) << done.error().message();
    return done.has_value();
  }
  void kill_and_restart() {
    stop_server(false);
    start_server();
  }

  /// Returns when all loops of both sides have run what was ready.
  void round() {
    for (Runtime* r : {&runtime_, mds_runtime_.get()})
      for (size_t i = 0; r && i < r->size(); ++i) {
        auto ran = std::make_shared<std::promise<void>>();
        auto done = ran->get_future();
        r->loop(i).post([&loop = r->loop(i), ran] {
          loop.core().fire_due();
          loop.post([ran] { ran->set_value(); });
        });
        done.wait();
      }
  }
  /// Lets time pass in steps, with a round of all loops after each: nobody is late for want of a CPU.
  void pass(Nanos time) {
    for (; time > 0; time -= kHurryStep) {
      clock_.pass(std::min(time, kHurryStep));
      round();
    }
  }
  /// While one of these lives, waiting for an answer makes time pass: for requests that are answered only after seconds.
  class Hurry {
   public:
    explicit Hurry(World& world) : world_(world) { world_.hurry_ = true; }
    ~Hurry() { world_.hurry_ = false; }
    Hurry(const Hurry&) = delete;

   private:
    World& world_;
  };

  /// True as soon as `what` is; false after kPatience. Waiting makes time pass.
  template <class F>
  bool eventually(F what) {
    const Nanos until = system_clock().boot() + kPatience;
    while (!what()) {
      if (system_clock().boot() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pass(kHurryStep);
    }
    return true;
  }
  /// Runs a coroutine on one of the world's loops and waits for it.
  template <class T>
  T run(Task<T> task) {
    auto promise = std::make_shared<std::promise<T>>();
    auto future = promise->get_future();
    auto wrap = [](Task<T> t, std::shared_ptr<std::promise<T>> p) -> Task<void> { p->set_value(co_await std::move(t)); };
    runtime_.loop(0).spawn(wrap(std::move(task), promise));
    auto ready = [&](Nanos wait) { return future.wait_for(std::chrono::nanoseconds(wait)) == std::future_status::ready; };
    if (hurry_ ? !eventually([&] { return ready(0); }) : !ready(2 * kPatience)) {
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
    o.deadline = clock_.boot() + 10 * kSecond;
    return rpc::connect(*transport_, std::move(o), std::move(handler));
  }

 private:
  RuntimeOptions runtime_options(const char* name) {
    RuntimeOptions o;
    o.loops = 2;
    o.pin = false;
    o.workers = 2;
    o.clock = &clock_;
    o.name = name;
    return o;
  }

  TestClock clock_;
  std::atomic<bool> hurry_{false};
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
