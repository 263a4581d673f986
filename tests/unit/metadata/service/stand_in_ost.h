// SPDX-License-Identifier: Apache-2.0
// A stand-in for a storage target: keeps sizes instead of data, so that tests decide what lies on it and see what the metadata
// server asks of it. Serves stats, commands and fences over TCP; registers and sends heartbeats like the real one. Its
// coroutines hold what they work on, so it may be taken down and destroyed while some are on their way.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/unit/metadata/service/world.h"

namespace nacre::mds::testing {

class StandInOst {
 public:
  StandInOst(World& world, uint32_t number, std::function<std::string()> mds) : world_(world), number_(number), state_(std::make_shared<State>(world, std::move(mds))) {
    uuid_.assign(16, static_cast<uint8_t>(0x40 + number));
    listen("127.0.0.1:0");
    enroll();
  }
  ~StandInOst() { down(); }

  /// Data arrives at an object, as a client's write would bring it.
  void write(const ObjectId& object, uint64_t size) {
    std::lock_guard guard(state_->mutex);
    Object& o = state_->objects[object];
    o.size = std::max(o.size, size);
    o.changed = std::max(world_.clock().real(), o.changed + 1);
    o.wseq = ++state_->wseq;
  }
  wire::ObjectReport report(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    const Object& o = state_->objects[object];
    return {to_ref(object), o.size, allocated(o), o.wseq, o.changed};
  }
  bool exists(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    return state_->objects.contains(object);
  }
  uint64_t size(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    auto it = state_->objects.find(object);
    return it == state_->objects.end() ? 0 : it->second.size;
  }
  size_t stats() const { return state_->stats.load(); }
  std::vector<uint8_t> kinds() {
    std::lock_guard guard(state_->mutex);
    return state_->kinds;
  }
  std::vector<uint64_t> fenced() {
    std::lock_guard guard(state_->mutex);
    return state_->fenced;
  }
  struct Highest { uint64_t ino = 0, command = 0, session = 0; };
  Highest highest;  ///< what it says from its next up() on
  void refuse_space(bool on) { state_->no_space = on; }
  /// Answers to stats wait while it is on; stats() counts them when they arrive.
  void hold_stats(bool on) { state_->hold_stats = on; }
  void refuse_commands(bool on) { state_->no_commands = on; }
  /// The object is lost, as with its index.
  void forget(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    state_->objects.erase(object);
  }
  /// What a check of its blocks finds.
  void damage(std::vector<wire::ScrubBad> bad) {
    std::lock_guard guard(state_->mutex);
    state_->bad = std::move(bad);
  }
  /// Its record can't be read any more.
  void break_record(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    state_->objects[object].damaged = true;
  }

  /// Ends the server: connections are broken when it returns, nobody answers.
  void down() {
    if (!server_) return;
    address_ = server_->address();
    server_->stop();
    server_.reset();
    beating_->store(false);
    world_.round();
  }
  bool sealed(const ObjectId& object) {
    std::lock_guard guard(state_->mutex);
    return state_->seals.contains(object);
  }
  /// As a client's resend of what was lost before does.
  void break_seals() {
    std::lock_guard guard(state_->mutex);
    state_->seals.clear();
  }
  void up() {
    break_seals();
    listen(address_);
    enroll();
  }

 private:
  struct Object {
    uint64_t size = 0, wseq = 0, command = 0;
    Nanos changed = 0;
    bool damaged = false;
  };
  struct State {
    State(World& w, std::function<std::string()> m) : world(w), mds(std::move(m)) {}
    World& world;  ///< outlives its runtime's coroutines
    const std::function<std::string()> mds;
    std::mutex mutex;
    std::map<ObjectId, Object> objects;
    std::map<ObjectId, uint64_t> seals;
    std::vector<uint8_t> kinds;
    std::vector<uint64_t> fenced;
    uint64_t wseq = 0;
    std::atomic<size_t> stats{0};
    std::vector<wire::ScrubBad> bad;
    std::atomic<bool> no_space{false}, no_commands{false}, hold_stats{false};
  };
  using StatePtr = std::shared_ptr<State>;
  using Beating = std::shared_ptr<std::atomic<bool>>;
  static uint64_t allocated(const Object& o) { return (o.size + 4095) / 4096 * 4096; }
  static wire::ObjectStat stat(const Object& o) { return o.damaged ? wire::ObjectStat() : wire::ObjectStat{o.size, allocated(o), o.changed, o.wseq, true}; }

