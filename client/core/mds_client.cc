// SPDX-License-Identifier: Apache-2.0
#include "client/core/mds_client.h"

#include "client/core/core.h"
#include "common/log/log.h"

namespace nacre::client {

MdsClient::MdsClient(Core& core) : core_(core), loops_(core.runtime.size()), slots_(core.runtime.size()) {
  name_ = "mds";
  if (!core.options.mds.empty()) name_ += " " + core.options.mds.front();
}

Nanos MdsClient::now() const { return core_.clock().real() + time_offset_.load(std::memory_order_relaxed); }

wire::AttrT MdsClient::root() const {
  std::lock_guard lock(mutex_);
  return root_;
}

ServerStatus MdsClient::status() const {
  ServerStatus s;
  s.name = "mds";
  s.address = core_.options.mds.empty() ? "" : core_.options.mds.front();
  s.connected = connected_.load() > 0;
  s.incarnation = incarnation();
  return s;
}

rpc::Channel& MdsClient::channel() {
  Loop& loop = *Loop::current();
  auto& mine = loops_[loop.index()].channel;
  if (!mine) {
    rpc::Channel::Options options;
    options.addresses = core_.options.mds;
    options.connect = core_.connect_options();
    std::weak_ptr<Core> weak = core_.weak_from_this();
    options.on_connected = [weak](rpc::PeerPtr peer) { return Core::bind_mds(weak, std::move(peer)); };
    mine = std::make_unique<rpc::Channel>(core_.transport, std::move(options),
                                          [weak](rpc::PeerPtr peer, rpc::Request request) { return Core::handle_push(weak, std::move(peer), std::move(request)); });
  }
  return *mine;
}

/// A live, bound connection of this loop, however long it takes.
Task<Result<rpc::PeerPtr>> MdsClient::peer(OpPtr op) {
  if (auto live = channel().peek()) co_return live;
  for (uint32_t attempt = 1;; ++attempt) {
    if (core_.stopping()) co_return Err(Errc::kShutdown, "the filesystem is being unmounted");
    Nanos until = std::min(op->deadline(), core_.clock().boot() + kLookAround);
    auto got = co_await channel().get(until, Op::cancel(op));
    if (got) co_return std::move(*got);
    Errc code = got.error().code;
    if (op->cancelled()) co_return std::unexpected(std::move(got).error());
    if (core_.clock().boot() >= op->deadline()) co_return Err(op->gave_up(name_));
    if (code != Errc::kDeadline && !is_transient(code)) log::debug("{}: {}", name_, got.error().message());
    if (code != Errc::kDeadline) CO_CHECK_OK(co_await pause_before_retry(op, name_, attempt));
  }
}

Task<Result<void>> MdsClient::open(OpPtr op) {
  auto fatal = std::make_shared<Cancel>();
  {
    std::lock_guard lock(mutex_);
    fatal_ = fatal;
  }
  CancelPtr cancel = Op::cancel(op);
  uint64_t token = cancel ? cancel->add([fatal](Error why) { fatal->fire(std::move(why)); }) : 0;
  auto got = co_await channel().get(op->deadline(), fatal);
  if (cancel) cancel->remove(token);
  {
    std::lock_guard lock(mutex_);
    fatal_ = nullptr;
  }
  if (got) co_return Result<void>{};
  if (fatal->fired()) co_return Err(fatal->error());
  if (got.error().code == Errc::kDeadline) co_return Err(op->gave_up(name_));
  co_return std::unexpected(std::move(got).error());
}

Task<Result<rpc::Reply>> MdsClient::call_raw(rpc::Method method, Bytes body, OpPtr op, CallExtra extra) {
  if (rpc::method_flags(static_cast<uint16_t>(method)) & rpc::kOnce) return once(method, std::move(body), std::move(op), std::move(extra));
  return repeat(method, std::move(body), std::move(op), std::move(extra));
}

Task<Result<rpc::Reply>> MdsClient::repeat(rpc::Method method, Bytes body, OpPtr op, CallExtra extra) {
  Waits::Entry entry(core_.waits, op->name(), name_, core_.clock().boot());
  uint64_t first_incarnation = 0;
  for (uint32_t attempt = 1;; ++attempt) {
    CO_TRY(rpc::PeerPtr p, co_await peer(op));
    uint64_t session_now = session();
    if (extra.session && extra.session != session_now) co_return Err(Errc::kStale, "the session was evicted");
    if (!first_incarnation) first_incarnation = p->info().incarnation;
    rpc::CallOptions options;
    options.deadline = op->deadline();
    options.cancel = Op::cancel(op);
    options.session = session_now;
    auto reply = co_await p->call(method, body, options);
    if (reply || !(is_transient(reply.error().code) || reply.error().code == Errc::kNoSession || reply.error().code == Errc::kDeadline || op->cancelled())) {
      if (extra.crossed_restart) *extra.crossed_restart = p->info().incarnation != first_incarnation;
      co_return std::move(reply);
    }
    Errc code = reply.error().code;
    if (op->cancelled() || core_.clock().boot() >= op->deadline()) {
      if (extra.finish) Loop::current()->spawn(finish(core_.shared_from_this(), method, std::move(body), SlotLease{session_now, 0, 0}, std::move(extra), op->name()));
      if (op->cancelled()) co_return std::unexpected(std::move(reply).error());
      co_return Err(op->gave_up(name_));
    }
    if (code == Errc::kNoSession) p->close(Error(Errc::kNoSession, "the server doesn't know this session any more"));
    retries_.fetch_add(1, std::memory_order_relaxed);
    CO_CHECK_OK(co_await pause_before_retry(op, name_, attempt));
  }
}

Result<void> MdsClient::nothing_lost(std::atomic<uint64_t>& seen) const {
  const uint64_t now = losses();
  if (seen.exchange(now) == now) return {};
  return Err(Errc::kIo, fmt::format("{}: lost its power before changes that had been acknowledged were synced", name_));
}

void MdsClient::acknowledged(const rpc::Reply& reply) {
  uint64_t known = acked_.load(std::memory_order_relaxed);
  while (reply.journal > known && !acked_.compare_exchange_weak(known, reply.journal)) continue;
}

Task<Result<rpc::Reply>> MdsClient::once(rpc::Method method, Bytes body, OpPtr op, CallExtra extra) {
  Waits::Entry entry(core_.waits, op->name(), name_, core_.clock().boot());
  CO_TRY(SlotLease lease, co_await slots_.acquire(op, name_));
  uint64_t first_incarnation = 0;
  bool sent = false, maybe_done = false;  // maybe_done: the server may have executed it without our hearing of it
  for (uint32_t attempt = 1;; ++attempt) {
    auto p = co_await peer(op);
    Error failed(Errc::kIo);
    if (p) {
      if (!slots_.valid(lease)) {
        if (extra.session) co_return Err(Errc::kStale, "the session was evicted");
        if (maybe_done) co_return Err(Errc::kIo, fmt::format("{}: the session was evicted while the request was under way; whether it was done is unknown", op->name()));
        CO_TRY(lease, co_await slots_.acquire(op, name_));
        continue;
      }
      if (extra.session && extra.session != lease.session) {
        slots_.release(lease, sent);
        co_return Err(Errc::kStale, "the session was evicted");
      }
      if (!first_incarnation) first_incarnation = (*p)->info().incarnation;
      rpc::CallOptions options;
      options.deadline = op->deadline();
      options.cancel = Op::cancel(op);
      options.session = lease.session;
      options.slot = lease.slot;
      options.sequence = lease.sequence;
      sent = true;
      auto reply = co_await (*p)->call(method, body, options);
      if (reply || !(is_transient(reply.error().code) || reply.error().code == Errc::kNoSession || reply.error().code == Errc::kDeadline || op->cancelled())) {
        slots_.release(lease, true);
        if (reply) acknowledged(*reply);
        if (extra.crossed_restart) *extra.crossed_restart = (*p)->info().incarnation != first_incarnation;
        co_return std::move(reply);
      }
      failed = std::move(reply).error();
      if (failed.code == Errc::kNoSession) (*p)->close(Error(Errc::kNoSession, "the server doesn't know this session any more"));
      else if (failed.code == Errc::kDisconnected || failed.code == Errc::kDeadline || op->cancelled()) maybe_done = true;
    } else {
      failed = std::move(p).error();
    }
    retries_.fetch_add(1, std::memory_order_relaxed);
    bool over = op->cancelled() || core_.clock().boot() >= op->deadline() || core_.stopping();
    if (!over) {
      auto paused = co_await pause_before_retry(op, name_, attempt);
      if (paused) continue;
      failed = std::move(paused).error();
    } else if (!op->cancelled() && !core_.stopping()) {
      failed = op->gave_up(name_);
    }
    if (sent && !core_.stopping()) Loop::current()->spawn(finish(core_.shared_from_this(), method, std::move(body), lease, std::move(extra), op->name()));
    else slots_.release(lease, sent);
    co_return Err(std::move(failed));
  }
}

/// Drives a request whose caller has gone to its answer, so that the slot can be used again and nothing is left behind.
Task<void> MdsClient::finish(std::shared_ptr<Core> core, rpc::Method method, Bytes body, SlotLease lease, CallExtra extra, const char* name) {
  auto op = make_op(core, name, Caller{});
  op->unlimited();
  for (uint32_t attempt = 1; !core->stopping(); ++attempt) {
    auto p = co_await peer(op);
    if (!p) co_return;  // only a shutdown ends this
    bool slotted = lease.sequence != 0;
    if (slotted ? !slots_.valid(lease) : session() != lease.session) co_return;
    rpc::CallOptions options;
    options.session = lease.session;
    options.slot = lease.slot;
    options.sequence = lease.sequence;
    auto reply = co_await (*p)->call(method, body, options);
    if (reply || !(is_transient(reply.error().code) || reply.error().code == Errc::kNoSession)) {
      if (slotted) slots_.release(lease, true);
      if (reply) acknowledged(*reply);
      if (extra.abandoned) extra.abandoned(std::move(reply));
      co_return;
    }
    if (reply.error().code == Errc::kNoSession) (*p)->close(Error(Errc::kNoSession, "the server doesn't know this session any more"));
    if (!co_await pause_before_retry(op, name_, attempt)) co_return;
  }
}

Task<void> MdsClient::close(Nanos deadline) {
  if (session()) {
    if (auto p = channel().peek()) {
      rpc::CallOptions options;
      options.session = session();
      options.deadline = deadline;
      (void)co_await p->call(rpc::Method::kSessionClose, encode(wire::SessionCloseRequestT{}), options);
    }
  }
  co_await core_.on_every_loop([this](Loop& loop) {
    if (auto& c = loops_[loop.index()].channel) c->close();
  });
}

}  // namespace nacre::client
