// SPDX-License-Identifier: Apache-2.0
// The life of a session: opened by the first connection, bound by the others, resumed and reclaimed after a restart of the
// server, renewed by keepalives. At most one connection opens or resumes at a time; the others are told to try again.
#include "client/core/core.h"
#include "client/core/mds_client.h"
#include "common/log/log.h"

namespace nacre::client {

namespace {
constexpr Nanos kLastSaneTime = INT64_MAX / 2;  // in the year 2116; what a server says is bounded before it is reckoned with

/// Errors of SessionOpen that repeating doesn't cure.
bool is_final_refusal(Errc code) {
  return code == Errc::kNoEnt || code == Errc::kNotDir || code == Errc::kAccess || code == Errc::kPerm || code == Errc::kInval || code == Errc::kVersion || code == Errc::kNotOurs;
}
}  // namespace

void MdsClient::set_time(Nanos server, Nanos asked_at) {
  if (server <= 0 || server > kLastSaneTime) return;
  Nanos answered_at = core_.clock().real();
  time_offset_.store(server - (asked_at + (answered_at - asked_at) / 2), std::memory_order_relaxed);
}

Task<Result<void>> MdsClient::bind(rpc::PeerPtr peer) {
  uint64_t known = session();
  bool must_open = false;
  {
    std::lock_guard lock(mutex_);
    must_open = known == 0 || incarnation() != peer->info().incarnation;
    if (must_open) {
      if (opening_) co_return Err(Errc::kRetryLater, "another connection is opening the session");
      opening_ = true;
    }
  }
  Result<void> done;
  if (!must_open) {
    wire::SessionBindRequestT request;
    request.session = known;
    rpc::CallOptions options;
    options.session = known;
    options.deadline = core_.clock().boot() + 10 * kSecond;
    auto bound = co_await rpc::call<rpc::Method::kSessionBind>(peer, std::move(request), options);
    if (!bound && bound.error().code != Errc::kNoSession) co_return std::unexpected(std::move(bound).error());
    if (!bound) {
      {
        std::lock_guard lock(mutex_);
        if (opening_) co_return Err(Errc::kRetryLater, "another connection is opening the session");
        opening_ = true;
      }
      must_open = true;
    }
  }
  if (must_open) {
    done = co_await open_session(peer, known);
    std::lock_guard lock(mutex_);
    opening_ = false;
    if (!done && fatal_ && is_final_refusal(done.error().code)) fatal_->fire(done.error());
  }
  if (!done) co_return done;
  connected_.fetch_add(1);
  std::weak_ptr<Core> weak = core_.weak_from_this();
  peer->on_close([weak](Error) {
    auto core = weak.lock();
    if (!core) return;
    core->mds.connected_.fetch_sub(1);
    std::lock_guard lock(core->mds.mutex_);
    core->mds.keepalive_wake_.set();
  });
  core_.locks.ask_again();  // a grant may have been lost with the old connection
  co_return Result<void>{};
}

Task<Result<void>> MdsClient::open_session(rpc::PeerPtr peer, uint64_t resume) {
  const auto& o = core_.options;
  wire::SessionOpenRequestT request;
  request.client_uuid.assign(o.client_uuid.begin(), o.client_uuid.end());
  request.host = o.host;
  request.mount = o.mount_point;
  request.pid = static_cast<uint32_t>(::getpid());
  request.subdir = o.subdir;
  request.read_only = o.read_only;
  request.resume = resume;
  request.acked = acked_.load();
  Nanos asked_at = core_.clock().real();
  rpc::CallOptions options;
  options.deadline = core_.clock().boot() + 30 * kSecond;
  CO_TRY(wire::SessionOpenReplyT reply, co_await rpc::call<rpc::Method::kSessionOpen>(peer, std::move(request), options));
  set_time(reply.time, asked_at);
  if (reply.session == 0 || reply.slots == 0) co_return Err(Errc::kProtocol, "the metadata server opened a session without a number or slots");
  bool same = resume != 0 && reply.resumed && reply.session == resume;
  if (reply.lost) {
    log::error("{}: lost its power before changes that this client had been told of were synced; fsync of what is open fails once with EIO, compare the last seconds of work with what is there", name_);
    acked_.store(0);
    losses_.fetch_add(1, std::memory_order_release);
  }
  adopt_session(reply, resume);
  if (same && reply.incarnation != incarnation()) CO_CHECK_OK(co_await reclaim(peer));
  incarnation_.store(peer->info().incarnation ? peer->info().incarnation : reply.incarnation, std::memory_order_release);
  co_return Result<void>{};
}

void MdsClient::adopt_session(const wire::SessionOpenReplyT& reply, uint64_t resume) {
  bool same = resume != 0 && reply.resumed && reply.session == resume;
  {
    std::lock_guard lock(mutex_);
    if (reply.root) root_ = *reply.root;
  }
  if (reply.keepalive_ms) keepalive_.store(Nanos{reply.keepalive_ms} * kMillisecond);
  if (!same) {
    session_.store(reply.session, std::memory_order_release);
    slots_.reset(reply.session, reply.slots);
    if (resume != 0) {
      evicted_.store(true);
      log::error("the metadata server has evicted session {} of this client: open files answer ESTALE, locks are gone, data that was not yet stable is lost; session {} serves new work", resume, reply.session);
      core_.session_lost(reply.session);
    }
  }
  if (reply.map) {
    map_version_.store(reply.map->version);
    core_.apply_map(*reply.map);
  }
}

Task<Result<void>> MdsClient::reclaim(rpc::PeerPtr peer) {
  log::info("{}: restarted; giving it back what this client holds", name_);
  // An append that began before the restart must be in the objects before anybody else gets the token.
  Nanos until = core_.clock().boot() + kAppendDrain;
  while (core_.appends_under_way.load() > 0 && core_.clock().boot() < until) (void)co_await sleep_for(5 * kMillisecond);
  auto opens = core_.inodes.opens(session());
  auto locks = core_.locks.held();
  size_t o = 0, l = 0;
  std::vector<uint64_t> refused;
  for (bool done = false; !done;) {
    wire::ReclaimRequestT request;
    for (; o < opens.size() && request.opens.size() < kReclaimBatch; ++o) request.opens.push_back(std::move(opens[o]));
    for (; l < locks.size() && request.opens.size() + request.locks.size() < kReclaimBatch; ++l) request.locks.push_back(std::move(locks[l]));
    done = request.done = o == opens.size() && l == locks.size();
    rpc::CallOptions options;
    options.session = session();
    options.deadline = core_.clock().boot() + 30 * kSecond;
    CO_TRY(wire::ReclaimReplyT reply, co_await rpc::call<rpc::Method::kReclaim>(peer, std::move(request), options));
    refused.insert(refused.end(), reply.refused.begin(), reply.refused.end());
  }
  if (!refused.empty()) {
    log::error("{}: {} open files could not be reclaimed after its restart; they answer ESTALE", name_, refused.size());
    core_.inodes.make_stale(refused);
  }
  co_return Result<void>{};
}

Task<Result<void>> MdsClient::reclaim_open(Ino ino, uint64_t handle, uint32_t flags, OpPtr op) {
  wire::ReclaimRequestT request;
  auto open = std::make_unique<wire::ReclaimOpenT>();
  open->ino = ino.v;
  open->handle = handle;
  open->flags = flags;
  request.opens.push_back(std::move(open));
  request.done = true;
  auto reply = co_await call<rpc::Method::kReclaim>(std::move(request), op, CallExtra{.session = session()});
  if (!reply) co_return std::unexpected(std::move(reply).error());
  if (!reply->refused.empty()) co_return Err(Errc::kStale, "the open was lost in a restart of the metadata server");
  co_return Result<void>{};
}

Task<rpc::Reply> MdsClient::handle(rpc::PeerPtr, rpc::Request request) {
  switch (static_cast<rpc::Method>(request.header.method)) {
    case rpc::Method::kLockGranted: {
      auto call = decode<wire::LockGrantedCallT>(request.body);
      if (!call) co_return rpc::fail(call.error());
      core_.locks.granted(call->waiter, from_wire(call->status));
      co_return rpc::ok(wire::EmptyT{});
    }
    case rpc::Method::kSizeGrew: {
      auto call = decode<wire::SizeGrewCallT>(request.body);
      if (!call) co_return rpc::fail(call.error());
      if (core_.options.hooks.size_grew) core_.options.hooks.size_grew(Ino(call->ino), call->size);
      co_return rpc::ok(wire::EmptyT{});
    }
    default: co_return rpc::fail(Error(Errc::kOpNotSupp, "a client doesn't serve this method"));
  }
}

Task<Result<void>> MdsClient::keep_alive_once(OpPtr op) {
  wire::KeepaliveRequestT request;
  request.map_version = map_version_.load();
  auto oldest = core_.waits.oldest(core_.clock().boot());
  request.oldest_wait_ms = static_cast<uint32_t>(std::min<Nanos>(oldest.age / kMillisecond, UINT32_MAX));
  request.oldest_wait = oldest.text;
  request.atimes = core_.atimes.pending(kAtimesPerKeepalive);
  auto reported = request.atimes;
  Nanos asked_at = core_.clock().real();
  CO_TRY(wire::KeepaliveReplyT reply, co_await call<rpc::Method::kKeepalive>(std::move(request), op));
  set_time(reply.time, asked_at);
  core_.atimes.reported(reported);
  if (reply.map_version > map_version_.load()) CO_CHECK_OK(co_await refresh_map(op));
  co_return Result<void>{};
}

Task<void> MdsClient::keep_alive(std::shared_ptr<Core> core) {
  bool failed = false;
  while (!core->stopping()) {
    Signal wake;
    {
      std::lock_guard lock(mutex_);
      keepalive_wake_ = wake;
    }
    const Nanos period = keepalive_.load();
    // After a failure at once again: a restarted server holds its recovery window open for this client.
    auto woken = co_await wake.wait(core->clock().boot() + (failed ? kPauseMin : period), core->stop);
    if (core->stopping()) co_return;
    if (woken) (void)co_await sleep_for(kPauseMin);  // a connection broke: no storm while the server is down
    auto op = make_op(core, "Keepalive", Caller{});
    op->unlimited();
    op->limit(core->clock().boot() + std::max(period, 5 * kSecond));
    auto done = co_await keep_alive_once(op);
    failed = !done;
    if (!done && !core->stopping()) log::debug("keepalive: {}", done.error().message());
  }
}

Task<Result<void>> MdsClient::refresh_map(OpPtr op) {
  wire::MapGetRequestT request;
  CO_TRY(wire::ClusterMapT map, co_await call<rpc::Method::kMapGet>(std::move(request), op));
  map_version_.store(map.version);
  core_.apply_map(map);
  co_return Result<void>{};
}

}  // namespace nacre::client
