// SPDX-License-Identifier: Apache-2.0
// What administrators ask: clients, storage targets, the server itself.
#include <unistd.h>

#include "common/log/log.h"
#include "common/wire/bits.h"
#include "metadata/service/methods.h"
#include "metadata/store/backup.h"

namespace nacre::mds::methods {
namespace {
constexpr size_t kClientsPerPage = 1000;

std::unique_ptr<wire::ClientEntryT> entry(Core& core, const Session& s) {
  auto e = std::make_unique<wire::ClientEntryT>();
  const auto& r = s.record();
  e->session = r.id;
  e->host = r.host;
  e->mount = r.mount;
  e->pid = r.pid;
  e->address = s.address();
  e->opens = static_cast<uint32_t>(core.opens.count(s.id()));
  e->locks = static_cast<uint32_t>(core.locks.count(s.id()));
  e->last_seen_ms = static_cast<uint64_t>(std::max<Nanos>(core.clock.boot() - s.last_seen(), 0) / kMillisecond);
  std::tie(e->oldest_wait_ms, e->oldest_wait) = s.oldest_wait();
  e->created = r.created;
  e->read_only = r.read_only;
  return e;
}

constexpr size_t kMaxNamedWaits = 100;   ///< sessions that a status names

/// Who holds the recovery up.
std::vector<std::string> waited_for(Core& core) {
  std::vector<std::string> out = core.restoration->waiting_for();
  for (SessionId at(0); out.size() < kMaxNamedWaits;) {
    const auto page = core.sessions->after(at, kClientsPerPage);
    if (page.empty()) break;
    at = page.back()->id();
    for (const auto& s : page) {
      if (!s->holds_window() || out.size() >= kMaxNamedWaits) continue;
      out.push_back(fmt::format("session {} ({} on {}){}", s->id().v, s->record().mount, s->record().host, s->state() == Session::State::kEvicting ? ", which is being evicted" : " to reclaim"));
    }
  }
  return out;
}

void metric(wire::MdsStatusReplyT& reply, std::string name, uint64_t value) {
  auto m = std::make_unique<wire::MetricT>();
  m->name = std::move(name);
  m->value = value;
  reply.metrics.push_back(std::move(m));
}
}  // namespace

Task<Result<Bytes>> client_list(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::ClientListRequestT>(call->request.body));
  wire::ClientListReplyT reply;
  auto page = core.sessions->after(SessionId(q.after), kClientsPerPage + 1);
  reply.more = page.size() > kClientsPerPage;
  if (reply.more) page.pop_back();
  for (const SessionPtr& s : page) reply.clients.push_back(entry(core, *s));
  co_return encode(reply);
}

Task<Result<Bytes>> client_evict(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::ClientEvictRequestT>(call->request.body));
  SessionPtr session = core.sessions->find(SessionId(q.session));
  if (!session) co_return Err(Errc::kNoSession, fmt::format("there is no session {}", q.session));
  CO_CHECK_OK(co_await core.evictor->evict(session, "an administrator asked for it"));
  co_return encode(wire::EmptyT{});
}

Task<Result<Bytes>> ost_set_state(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::OstSetStateRequestT>(call->request.body));
  if (q.state == wire::kOstInactive && core.restoration->give_up(OstId(q.ost))) co_return encode(wire::EmptyT{});
  CO_CHECK_OK(co_await core.registry->set_state(OstId(q.ost), q.state));
  co_return encode(wire::EmptyT{});
}

Task<Result<Bytes>> status(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::MdsStatusRequestT>(call->request.body));
  if (q.abort_recovery && core.restoration->active())
    co_return Err(Errc::kRecovering, "the metadata was restored from a backup and waits for storage targets, not for clients: 'nacre ost deactivate' gives up one that won't come back");
  if (q.abort_recovery && core.sessions->recovering()) {
    log::warn("an administrator ended the recovery: {} sessions that have not reclaimed are evicted", core.sessions->unreclaimed());
    core.sessions->end_window();
  }
  wire::MdsStatusReplyT reply;
  reply.version = NACRE_VERSION;
  reply.incarnation = core.store->incarnation();
  reply.pid = static_cast<uint32_t>(::getpid());
  reply.uptime_ms = static_cast<uint64_t>((core.clock.boot() - core.started) / kMillisecond);
  reply.recovering = core.sessions->recovering() || core.restoration->active();
  if (reply.recovering) {
    reply.recovery_left_ms = static_cast<uint64_t>(std::max<Nanos>(core.sessions->window_end() - core.clock.boot(), 0) / kMillisecond);
    reply.waiting_for = waited_for(core);
  }
  reply.sessions = static_cast<uint32_t>(core.sessions->size());
  reply.reclaimed = static_cast<uint32_t>(core.sessions->reclaimed());
  for (auto [ost, n] : core.owed->counts()) {
    reply.owed += n;
    reply.owed_by_ost.emplace_back(ost.v, n);
  }
  reply.orphans = core.orphans->size();
  reply.journal = core.journal->committed().v;
  reply.synced = core.journal->synced().v;
  reply.inodes = static_cast<uint64_t>(std::max<int64_t>(core.journal->usage_total().inodes, 0));
  reply.map_version = core.registry->version();
  const DriverMetrics& m = core.driver->metrics();
  metric(reply, "operations", m.operations);
  metric(reply, "commits", m.commits);
  metric(reply, "restarts", m.restarts);
  metric(reply, "rehearsals", m.rehearsals);
  metric(reply, "parks", m.parks);
  metric(reply, "replays", m.replays);
  metric(reply, "opens", core.opens.total());
  metric(reply, "locks", core.locks.total());
  metric(reply, "unreclaimed", core.sessions->unreclaimed());
  co_return encode(reply);
}

Task<Result<Bytes>> backup(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::MdsBackupRequestT>(call->request.body));
  static std::atomic<bool> under_way{false};
  if (under_way.exchange(true)) co_return Err(Errc::kRetryLater, "another backup is under way");
  log::info("a backup of the metadata is made in {}", q.directory);
  auto made = co_await run_blocking([&core, &q] { return make_backup(*core.journal, q.directory); });
  under_way = false;
  if (!made) {
    log::error("backup: {}", made.error().message());
    co_return std::unexpected(std::move(made).error());
  }
  log::info("the backup in {} is complete: {} bytes, up to journal number {}", q.directory, made->bytes, made->journal);
  wire::MdsBackupReplyT reply;
  reply.journal = made->journal;
  reply.bytes = made->bytes;
  co_return encode(reply);
}

Task<Result<Bytes>> fsck(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::FsckRequestT>(call->request.body));
  CO_TRY(auto reply, co_await core.checker->page(std::move(q)));
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
