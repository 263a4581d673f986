// SPDX-License-Identifier: Apache-2.0
// See registry.h.
#include "metadata/targets/registry.h"

#include <algorithm>

#include "common/log/log.h"
#include "common/wire/bits.h"

namespace nacre::mds {
namespace {
constexpr std::string_view kMapRow = "map";
}

Result<std::unique_ptr<Registry>> Registry::open(Journal& journal, Options options) {
  std::unique_ptr<Registry> out(new Registry(journal, options));
  out->started_ = options.clock->boot();
  View view(journal.store(), Tier::kFull);
  auto stored = view.get_record<schema::MapRecordT>(Family::kMeta, kMapRow);
  if (!stored) return std::unexpected(std::move(stored).error());
  out->version_ = (*stored ? (*stored)->version : 0) + kMapVersionsPerStart;
  Result<void> bad;
  auto scanned = view.scan(Family::kOst, "", "", [&](std::string_view key, std::string_view value) {
    auto id = parse_ost_key(key);
    auto record = decode_record<schema::OstRecordT>(value);
    if (!id || !record) {
      bad = Err(Errc::kCorrupt, "a record of a storage target is damaged: run nacre fsck");
      return false;
    }
    out->targets_[*id].record = std::move(*record);
    return true;
  });
  if (!scanned) return std::unexpected(std::move(scanned).error());
  if (!bad) return std::unexpected(std::move(bad).error());
  auto committed = out->store(nullptr);
  if (!committed) return std::unexpected(std::move(committed).error());
  return out;
}

/// Commits the map's version, and a target's record if there is one.
Result<JournalNo> Registry::store(const schema::OstRecordT* record) {
  Batch batch;
  schema::MapRecordT map;
  map.version = version_.load();
  batch.put_record(Family::kMeta, std::string(kMapRow), map);
  if (record) batch.put_record(Family::kOst, ost_key(OstId(record->id)), *record);
  return journal_.commit(std::move(batch));
}

void Registry::changed() { version_.fetch_add(1); }

/// After a start of this server its targets are there until ost_timeout says otherwise; else the first to report would get
/// all new files.
bool Registry::presumed_up(const Target& t) const { return t.heard ? t.up : options_.clock->boot() - started_ < options_.ost_timeout; }

// ---------------------------------------------------------------- registration

static Result<void> check(const wire::OstRegisterRequestT& r) {
  if (r.ost > kMaxOstNumber) return Err(Errc::kInval, fmt::format("storage target number {}: use 0 to {}", r.ost, kMaxOstNumber));
  if (r.uuid.size() != 16) return Err(Errc::kInval, "a storage target's id has 16 bytes");
  if (r.address.empty() || r.address.size() > kMaxOstText || r.host.size() > kMaxOstText) return Err(Errc::kInval, "a storage target's address or host is empty or too long");
  if (r.pools.size() > kMaxOstPools) return Err(Errc::kInval, fmt::format("a storage target is in at most {} pools", kMaxOstPools));
  for (const auto& p : r.pools)
    if (p.empty() || p.size() > kMaxOstText) return Err(Errc::kInval, "a pool's name is empty or too long");
  return {};
}

wire::OstRegisterReplyT Registry::greeting(const Target& t) const {
  wire::OstRegisterReplyT reply;
  reply.map_version = version_.load();
  reply.time = options_.clock->real();
  reply.state = t.record.state;
  for (const auto& f : journal_.store().filesets()) reply.epochs.emplace_back(f->id, f->epoch);
  for (const auto& [session, until] : fences_)
    if (until > reply.time) reply.fences.emplace_back(session.v, until);
  return reply;
}

Result<void> Registry::may_enroll(const wire::OstRegisterRequestT& request) const {
  NACRE_CHECK_OK(check(request));
  std::lock_guard guard(mutex_);
  return check_identity(request);
}

/// Under the mutex.
Result<void> Registry::check_identity(const wire::OstRegisterRequestT& request) const {
  auto it = targets_.find(OstId(request.ost));
  if (it == targets_.end() && targets_.size() >= kMaxOsts) return Err(Errc::kRetryLater, fmt::format("the cluster has its most storage targets, {}", kMaxOsts));
  if (it != targets_.end() && it->second.record.uuid != request.uuid)
    return Err(Errc::kNotOurs, fmt::format("ost{} is on record with another identity: the directory was formatted anew or the number is used twice; give the new target a number of its own", request.ost));
  return {};
}

Task<Result<wire::OstRegisterReplyT>> Registry::enroll(wire::OstRegisterRequestT request) {
  CO_CHECK_OK(check(request));
  wire::OstRegisterReplyT reply;
  Result<JournalNo> committed = JournalNo{};
  {
    std::lock_guard guard(mutex_);
    CO_CHECK_OK(check_identity(request));
    Target& t = targets_[OstId(request.ost)];
    schema::OstRecordT& r = t.record;
    const bool differs = r.address != request.address || r.host != request.host || r.pool != request.pools || r.capacity != request.capacity || r.uuid.empty();
    r.id = request.ost;
    r.uuid = request.uuid;
    r.address = request.address;
    r.host = request.host;
    r.pool = request.pools;
    r.capacity = request.capacity;
    const bool news = differs || !t.up || t.incarnation != request.incarnation;
    t.heard = t.up = true;
    t.last_heard = options_.clock->boot();
    t.used = request.used;
    t.available = request.available;
    // Before its first start nobody had data on it.
    if (t.incarnation != request.incarnation && !request.clean && request.incarnation > 1) t.lost_until = options_.clock->real() + options_.resend_term;
    t.incarnation = request.incarnation;
    if (news) {
      changed();
      committed = store(&r);
      log::info("ost{} at {} is up (incarnation {})", r.id, r.address, t.incarnation);
    }
    reply = greeting(t);
  }
  if (!committed) co_return std::unexpected(std::move(committed).error());
  CO_CHECK_OK(co_await journal_.sync_to(*committed));
  co_return reply;
}

wire::OstHeartbeatReplyT Registry::heartbeat(const wire::OstHeartbeatRequestT& request) {
  wire::OstHeartbeatReplyT reply;
  std::lock_guard guard(mutex_);
  auto it = targets_.find(OstId(request.ost));
  reply.time = options_.clock->real();
  if (it != targets_.end() && it->second.heard && it->second.incarnation == request.incarnation) {
    Target& t = it->second;
    t.last_heard = options_.clock->boot();
    t.used = request.used;
    t.available = request.available;
    t.objects = request.objects;
    if (!t.up) {
      t.up = true;
      changed();
      log::info("ost{} answers again", request.ost);
    }
    reply.known = true;
    reply.state = t.record.state;
  }
  reply.map_version = version_.load();
  return reply;
}

Task<Result<void>> Registry::set_state(OstId ost, uint8_t state) {
  if (state > wire::kOstDraining) co_return Err(Errc::kInval, fmt::format("a storage target's state is 0 (active), 1 (inactive) or 2 (draining), not {}", state));
  Result<JournalNo> committed = JournalNo{};
  {
    std::lock_guard guard(mutex_);
    auto it = targets_.find(ost);
    if (it == targets_.end()) co_return Err(Errc::kNoEnt, fmt::format("there is no ost{}: see 'nacre ost list'", ost.v));
    if (it->second.record.state != state) {
      it->second.record.state = state;
      changed();
      committed = store(&it->second.record);
      log::info("ost{} is now {}", ost.v, state == wire::kOstActive ? "active" : state == wire::kOstInactive ? "inactive" : "draining");
    }
  }
  if (!committed) co_return std::unexpected(std::move(committed).error());
  co_return co_await journal_.sync_to(*committed);
}

void Registry::tick() {
  std::lock_guard guard(mutex_);
  const Nanos now = options_.clock->boot();
  for (auto& [id, t] : targets_) {
    if (!t.up || now - t.last_heard <= options_.ost_timeout) continue;
    t.up = false;
    changed();
    log::warn("ost{} at {} sent no heartbeat for {} s: it counts as down, new files avoid it", id.v, t.record.address, (now - t.last_heard) / kSecond);
  }
  const Nanos time = options_.clock->real();
  std::erase_if(fences_, [&](const auto& f) { return f.second <= time; });
}

void Registry::all_heard(Nanos now) {
  std::lock_guard guard(mutex_);
  for (auto& [id, t] : targets_)
    if (t.up) t.last_heard = now;
}

void Registry::fence(SessionId session, Nanos until) {
  std::lock_guard guard(mutex_);
  if (fences_.size() < kMaxFences) fences_[session] = until;
}

std::vector<OstId> Registry::silent(const std::vector<OstId>& more) const {
  std::vector<OstId> out;
  std::lock_guard guard(mutex_);
  for (const auto& [id, t] : targets_)
    if (!t.heard && t.record.state != wire::kOstInactive) out.push_back(id);
  for (OstId id : more)
    if (!targets_.contains(id)) out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

void Registry::ask_again() {
  std::lock_guard guard(mutex_);
  for (auto& [id, t] : targets_) t.heard = false;
}

Result<void> Registry::raise_version(uint64_t by) {
  std::lock_guard guard(mutex_);
  version_.fetch_add(by);
  auto committed = store(nullptr);
  if (!committed) return std::unexpected(std::move(committed).error());
  return {};
}

std::map<SessionId, Nanos> Registry::fences() const {
  std::lock_guard guard(mutex_);
  return fences_;
}

// ---------------------------------------------------------------- views

wire::ClusterMapT Registry::map() const {
  wire::ClusterMapT out;
  std::lock_guard guard(mutex_);
  out.version = version_.load();
  out.cluster_id.assign(options_.cluster_id.begin(), options_.cluster_id.end());
  out.mds = options_.mds;
  for (const auto& [id, t] : targets_) {
    auto e = std::make_unique<wire::OstEntryT>();
    e->id = id.v;
    e->address = t.record.address;
    e->host = t.record.host;
    e->state = t.record.state;
    e->pools = t.record.pool;
    e->capacity = t.record.capacity;
    e->used = t.used;
    e->available = t.available;
    e->up = t.heard && t.up;
    e->uuid = t.record.uuid;
    e->objects = t.objects;
    e->incarnation = t.incarnation;
    out.osts.push_back(std::move(e));
  }
  return out;
}

std::vector<Candidate> Registry::candidates() const {
  std::vector<Candidate> out;
  std::lock_guard guard(mutex_);
  out.reserve(targets_.size());
  for (const auto& [id, t] : targets_)
    out.push_back({id, t.record.capacity, t.heard ? t.available : t.record.capacity, t.record.state == wire::kOstActive, presumed_up(t), t.record.pool});
  return out;
}

bool Registry::has_pool(const std::string& pool) const {
  std::lock_guard guard(mutex_);
  return std::any_of(targets_.begin(), targets_.end(), [&](const auto& t) { return std::find(t.second.record.pool.begin(), t.second.record.pool.end(), pool) != t.second.record.pool.end(); });
}

bool Registry::has(OstId ost) const {
  std::lock_guard guard(mutex_);
  return targets_.contains(ost);
}

size_t Registry::size() const {
  std::lock_guard guard(mutex_);
  return targets_.size();
}

std::optional<Registry::Endpoint> Registry::endpoint(OstId ost) const {
  std::lock_guard guard(mutex_);
  auto it = targets_.find(ost);
  if (it == targets_.end()) return std::nullopt;
  return Endpoint{it->second.record.address, it->second.record.state, presumed_up(it->second), it->second.incarnation, it->second.lost_until};
}

Registry::Space Registry::space() const {
  Space out;
  std::lock_guard guard(mutex_);
  for (const auto& [id, t] : targets_) {
    if (t.record.state == wire::kOstInactive) continue;
    out.capacity += t.record.capacity;
    if (!t.heard) continue;
    out.free += t.record.capacity - std::min(t.used, t.record.capacity);
    out.available += t.available;
    out.objects += t.objects;
  }
  return out;
}

}  // namespace nacre::mds
