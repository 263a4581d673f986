// SPDX-License-Identifier: Apache-2.0
// A stand-in for a storage target: keeps sizes instead of data, so that tests decide what lies on it and see what the metadata
// server asks of it. Serves stats, commands and fences over TCP; registers and sends heartbeats like the real one.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/unit/metadata/service/world.h"

namespace nacre::mds::testing {

class StandInOst {
 public:
  StandInOst(World& world, uint32_t number, std::function<std::string()> mds) : world_(world), number_(number), mds_(std::move(mds)) {
    uuid_.assign(16, static_cast<uint8_t>(0x40 + number));
    listen("127.0.0.1:0");
    enroll();
  }
  ~StandInOst() { down(); }

  /// Data arrives at an object, as a client's write would bring it.
  void write(const ObjectId& object, uint64_t size) {
    std::lock_guard guard(mutex_);
    Object& o = objects_[object];
    o.size = std::max(o.size, size);
    o.changed = std::max(system_clock().real(), o.changed + 1);
    o.wseq = ++wseq_;
  }
  wire::ObjectReport report(const ObjectId& object) {
    std::lock_guard guard(mutex_);
    const Object& o = objects_[object];
    return {to_ref(object), o.size, allocated(o), o.wseq, o.changed};
  }
  bool exists(const ObjectId& object) {
    std::lock_guard guard(mutex_);
    return objects_.contains(object);
  }
  uint64_t size(const ObjectId& object) {
    std::lock_guard guard(mutex_);
    auto it = objects_.find(object);
    return it == objects_.end() ? 0 : it->second.size;
  }
  size_t stats() const { return stats_.load(); }
  std::vector<uint8_t> kinds() {
    std::lock_guard guard(mutex_);
    return kinds_;
  }
  std::vector<uint64_t> fenced() {
    std::lock_guard guard(mutex_);
    return fenced_;
  }
  void refuse_space(bool on) { no_space_ = on; }

  /// Ends the server: connections break, nobody answers.
  void down() {
    if (!server_) return;
    address_ = server_->address();
    server_->stop();
    server_.reset();
    beating_->store(false);
  }
  void up() {
    listen(address_);
    enroll();
  }

 private:
  struct Object {
    uint64_t size = 0, wseq = 0, command = 0;
    Nanos changed = 0;
  };
  static uint64_t allocated(const Object& o) { return (o.size + 4095) / 4096 * 4096; }
  static wire::ObjectStat stat(const Object& o) { return {o.size, allocated(o), o.changed, o.wseq, true}; }