  void listen(const std::string& address) {
    rpc::ServerOptions so;
    so.address = address;
    so.cluster_id = world_.cluster_id();
    so.key = world_.key();
    so.incarnation = ++incarnation_;
    auto server = rpc::serve(world_.runtime(), world_.transport(), so, [state = state_](rpc::PeerPtr peer, rpc::Request q) { return handle(state, std::move(peer), std::move(q)); });
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
    q.max_ino = highest.ino;
    q.max_command = highest.command;
    q.max_session = highest.session;
    beating_ = std::make_shared<std::atomic<bool>>(true);
    auto done = world_.run(join(state_, q, beating_));
    ASSERT_TRUE(done) << done.error().message();
  }
  /// Registers, then beats in the background.
  static Task<Result<void>> join(StatePtr state, wire::OstRegisterRequestT q, Beating beating) {
    CO_TRY(auto peer, co_await state->world.connect(state->mds(), wire::kRoleOss, nullptr));
    CO_TRY(auto reply, co_await rpc::call<rpc::Method::kOstRegister>(peer, q));
    (void)reply;
    Loop::current()->spawn(beat(state, peer, q, beating));
    co_return Result<void>{};
  }
  static Task<void> beat(StatePtr state, rpc::PeerPtr peer, wire::OstRegisterRequestT q, Beating beating) {
    wire::OstHeartbeatRequestT h;
    h.ost = q.ost;
    h.incarnation = q.incarnation;
    h.capacity = q.capacity;
    h.used = q.used;
    h.available = q.available;
    while (beating->load()) {
      auto reply = peer->closed() ? Result<wire::OstHeartbeatReplyT>(Err(Errc::kDisconnected)) : co_await rpc::call<rpc::Method::kOstHeartbeat>(peer, h);
      if ((!reply || !reply->known) && beating->load()) {
        auto again = co_await state->world.connect(state->mds(), wire::kRoleOss, nullptr);
        if (again) {
          if (!peer->closed()) peer->close(Error(Errc::kShutdown));
          peer = *again;
          (void)co_await rpc::call<rpc::Method::kOstRegister>(peer, q);
        }
      }
      if (auto slept = co_await sleep_for(20 * kMillisecond); !slept) co_return;
    }
    if (!peer->closed()) peer->close(Error(Errc::kShutdown));
  }

