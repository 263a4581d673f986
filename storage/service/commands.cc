// SPDX-License-Identifier: Apache-2.0
// Requests of the metadata server (stat, commands, fence), admitted by service.cc, and status, which every peer may ask.
#include <unistd.h>

#include <algorithm>

#include "common/wire/bits.h"
#include "storage/service/state.h"

namespace nacre::storage {
namespace {
wire::ObjectStat to_wire(const ObjectInfo& i) { return wire::ObjectStat(i.size, i.allocated, i.changed, i.wseq.v, i.exists); }

Result<std::vector<Command>> commands_of(const wire::ObjectCommandRequest& q) {
  std::vector<Command> out;
  if (q.commands() == nullptr) return out;
  if (q.commands()->size() > kMaxCommands) return Err(Errc::kTooBig, fmt::format("{} commands in one request; at most {} are allowed", q.commands()->size(), kMaxCommands));
  for (const wire::ObjectCommand* c : *q.commands()) {
    if (c->object() == nullptr) return Err(Errc::kProtocol, "a command without an object");
    const ObjectId object = to_id(*c->object());
    if (c->kind() < wire::kCmdDestroy || c->kind() > wire::kCmdUnseal) return Err(Errc::kProtocol, fmt::format("a command of the unknown kind {} for object {}", c->kind(), object));
    if (c->command() == 0) return Err(Errc::kProtocol, fmt::format("a command without a number for object {}", object));
    out.push_back({object, c->kind(), c->offset(), c->length(), CmdSeq(c->command()), FilesetId(c->fileset())});
  }
  return out;
}
}  // namespace

Task<rpc::Reply> serve_stat(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectStatRequestT>(request.body);
  if (!m) co_return s->refuse(m.error(), peer);
  std::vector<ObjectId> objects;
  if (const auto* list = (*m)->objects()) {
    if (list->size() > kMaxStatsPerRequest) co_return s->refuse({Errc::kTooBig, fmt::format("{} objects in one request; at most {} are allowed", list->size(), kMaxStatsPerRequest)}, peer);
    objects.reserve(list->size());
    for (const schema::ObjectRef* ref : *list) objects.push_back(to_id(*ref));
  }
  auto infos = co_await s->store->stat(std::move(objects));
  if (!infos) co_return s->refuse(infos.error(), peer);
  count(s->metrics.stats, infos->size());
  wire::ObjectStatReplyT reply;
  reply.stats.reserve(infos->size());
  for (const ObjectInfo& i : *infos) reply.stats.push_back(to_wire(i));
  co_return rpc::ok(reply);
}

Task<rpc::Reply> serve_commands(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectCommandRequestT>(request.body);
  if (!m) co_return s->refuse(m.error(), peer);
  auto commands = commands_of(**m);
  if (!commands) co_return s->refuse(commands.error(), peer);
  auto done = co_await s->store->commands(std::move(*commands), (*m)->sync());
  if (!done) co_return s->refuse(done.error(), peer);
  count(s->metrics.commands, done->done.size());
  wire::ObjectCommandReplyT reply;
  for (CmdSeq c : done->done) reply.done.push_back(c.v);
  for (const ObjectInfo& i : done->infos) reply.stats.push_back(to_wire(i));
  co_return rpc::ok(reply);
}

Task<rpc::Reply> serve_fence(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::FenceRequestT>(request.body);
  if (!m) co_return s->refuse(m.error(), peer);
  const SessionId session((*m)->session());
  if (auto stored = co_await s->store->set_fences({FenceEntry{session, (*m)->until()}}); !stored) co_return s->refuse(stored.error(), peer);
  // Complete only when what was admitted before is over.
  if ((*m)->until() != 0) co_await s->sessions.drained(session);
  if ((*m)->until() != 0) s->writers.reported(session);
  count(s->metrics.fences);
  co_return rpc::ok(wire::EmptyT());
}

Task<rpc::Reply> serve_list(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectListRequestT>(request.body);
  if (!m) co_return s->refuse(m.error(), peer);
  std::optional<ObjectId> after;
  if (const schema::ObjectRef* ref = (*m)->after()) after = to_id(*ref);
  auto list = co_await s->store->list(after, std::clamp<size_t>((*m)->limit(), 1, kMaxListed));
  if (!list) co_return s->refuse(list.error(), peer);
  wire::ObjectListReplyT reply;
  reply.objects.reserve(list->objects.size());
  for (const ListedObject& o : list->objects) reply.objects.emplace_back(to_ref(o.object), to_wire(o.info), o.fileset.v);
  reply.end = list->end;
  reply.total = list->total;
  co_return rpc::ok(reply);
}

Task<rpc::Reply> serve_scrub(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectScrubRequestT>(request.body);
  if (!m) co_return s->refuse(m.error(), peer);
  const schema::ObjectRef* ref = (*m)->after();
  auto done = co_await s->store->scrub(ref ? to_id(*ref) : ObjectId{}, (*m)->chunk(), std::clamp((*m)->max_bytes(), kMinScrub, kMaxScrub));
  if (!done) co_return s->refuse(done.error(), peer);
  count(s->metrics.scrubbed_bytes, done->bytes);
  wire::ObjectScrubReplyT reply;
  for (const DamagedRange& d : done->damaged) reply.bad.emplace_back(to_ref(d.object), d.offset, d.length);
  reply.last = std::make_unique<schema::ObjectRef>(to_ref(done->object));
  reply.chunk = done->chunk;
  reply.end = done->end;
  reply.bytes = done->bytes;
  co_return rpc::ok(reply);
}

Task<rpc::Reply> serve_status(StatePtr s, rpc::PeerPtr, rpc::Request) {
  const Usage u = s->store->usage();
  const Status st = s->store->status();
  wire::OssStatusReplyT r;
  r.version = NACRE_VERSION;
  r.ost = s->ost.id;
  r.incarnation = s->incarnation;
  r.pid = static_cast<uint32_t>(::getpid());
  r.uptime_ms = static_cast<uint64_t>((s->runtime.clock().boot() - s->started) / kMillisecond);
  r.capacity = u.capacity, r.used = u.used, r.available = u.available, r.objects = u.objects;
  r.txg = st.txg;
  r.stable = st.stable.v;
  r.wseq = st.last.v;
  r.serving = s->enrollment->serving();
  r.io = st.io;
  r.checksum_errors = st.checksum_errors;
  r.metrics = s->metrics.list();
  auto add = [&r](const char* name, uint64_t value) {
    r.metrics.push_back(std::make_unique<wire::MetricT>());
    r.metrics.back()->name = name;
    r.metrics.back()->value = value;
  };
  add("resends_applied", st.resends_applied);
  add("resends_refused", st.resends_refused);
  add("free_extents", st.free_extents);
  add("undo_restored", st.undo_restored);
  add("remembered_writes", s->sessions.results());
  add("buffer_pool_bytes", Buffer::pool_bytes());
  co_return rpc::ok(r);
}

}  // namespace nacre::storage
