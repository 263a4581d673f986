// SPDX-License-Identifier: Apache-2.0
// A storage target's service on loopback TCP with a stand-in for the metadata server: it answers registrations and heartbeats
// as told, and has no namespace, journal or commands of its own.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/units.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"
#include "storage/service/service.h"

namespace nacre::storage {

template <class T>
T on_loop(Runtime& runtime, size_t i, Task<T> task) {
  std::promise<T> promise;
  auto body = [](std::promise<T>& p, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);  // the task, and what it holds, is gone before anybody hears of its end
    p.set_value(std::move(value));
  };
  runtime.loop(i).spawn(body(promise, std::move(task)));
  return promise.get_future().get();
}

class StandInMds {
 public:
  StandInMds(Runtime& runtime, rpc::Transport& transport, std::array<uint8_t, 16> cluster_id, wire::Key key, const std::string& address = "127.0.0.1:0") {
    auto server = rpc::serve(runtime, transport, {.address = address, .cluster_id = cluster_id, .key = key, .incarnation = 1},
                             [this](rpc::PeerPtr peer, rpc::Request request) { return handle(std::move(peer), std::move(request)); });
    if (!server) throw std::runtime_error(server.error().message());
    server_ = std::move(*server);
  }
  std::string address() const { return server_->address(); }
  void stop() { server_->stop(); }

  // Set before or between requests; guarded by `mutex`.
  std::mutex mutex;
  bool refuse = false;                       ///< registrations get kRecovering
  bool forget = false;                       ///< the next heartbeat says known = false
  Nanos ahead = 0;                           ///< MDS time minus the host's
  std::vector<std::pair<uint32_t, uint32_t>> epochs;
  std::vector<std::pair<uint64_t, Nanos>> fences;
  // Seen:
  std::vector<wire::OstRegisterRequestT> registrations;
  std::vector<wire::OstHeartbeatRequestT> heartbeats;
  rpc::PeerPtr tied;                         ///< the connection the target registered on

  size_t registered() {
    std::lock_guard lock(mutex);
    return registrations.size();
  }
  size_t beats() {
    std::lock_guard lock(mutex);
    return heartbeats.size();
  }
  Nanos time() { return system_clock().real() + ahead; }

 private:
  Task<rpc::Reply> handle(rpc::PeerPtr peer, rpc::Request request) {
    std::lock_guard lock(mutex);
    if (request.header.method == static_cast<uint16_t>(rpc::Method::kOstRegister)) {
      auto q = decode<wire::OstRegisterRequestT>(request.body);
      if (!q) co_return rpc::fail(q.error());
      registrations.push_back(std::move(*q));
      tied = peer;
      if (refuse) co_return rpc::fail({Errc::kRecovering, "stand-in"});
      wire::OstRegisterReplyT r;
      r.time = time();
      for (auto [f, e] : epochs) r.epochs.emplace_back(f, e);
      for (auto [s, until] : fences) r.fences.emplace_back(s, until);
      co_return rpc::ok(r);
    }
    if (request.header.method == static_cast<uint16_t>(rpc::Method::kOstHeartbeat)) {
      auto q = decode<wire::OstHeartbeatRequestT>(request.body);
      if (!q) co_return rpc::fail(q.error());
      heartbeats.push_back(std::move(*q));
      wire::OstHeartbeatReplyT r;
      r.time = time();
      r.known = !std::exchange(forget, false);
      co_return rpc::ok(r);
    }
    co_return rpc::fail({Errc::kOpNotSupp, "stand-in"});
  }
  std::unique_ptr<rpc::Server> server_;
};

