// SPDX-License-Identifier: Apache-2.0
// See objects.h.
#include "metadata/targets/objects.h"

#include <algorithm>
#include <map>

#include "common/wire/bits.h"

namespace nacre::mds {

Glimpse glimpse_of(const schema::InodeRecordT& record, const std::vector<layout::StripeRef>& objects, const wire::ObjectStat* stats) {
  Glimpse out{Ino(record.ino)};
  if (record.layout) out.generation = record.layout->generation;
  for (size_t i = 0; i < objects.size(); ++i) {
    const wire::ObjectStat& s = stats[i];
    if (!s.exists()) continue;
    const ObjectId& o = objects[i].object;
    out.size = std::max(out.size, layout::file_end(*record.layout->components[o.component], o.stripe, s.size()));
    out.allocated += s.allocated();
    out.changed = std::max(out.changed, s.changed());
  }
  return out;
}

namespace {
/// Indexes of what goes to one target in one call.
struct Share {
  OstId ost;
  std::vector<size_t> index;
};

template <class F>
std::vector<Share> shares(size_t count, size_t most, F ost_of) {
  std::map<OstId, size_t> open;  // target → its share that has room
  std::vector<Share> out;
  for (size_t i = 0; i < count; ++i) {
    const OstId ost = ost_of(i);
    auto it = open.find(ost);
    if (it == open.end() || out[it->second].index.size() >= most) {
      open[ost] = out.size();
      out.push_back({ost, {}});
      it = open.find(ost);
    }
    out[it->second].index.push_back(i);
  }
  return out;
}

using Stats = std::vector<wire::ObjectStat>;
}  // namespace

/// Who asks for an object on a target that is down anyway comes back later instead of waiting here.
Nanos Objects::patience(OstId ost, Nanos deadline) const {
  auto endpoint = registry_.endpoint(ost);
  return endpoint && endpoint->up ? deadline : std::min(deadline, clock_.boot() + kDownAnswer);
}

Task<Result<Stats>> Objects::stat(std::vector<layout::StripeRef> objects, Nanos deadline, CancelPtr cancel) {
  Stats out(objects.size());
  auto parts = shares(objects.size(), kMaxStatsPerCall, [&](size_t i) { return objects[i].ost; });
  auto ask = [](Objects& self, const Share& part, const std::vector<layout::StripeRef>& all, Stats& into, Nanos until, CancelPtr stop) -> Task<Result<void>> {
    auto endpoint = self.registry_.endpoint(part.ost);
    if (endpoint && endpoint->state == wire::kOstInactive) co_return Result<void>{};
    wire::ObjectStatRequestT request;
    request.objects.reserve(part.index.size());
    for (size_t i : part.index) request.objects.push_back(to_ref(all[i].object));
    auto reply = co_await self.channels_.call<rpc::Method::kObjectStat>(part.ost, std::move(request), self.patience(part.ost, until), std::move(stop));
    if (!reply && reply.error().code == Errc::kOstInactive) co_return Result<void>{};
    if (!reply) co_return std::unexpected(std::move(reply).error());
    if (reply->stats.size() != part.index.size()) co_return Err(Errc::kProtocol, fmt::format("ost{} answered {} stats for {} objects", part.ost.v, reply->stats.size(), part.index.size()));
    for (size_t k = 0; k < part.index.size(); ++k) into[part.index[k]] = reply->stats[k];
    co_return Result<void>{};
  };
  if (parts.size() == 1) {  // the common case: no coroutines of their own
    CO_CHECK_OK(co_await ask(*this, parts[0], objects, out, deadline, std::move(cancel)));
    co_return out;
  }
  std::vector<Task<Result<void>>> tasks;
  for (const Share& part : parts) tasks.push_back(ask(*this, part, objects, out, deadline, cancel));
  auto done = co_await when_all(std::move(tasks));
  for (auto& d : done)
    if (!d) co_return std::unexpected(std::move(d).error());
  co_return out;
}

/// Committed records of the inodes; ino 0 for those that are gone. Memory first, then the disk on a worker.
Task<Result<std::vector<schema::InodeRecordT>>> Objects::records(std::vector<Ino> inos) {
  auto read = [this, &inos](Tier tier) -> Result<std::vector<schema::InodeRecordT>> {
    View view(store_, tier);
    std::vector<std::string> keys;
    for (Ino ino : inos) keys.push_back(inode_key(ino));
    NACRE_TRY(auto rows, view.multi_get(Family::kInode, keys));
    std::vector<schema::InodeRecordT> out(inos.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i]) continue;
      NACRE_TRY(out[i], decode_record<schema::InodeRecordT>(*rows[i]));
    }
    return out;
  };
  auto quick = read(Tier::kCached);
  if (quick || quick.error().code != Errc::kIncomplete) co_return quick;
  co_return co_await run_blocking([&read] { return read(Tier::kFull); });
}