  static Task<rpc::Reply> handle(StatePtr state, rpc::PeerPtr peer, rpc::Request q) {
    if (peer->info().role != wire::kRoleMds) co_return rpc::fail(Error(Errc::kPerm));
    switch (static_cast<rpc::Method>(q.header.method)) {
      case rpc::Method::kObjectStat: {
        auto reply = stat_all(*state, *decode<wire::ObjectStatRequestT>(q.body));
        while (state->hold_stats) (void)co_await sleep_for(kMillisecond);
        co_return reply;
      }
      case rpc::Method::kObjectCommands: co_return command(*state, *decode<wire::ObjectCommandRequestT>(q.body));
      case rpc::Method::kOssStatus: {
        wire::OssStatusReplyT status;
        std::lock_guard guard(state->mutex);
        status.objects = state->objects.size();
        co_return rpc::ok(status);
      }
      case rpc::Method::kObjectList: co_return list(*state, *decode<wire::ObjectListRequestT>(q.body));
      case rpc::Method::kObjectScrub: {
        wire::ObjectScrubReplyT scrubbed;
        std::lock_guard guard(state->mutex);
        scrubbed.bad = state->bad;
        scrubbed.last = std::make_unique<schema::ObjectRef>();
        scrubbed.end = true;
        co_return rpc::ok(scrubbed);
      }
      case rpc::Method::kObjectFence: {
        auto f = decode<wire::FenceRequestT>(q.body);
        std::lock_guard guard(state->mutex);
        state->fenced.push_back(f->session);
        co_return rpc::ok(wire::EmptyT{});
      }
      default: co_return rpc::fail(Error(Errc::kOpNotSupp));
    }
  }
  static rpc::Reply stat_all(State& s, const wire::ObjectStatRequestT& q) {
    ++s.stats;
    wire::ObjectStatReplyT reply;
    std::lock_guard guard(s.mutex);
    for (const auto& ref : q.objects) {
      auto it = s.objects.find(to_id(ref));
      reply.stats.push_back(it == s.objects.end() ? wire::ObjectStat{} : stat(it->second));
    }
    return rpc::ok(reply);
  }
  static rpc::Reply list(State& s, const wire::ObjectListRequestT& q) {
    wire::ObjectListReplyT reply;
    std::lock_guard guard(s.mutex);
    auto it = q.after ? s.objects.upper_bound(to_id(*q.after)) : s.objects.begin();
    for (; it != s.objects.end() && reply.objects.size() < q.limit; ++it) reply.objects.emplace_back(to_ref(it->first), stat(it->second), 1);
    reply.end = it == s.objects.end();
    reply.total = s.objects.size();
    return rpc::ok(reply);
  }
  static rpc::Reply command(State& s, const wire::ObjectCommandRequestT& q) {
    if (s.no_commands) return rpc::fail(Error(Errc::kIo, "refused"));
    wire::ObjectCommandReplyT reply;
    std::lock_guard guard(s.mutex);
    for (const auto& c : q.commands) {
      s.kinds.push_back(c->kind);
      const ObjectId id = to_id(*c->object);
      auto it = s.objects.find(id);
      reply.done.push_back(c->command);
      if (c->kind >= wire::kCmdSeal) {
        auto seal = s.seals.find(id);
        if (c->kind == wire::kCmdSeal && c->offset != 0 && (seal == s.seals.end() || seal->second != c->command)) return rpc::fail(Error(Errc::kStale, "not sealed"));
        if (c->kind == wire::kCmdSeal) s.seals[id] = c->command;
        else s.seals.erase(id);
        reply.stats.push_back(it == s.objects.end() ? wire::ObjectStat{} : stat(it->second));
        continue;
      }
      if (c->kind == wire::kCmdAllocate) {
        if (s.no_space) return rpc::fail(Error(Errc::kNoSpc));
        it = s.objects.try_emplace(id).first;
      }
      if (it == s.objects.end() || it->second.command >= c->command) {
        reply.stats.push_back(it == s.objects.end() ? wire::ObjectStat{} : stat(it->second));
        continue;
      }
      if (c->kind == wire::kCmdDestroy) {
        s.objects.erase(it);
        s.seals.erase(id);
        reply.stats.emplace_back();
        continue;
      }
      it->second.command = c->command;
      it->second.changed = std::max(s.world.clock().real(), it->second.changed + 1);
      if (c->kind == wire::kCmdTruncate) it->second.size = std::min(it->second.size, c->offset);
      reply.stats.push_back(stat(it->second));
    }
    return rpc::ok(reply);
  }

  World& world_;
  const uint32_t number_;
  const StatePtr state_;
  std::vector<uint8_t> uuid_;
  std::string address_;
  std::unique_ptr<rpc::Server> server_;
  uint64_t incarnation_ = 0;
  Beating beating_;
};

}  // namespace nacre::mds::testing