class OssService : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nacre-oss-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    runtime_.start();
    for (size_t i = 0; i < key_.size(); ++i) key_[i] = static_cast<uint8_t>(i * 7 + 1);
    cluster_.id.fill(0x5a);
    cluster_.file = dir_ + "/cluster.toml";
    mds_ = std::make_unique<StandInMds>(runtime_, *transport_, cluster_.id, key_);
    cluster_.mds.push_back({"localhost", mds_->address(), dir_ + "/mds"});
    cluster_.osts.push_back({3, "localhost", "127.0.0.1:0", dir_ + "/ost3", {"ssd"}, 64 * MiB});
    cluster_.settings.oss_heartbeat = 50;
    cluster_.settings.oss_txg_interval = 200;
    auto formatted = format_target(cluster_, 3);
    ASSERT_TRUE(formatted) << formatted.error().message();
    EXPECT_EQ(*formatted, 64 * MiB);
  }
  void TearDown() override {
    client_.reset();
    as_mds_.reset();
    if (service_) stop();
    mds_->stop();
    {
      std::lock_guard lock(mds_->mutex);
      mds_->tied.reset();
    }
    runtime_.stop();
    std::filesystem::remove_all(dir_);
  }

  Result<std::unique_ptr<Service>> try_start() {
    return on_loop(runtime_, 0, Service::start(runtime_, *transport_, {.cluster = cluster_, .ost = 3, .key = key_, .fatal = [](Error e) { ADD_FAILURE() << e.message(); }}));
  }
  void start() {
    auto s = try_start();
    ASSERT_TRUE(s) << s.error().message();
    service_ = std::move(*s);
  }
  void start_serving() {
    ASSERT_NO_FATAL_FAILURE(start());
    await([this] { return service_->serving(); });
    client_ = connect(wire::kRoleClient);
  }
  void stop() {
    auto r = on_loop(runtime_, 0, service_->stop());
    EXPECT_TRUE(r) << r.error().message();
    service_.reset();
  }
  /// The target begins again from a copy of its directory that was taken while it ran.
  void crash() {
    const std::string& data = cluster_.osts[0].data;
    const std::string image = dir_ + "/image";
    std::filesystem::copy(data, image, std::filesystem::copy_options::recursive);
    client_.reset();
    as_mds_.reset();
    stop();
    std::filesystem::remove_all(data);
    std::filesystem::rename(image, data);
    start_serving();
  }
  /// Polls a condition that an event on another thread makes true; fails after 10 s.
  template <class F>
  void await(F condition) {
    const Nanos until = system_clock().boot() + 10 * kSecond;
    while (!condition()) {
      ASSERT_LT(system_clock().boot(), until) << "the condition did not come true";
      on_loop(runtime_, 1, [](Nanos t) -> Task<bool> { co_return (co_await sleep_for(t)).has_value(); }(2 * kMillisecond));
    }
  }
  rpc::PeerPtr connect(uint8_t role) {
    auto peer = on_loop(runtime_, 1, rpc::connect(*transport_, {.address = service_->address(), .cluster_id = cluster_.id, .key = key_, .role = role, .host = "localhost"}, nullptr));
    EXPECT_TRUE(peer) << peer.error().message();
    return peer ? *peer : nullptr;
  }
  rpc::PeerPtr as_mds() {
    if (!as_mds_) as_mds_ = connect(wire::kRoleMds);
    return as_mds_;
  }
  template <rpc::Method M>
  Result<typename rpc::MethodTraits<M>::Reply> call(const rpc::PeerPtr& peer, typename rpc::MethodTraits<M>::Request q, Buffer payload = {}) {
    return on_loop(runtime_, 1, rpc::call<M>(peer, std::move(q), {.deadline = system_clock().boot() + 20 * kSecond, .payload = std::move(payload)}));
  }

  std::unique_ptr<wire::CapabilityT> cap(const ObjectId& o, uint8_t mode = 3, uint64_t session = 7, uint32_t epoch = 1) {
    auto c = std::make_unique<wire::CapabilityT>();
    c->session = session;
    c->ino = o.ino.v;
    c->generation = o.generation.v;
    c->components = 1;
    c->mode = mode;
    c->fileset = 1;
    c->epoch = epoch;
    c->expires = mds_->time() + 30 * kSecond;
    wire::sign(wire::capability_key(key_), *c);
    return c;
  }
  static Buffer bytes(size_t n, uint8_t seed) {
    Buffer b = Buffer::allocate(n);
    for (size_t i = 0; i < n; ++i) b.data()[i] = static_cast<std::byte>(seed + i * 131 / 7);
    return b;
  }
  wire::ObjectWriteRequestT write_request(const ObjectId& o, uint64_t offset, const Buffer& data) {
    wire::ObjectWriteRequestT q;
    q.object = std::make_unique<schema::ObjectRef>(to_ref(o));
    q.offset = offset;
    q.length = static_cast<uint32_t>(data.size());
    q.sums = wire::range_sums(o, offset, data.span());
    q.cap = cap(o);
    q.write_id = ++write_id_;
    return q;
  }
  Result<wire::ObjectWriteReplyT> write(const ObjectId& o, uint64_t offset, const Buffer& data) { return call<rpc::Method::kObjectWrite>(client_, write_request(o, offset, data), data); }
  struct Read { wire::ObjectReadReplyT reply; Buffer payload; };
  Result<Read> read(const ObjectId& o, uint64_t offset, uint32_t length, std::unique_ptr<wire::CapabilityT> c = nullptr) {
    wire::ObjectReadRequestT q;
    q.object = std::make_unique<schema::ObjectRef>(to_ref(o));
    q.offset = offset;
    q.length = length;
    q.cap = c ? std::move(c) : cap(o);
    auto reply = on_loop(runtime_, 1, client_->call(rpc::Method::kObjectRead, encode(q), {.deadline = system_clock().boot() + 20 * kSecond}));
    if (!reply) return Err(reply.error());
    NACRE_TRY(auto body, decode<wire::ObjectReadReplyT>(reply->body));
    return Read{std::move(body), reply->payload};
  }
  wire::OssStatusReplyT status() {
    auto r = call<rpc::Method::kOssStatus>(connect(wire::kRoleAdmin), {});
    EXPECT_TRUE(r) << r.error().message();
    return r ? std::move(*r) : wire::OssStatusReplyT();
  }
  static uint64_t metric(const wire::OssStatusReplyT& s, std::string_view name) {
    for (const auto& m : s.metrics)
      if (m->name == name) return m->value;
    ADD_FAILURE() << "no metric " << name;
    return 0;
  }

  std::string dir_;
  Runtime runtime_{RuntimeOptions{.loops = 2, .pin = false, .workers = 2}};
  std::unique_ptr<rpc::Transport> transport_ = rpc::tcp_transport(runtime_);
  wire::Key key_{};
  config::Cluster cluster_;
  std::unique_ptr<StandInMds> mds_;
  std::unique_ptr<Service> service_;
  rpc::PeerPtr client_, as_mds_;
  uint64_t write_id_ = 0;
};

}  // namespace nacre::storage