Task<Result<std::vector<Glimpse>>> Objects::glimpse(std::vector<Ino> inos, Nanos deadline, CancelPtr cancel) {
  CO_TRY(auto found, co_await records(inos));
  std::vector<layout::StripeRef> all;
  std::vector<std::vector<layout::StripeRef>> each(inos.size());
  for (size_t i = 0; i < inos.size(); ++i) {
    if (found[i].ino == 0 || !found[i].layout) continue;
    each[i] = layout::used_objects(*found[i].layout, inos[i]);
    all.insert(all.end(), each[i].begin(), each[i].end());
  }
  CO_TRY(auto stats, co_await stat(std::move(all), deadline, std::move(cancel)));
  std::vector<Glimpse> out;
  size_t at = 0;
  for (size_t i = 0; i < inos.size(); ++i) {
    found[i].ino = inos[i].v;  // also of one that is gone
    out.push_back(glimpse_of(found[i], each[i], stats.data() + at));
    at += each[i].size();
  }
  co_return out;
}

Task<Result<Stats>> Objects::command(std::vector<TargetCommand> commands, bool sync, Nanos deadline, CancelPtr cancel) {
  Stats out(commands.size());
  auto parts = shares(commands.size(), kMaxCommandsPerCall, [&](size_t i) { return commands[i].ost; });
  auto send = [](Objects& self, const Share& part, const std::vector<TargetCommand>& all, bool stable, Stats& into, Nanos until, CancelPtr stop) -> Task<Result<void>> {
    wire::ObjectCommandRequestT request;
    request.sync = stable;
    request.commands.reserve(part.index.size());
    for (size_t i : part.index) {
      const TargetCommand& c = all[i];
      auto out = std::make_unique<wire::ObjectCommandT>();
      out->object = std::make_unique<schema::ObjectRef>(to_ref(c.object));
      out->kind = c.kind;
      out->offset = c.offset;
      out->length = c.length;
      out->command = c.number.v;
      out->fileset = c.fileset.v;
      request.commands.push_back(std::move(out));
    }
    auto reply = co_await self.channels_.call<rpc::Method::kObjectCommands>(part.ost, std::move(request), self.patience(part.ost, until), std::move(stop));
    if (!reply) co_return std::unexpected(std::move(reply).error());
    if (reply->stats.size() != part.index.size()) co_return Err(Errc::kProtocol, fmt::format("ost{} answered {} results for {} commands", part.ost.v, reply->stats.size(), part.index.size()));
    std::vector<uint64_t> done = std::move(reply->done);
    std::sort(done.begin(), done.end());
    for (size_t k = 0; k < part.index.size(); ++k) {
      const uint64_t number = all[part.index[k]].number.v;
      if (!std::binary_search(done.begin(), done.end(), number)) co_return Err(Errc::kIo, fmt::format("ost{} did not carry out command {}", part.ost.v, number));
      into[part.index[k]] = reply->stats[k];
    }
    co_return Result<void>{};
  };
  std::vector<Task<Result<void>>> tasks;
  for (const Share& part : parts) tasks.push_back(send(*this, part, commands, sync, out, deadline, cancel));
  auto done = co_await when_all(std::move(tasks));
  for (auto& d : done)
    if (!d) co_return std::unexpected(std::move(d).error());
  co_return out;
}

}  // namespace nacre::mds