  void listen(const std::string& address) {
    rpc::ServerOptions so;
    so.address = address;
    so.cluster_id = world_.cluster_id();
    so.key = world_.key();
    so.incarnation = ++incarnation_;
    auto server = rpc::serve(world_.runtime(), world_.transport(), so, [this](rpc::PeerPtr peer, rpc::Request q) { return handle(std::move(peer), std::move(q)); });
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  void enroll() {
    wire::OstRegisterRequestT q;
    q.ost = number_;
    q.uuid = uuid_;
    q.address = server_->address();
    q.host = "test";
    q.capacity = 100 << 20;
    q.available = 90 << 20;
    q.used = 10 << 20;
    q.incarnation = incarnation_;
    auto beating = beating_ = std::make_shared<std::atomic<bool>>(true);
    auto done = world_.run(join(q, beating));
    ASSERT_TRUE(done) << done.error().message();
  }
  /// Registers, then beats in the background.
  Task<Result<void>> join(wire::OstRegisterRequestT q, std::shared_ptr<std::atomic<bool>> beating) {
    CO_TRY(auto peer, co_await world_.connect(mds_(), wire::kRoleOss, nullptr));
    CO_TRY(auto reply, co_await rpc::call<rpc::Method::kOstRegister>(peer, q));
    (void)reply;
    Loop::current()->spawn(beat(peer, q, beating));
    co_return Result<void>{};
  }
  Task<void> beat(rpc::PeerPtr peer, wire::OstRegisterRequestT q, std::shared_ptr<std::atomic<bool>> beating) {
    wire::OstHeartbeatRequestT h;
    h.ost = q.ost;
    h.incarnation = q.incarnation;
    h.capacity = q.capacity;
    h.used = q.used;
    h.available = q.available;
    while (beating->load()) {
      auto reply = peer->closed() ? Result<wire::OstHeartbeatReplyT>(Err(Errc::kDisconnected)) : co_await rpc::call<rpc::Method::kOstHeartbeat>(peer, h);
      if (!reply || !reply->known) {
        auto again = co_await world_.connect(mds_(), wire::kRoleOss, nullptr);
        if (again) {
          peer = *again;
          (void)co_await rpc::call<rpc::Method::kOstRegister>(peer, q);
        }
      }
      if (auto slept = co_await sleep_for(20 * kMillisecond); !slept) co_return;
    }
    if (!peer->closed()) peer->close(Error(Errc::kShutdown));
  }

  Task<rpc::Reply> handle(rpc::PeerPtr peer, rpc::Request q) {
    if (peer->info().role != wire::kRoleMds) co_return rpc::fail(Error(Errc::kPerm));
    switch (static_cast<rpc::Method>(q.header.method)) {
      case rpc::Method::kObjectStat: co_return stat_all(*decode<wire::ObjectStatRequestT>(q.body));
      case rpc::Method::kObjectCommands: co_return command(*decode<wire::ObjectCommandRequestT>(q.body));
      case rpc::Method::kObjectFence: {
        auto f = decode<wire::FenceRequestT>(q.body);
        std::lock_guard guard(mutex_);
        fenced_.push_back(f->session);
        co_return rpc::ok(wire::EmptyT{});
      }
      default: co_return rpc::fail(Error(Errc::kOpNotSupp));
    }
  }
  rpc::Reply stat_all(const wire::ObjectStatRequestT& q) {
    ++stats_;
    wire::ObjectStatReplyT reply;
    std::lock_guard guard(mutex_);
    for (const auto& ref : q.objects) {
      auto it = objects_.find(to_id(ref));
      reply.stats.push_back(it == objects_.end() ? wire::ObjectStat{} : stat(it->second));
    }
    return rpc::ok(reply);
  }
  rpc::Reply command(const wire::ObjectCommandRequestT& q) {
    wire::ObjectCommandReplyT reply;
    std::lock_guard guard(mutex_);
    for (const auto& c : q.commands) {
      kinds_.push_back(c->kind);
      const ObjectId id = to_id(*c->object);
      auto it = objects_.find(id);
      reply.done.push_back(c->command);
      if (c->kind == wire::kCmdAllocate) {
        if (no_space_) return rpc::fail(Error(Errc::kNoSpc));
        it = objects_.try_emplace(id).first;
      }
      if (it == objects_.end() || it->second.command >= c->command) {
        reply.stats.push_back(it == objects_.end() ? wire::ObjectStat{} : stat(it->second));
        continue;
      }
      if (c->kind == wire::kCmdDestroy) {
        objects_.erase(it);
        reply.stats.emplace_back();
        continue;
      }
      it->second.command = c->command;
      it->second.changed = std::max(system_clock().real(), it->second.changed + 1);
      if (c->kind == wire::kCmdTruncate) it->second.size = std::min(it->second.size, c->offset);
      reply.stats.push_back(stat(it->second));
    }
    return rpc::ok(reply);
  }

  World& world_;
  const uint32_t number_;
  std::function<std::string()> mds_ = nullptr;
  std::vector<uint8_t> uuid_;
  std::string address_;
  std::unique_ptr<rpc::Server> server_;
  uint64_t incarnation_ = 0;
  std::shared_ptr<std::atomic<bool>> beating_;
  std::mutex mutex_;
  std::map<ObjectId, Object> objects_;
  std::vector<uint8_t> kinds_;
  std::vector<uint64_t> fenced_;
  uint64_t wseq_ = 0;
  std::atomic<size_t> stats_{0};
  std::atomic<bool> no_space_{false};
};

}  // namespace nacre::mds::testing
