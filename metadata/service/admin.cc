// SPDX-License-Identifier: Apache-2.0
// What administrators ask: clients, storage targets, the server itself.
#include <unistd.h>

#include "common/wire/bits.h"
#include "metadata/service/methods.h"

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
  CO_CHECK_OK(co_await core.registry->set_state(OstId(q.ost), q.state));
  co_return encode(wire::EmptyT{});
}

Task<Result<Bytes>> status(Core& core, CallPtr call) {
  CO_CHECK_OK(view<wire::MdsStatusRequestT>(call->request.body));
  wire::MdsStatusReplyT reply;
  reply.version = NACRE_VERSION;
  reply.incarnation = core.store->incarnation();
  reply.pid = static_cast<uint32_t>(::getpid());
  reply.uptime_ms = static_cast<uint64_t>((core.clock.boot() - core.started) / kMillisecond);
  reply.recovering = core.sessions->recovering();
  reply.sessions = static_cast<uint32_t>(core.sessions->size());
  reply.reclaimed = static_cast<uint32_t>(core.sessions->reclaimed());
  reply.owed = core.owed->count();
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

Task<Result<Bytes>> fsck(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::FsckRequestT>(call->request.body));
  CO_TRY(auto reply, co_await core.checker->page(std::move(q)));
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
