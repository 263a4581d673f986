// SPDX-License-Identifier: Apache-2.0
#include "storage/service/service.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>

#include "common/base/rng.h"
#include "common/base/units.h"
#include "common/log/log.h"
#include "common/wire/bits.h"
#include "storage/service/state.h"

namespace nacre::storage {

Semaphore& ServiceState::budget() {
  auto& slot = data_bytes[Loop::current()->index()];
  if (!slot) slot = std::make_unique<Semaphore>(kMaxDataBytes);
  return *slot;
}

void ServiceState::note(const Error& e, const rpc::PeerPtr& peer) {
  const Nanos second = runtime.clock().boot() / kSecond;
  if (log_second.exchange(second, std::memory_order_relaxed) != second) logged.store(0, std::memory_order_relaxed);
  if (logged.fetch_add(1, std::memory_order_relaxed) < kMaxRefusalsLogged) log::warn("{}: {} (from {})", name(), e.message(), peer->info().address);
}

rpc::Reply ServiceState::refuse(Error e, const rpc::PeerPtr& peer) {
  count(metrics.errors);
  if (e.code == Errc::kStaleEpoch) count(metrics.stale_epochs);
  if (e.code == Errc::kChecksum || e.code == Errc::kCorrupt) count(metrics.checksum_refusals);
  if (e.code == Errc::kCapInvalid || e.code == Errc::kCapExpired) count(metrics.capability_refusals);
  if (e.code == Errc::kChecksum || e.code == Errc::kCorrupt || e.code == Errc::kIo || e.code == Errc::kCapInvalid || e.code == Errc::kProtocol || e.code == Errc::kPerm) note(e, peer);
  e.detail = fmt::format("{}: {}", name(), e.detail.empty() ? std::string(text_of(e.code)) : e.detail);
  return rpc::fail(std::move(e));
}

Result<void> ServiceState::admit(const rpc::PeerPtr& peer, const wire::Capability* cap, const ObjectId& object, uint8_t mode) {
  auto* connection = std::any_cast<std::shared_ptr<Connection>>(&peer->context);
  if (connection == nullptr) {
    peer->context = std::make_shared<Connection>();
    connection = std::any_cast<std::shared_ptr<Connection>>(&peer->context);
  }
  CapabilityCache& cache = (*connection)->capabilities;
  const uint64_t before = cache.verified();
  auto verified = cache.verify(capability_key, cap, object, mode, store->now());
  count(metrics.capabilities_verified, cache.verified() - before);
  if (verified) store->note_session(SessionId(cap->session()));
  return verified;
}

Result<void> ServiceState::gathered() {
  if (!writers.gathering(runtime.clock().boot())) return {};
  return Err(Errc::kRecovering, fmt::format("it waits for {}", writers.waiting_for()));
}

/// On the peer's loop.
Task<Result<void>> ServiceState::enter_writer(const rpc::PeerPtr& peer, SessionId session) {
  auto* connection = std::any_cast<std::shared_ptr<Connection>>(&peer->context);
  if (connection != nullptr && (*connection)->writer == SessionId()) {
    (*connection)->writer = session;
    writers.connected(session);
    peer->on_close([weak = weak_from_this(), session](Error) {
      if (auto s = weak.lock()) s->writers.disconnected(session);
    });
  }
  co_return co_await writers.enter(session);
}

namespace {
/// Once a second: sessions that need not be waited for any more are let go of.
Task<void> tend_writers(std::weak_ptr<ServiceState> weak) {
  while (co_await sleep_for(kSecond)) {
    StatePtr s = weak.lock();
    if (!s || !s->requests.enter()) co_return;
    const config::Settings& settings = s->options.cluster.settings;
    const Nanos evicted = static_cast<Nanos>(settings.lease_term + 2 * settings.lease_skew) * kMillisecond;
    if (s->enrollment->serving()) s->writers.serves(s->runtime.clock().boot(), evicted + kEvictionTakes);
    for (SessionId session : s->writers.awaited())
      if (s->store->fenced(session)) s->writers.reported(session);
    auto done = co_await run_blocking([&]() -> Result<void> { return s->writers.prune(s->store->stable(), s->runtime.clock().boot()); });
    if (!done) log::error("{}: {}", s->name(), done.error().message());
    s->requests.leave();
  }
}

/// Passes a request on. `tied`: it came over the connection this target made to the metadata server.
Task<rpc::Reply> dispatch(StatePtr s, rpc::PeerPtr peer, rpc::Request request, bool tied) {
  const auto method = static_cast<rpc::Method>(request.header.method);
  if (method == rpc::Method::kOssStatus) co_return co_await serve_status(s, peer, std::move(request));
  const bool for_mds = method == rpc::Method::kObjectStat || method == rpc::Method::kObjectCommands || method == rpc::Method::kObjectFence ||
                       method == rpc::Method::kObjectList || method == rpc::Method::kObjectScrub;
  const bool is_mds = tied || (peer->info().role == wire::kRoleMds && peer->info().trusted);
  // A client that moves a file has to know which objects have changed.
  const bool may_look = method == rpc::Method::kObjectStat && peer->info().role == wire::kRoleClient && peer->info().trusted;
  if (for_mds && !is_mds && !may_look) co_return s->refuse({Errc::kPerm, fmt::format("only the metadata server may send {}", rpc::method_name(request.header.method))}, peer);
  // Fences are taken at any time: they only refuse more. All else waits for what the metadata server has to say first.
  if (method == rpc::Method::kObjectFence) co_return co_await serve_fence(s, peer, std::move(request));
  if (!s->enrollment->serving()) co_return s->refuse({Errc::kRecovering, "it has not yet registered with the metadata server"}, peer);
  if (method == rpc::Method::kObjectRead || method == rpc::Method::kObjectSeek || method == rpc::Method::kObjectStat)
    if (auto whole = s->gathered(); !whole) co_return rpc::fail(Error(whole.error().code, fmt::format("{}: {}", s->name(), whole.error().detail)));
  switch (method) {
    case rpc::Method::kObjectWrite: co_return co_await serve_write(s, peer, std::move(request));
    case rpc::Method::kObjectRead: co_return co_await serve_read(s, peer, std::move(request));
    case rpc::Method::kObjectCommit: co_return co_await serve_commit(s, peer, std::move(request));
    case rpc::Method::kObjectSeek: co_return co_await serve_seek(s, peer, std::move(request));
    case rpc::Method::kObjectStat: co_return co_await serve_stat(s, peer, std::move(request));
    case rpc::Method::kObjectCommands: co_return co_await serve_commands(s, peer, std::move(request));
    case rpc::Method::kObjectList: co_return co_await serve_list(s, peer, std::move(request));
    case rpc::Method::kObjectScrub: co_return co_await serve_scrub(s, peer, std::move(request));
    default: co_return s->refuse({Errc::kOpNotSupp, fmt::format("a storage target doesn't serve {} (method {})", rpc::method_name(request.header.method), request.header.method)}, peer);
  }
}

Task<rpc::Reply> handle(std::weak_ptr<ServiceState> weak, rpc::PeerPtr peer, rpc::Request request, bool tied) {
  StatePtr s = weak.lock();
  if (s && !s->ready.load(std::memory_order_acquire)) co_return rpc::fail({Errc::kRecovering, "the storage target is starting"});
  if (!s || !s->requests.enter()) co_return rpc::fail({Errc::kShutdown, "the storage target is stopping"});
  const Nanos began = s->runtime.clock().boot();
  const uint16_t number = request.header.method;
  const std::string_view method = rpc::method_name(request.header.method);
  const rpc::PeerInfo& who = peer->info();  // the peer outlives the request
  const uint64_t session = request.header.session;
  const auto text = [method, &who, session] { return fmt::format("{} of {}{}", method, who.host.empty() ? who.address : who.host, session ? fmt::format(", session {}", session) : ""); };
  rpc::Reply reply;
  {
    Watched watched(s->under_way, began, text);
    reply = co_await dispatch(s, peer, std::move(request), tied);
  }
  const Nanos took = s->runtime.clock().boot() - began;
  s->operations.note(number, took, reply.status != Errc::kOk);
  if (took >= static_cast<Nanos>(s->options.cluster.settings.oss_slow_request) * kMillisecond) {
    count(s->metrics.slow_requests);
    log::warn("{}: slow request: {} took {} ms", s->name(), text(), took / kMillisecond);
  }
  s->requests.leave();
  co_return reply;
}

/// Tells of requests that are under way for long, until the service has gone.
Task<void> watch_requests(std::weak_ptr<ServiceState> weak, Nanos limit) {
  constexpr size_t kMost = 20;
  while (co_await sleep_for(std::clamp(limit / 4, 10 * kMillisecond, 5 * kSecond))) {
    StatePtr s = weak.lock();
    if (!s) co_return;
    for (const auto& r : s->under_way.news(s->runtime.clock().boot(), limit, 10 * limit, kMost)) {
      count(s->metrics.parked_requests);
      log::warn("{}: waiting request: {} has been under way for {} s; txg {} is filling, {} requests are under way", s->name(), r.text, r.age / kSecond, s->store->status().txg, s->under_way.count());
    }
  }
}

StoreOptions store_options(const ServiceOptions& o) {
  const config::Settings& settings = o.cluster.settings;
  StoreOptions out;
  out.cluster_id = o.cluster.id;
  out.ost = OstId(o.ost);
  out.txg_interval = static_cast<Nanos>(settings.oss_txg_interval) * kMillisecond;
  out.block_cache = settings.oss_block_cache;
  out.direct = settings.oss_io == "direct";
  out.uring = settings.oss_uring;
  out.fatal = o.fatal;
  out.device = o.device;
  out.env = o.env;
  return out;
}
}  // namespace

Service::Service(StatePtr state) : state_(std::move(state)) {}
Service::~Service() = default;
bool Service::serving() const { return state_->enrollment->serving(); }
std::string Service::address() const { return state_->server->address(); }
ObjectStore& Service::store() { return *state_->store; }

Task<Result<std::unique_ptr<Service>>> Service::start(Runtime& runtime, rpc::Transport& transport, ServiceOptions options) {
  auto s = std::make_shared<ServiceState>(runtime, std::move(options));
  s->started = runtime.clock().boot();
  CO_TRY(s->ost, find_ost(s->options.cluster, s->options.ost));
  CO_TRY(s->store, co_await ObjectStore::open(runtime, s->ost.data, store_options(s->options)));
  s->incarnation = s->store->registration().incarnation;
  if (auto loaded = s->writers.load(s->ost.data, s->store->registration().clean); !loaded) {
    (void)co_await s->store->close();
    co_return Err(loaded.error());
  }

  std::weak_ptr<ServiceState> weak = s;
  rpc::ServerOptions listen{.address = s->ost.address, .cluster_id = s->options.cluster.id, .key = s->options.key, .incarnation = s->incarnation};
  auto server = rpc::serve(runtime, transport, std::move(listen), [weak](rpc::PeerPtr p, rpc::Request r) { return handle(weak, std::move(p), std::move(r), false); });
  if (!server) {
    (void)co_await s->store->close();
    co_return Err(server.error());
  }
  s->server = std::move(*server);

  Enrollment::Options tie;
  tie.cluster_id = s->options.cluster.id;
  tie.key = s->options.key;
  for (const auto& m : s->options.cluster.mds) tie.mds.push_back(m.address);
  tie.address = s->ost.address.ends_with(":0") ? s->server->address() : s->ost.address;
  tie.host = s->ost.host;
  tie.pools = s->ost.pools;
  const auto mds = tie.mds;
  tie.heartbeat = static_cast<Nanos>(s->options.cluster.settings.oss_heartbeat) * kMillisecond;
  s->enrollment = std::make_unique<Enrollment>(runtime, transport, *s->store, s->metrics, std::move(tie),
                                               [weak](rpc::PeerPtr p, rpc::Request r) { return handle(weak, std::move(p), std::move(r), true); });
  s->ready.store(true, std::memory_order_release);
  s->enrollment->start();
  open_metrics(s);
  runtime.loop(0).spawn(tend_writers(weak));
  runtime.loop(0).spawn(watch_requests(weak, static_cast<Nanos>(s->options.cluster.settings.oss_parked_request) * kMillisecond));
  log::info("{}: {} listens on {}; it serves when the metadata server at {} has answered", s->name(), s->ost.data, s->server->address(), fmt::join(mds, ", "));
  co_return std::unique_ptr<Service>(new Service(std::move(s)));
}

Task<Result<void>> Service::stop() {
  StatePtr s = state_;
  s->endpoint.reset();
  co_await s->enrollment->stop();
  co_await s->requests.close();
  s->server->stop();
  auto closed = co_await s->store->close();
  log::info("{}: {}", s->name(), closed ? "stopped, everything is stable" : "stopped uncleanly: " + closed.error().message());
  co_return closed;
}

Result<config::OstServer> find_ost(const config::Cluster& cluster, uint32_t ost) {
  for (const auto& o : cluster.osts)
    if (o.id == ost) return o;
  return Err(Errc::kConfig, fmt::format("{} lists no storage target {}: add an [[ost]] with this id, or name another with --ost", cluster.file, ost));
}

Result<uint64_t> format_target(const config::Cluster& cluster, uint32_t ost) {
  NACRE_TRY(config::OstServer o, find_ost(cluster, ost));
  if (cluster.id == std::array<uint8_t, 16>{}) return Err(Errc::kConfig, fmt::format("{} has no id: 'nacre cluster init' makes one", cluster.file));
  std::error_code ec;
  std::filesystem::create_directories(o.data, ec);
  if (ec) return Err(from_errno(ec.value()), fmt::format("the directory {} can't be made: {}", o.data, ec.message()));
  uint64_t capacity = o.size;
  if (capacity == 0) {
    struct stat own {}, other {};
    struct statvfs fs {};
    if (::stat(o.data.c_str(), &own) != 0 || ::statvfs(o.data.c_str(), &fs) != 0) return Err(from_errno(errno), fmt::format("free space of {} can't be read", o.data));
    uint64_t sharers = 0;
    for (const auto& x : cluster.osts) sharers += x.size == 0 && x.host == o.host && (x.id == o.id || ::stat(x.data.c_str(), &other) != 0 || other.st_dev == own.st_dev);
    capacity = round_down(static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize / sharers, MiB);
  }
  FormatOptions f;
  f.cluster_id = cluster.id;
  system_rng().fill(std::as_writable_bytes(std::span(f.uuid)));
  f.ost = OstId(ost);
  f.capacity = capacity;
  f.created = system_clock().real();
  NACRE_CHECK_OK(ObjectStore::format(o.data, f));
  return capacity;
}

}  // namespace nacre::storage
