// SPDX-License-Identifier: Apache-2.0
// See migrations.h.
#include "metadata/background/migrations.h"

#include <algorithm>

#include "common/base/units.h"
#include "common/log/log.h"
#include "common/wire/bits.h"
#include "metadata/ops/common.h"
#include "metadata/ops/permission.h"

namespace nacre::mds {
namespace {
constexpr Nanos kClockSlack = 2 * kSecond;  ///< a capability may be taken for valid a little longer elsewhere

bool has(const std::vector<uint32_t>& list, uint32_t ost) { return std::find(list.begin(), list.end(), ost) != list.end(); }

bool is_placed(const schema::LayoutT& layout) {
  return std::any_of(layout.components.begin(), layout.components.end(), [](const auto& c) { return c->instantiated; });
}

bool lies_on(const schema::LayoutT& layout, const std::vector<uint32_t>& osts) {
  return std::any_of(layout.components.begin(), layout.components.end(), [&](const auto& c) { return std::any_of(c->osts.begin(), c->osts.end(), [&](uint32_t o) { return has(osts, o); }); });
}

/// The template as a layout without objects, of a new generation.
schema::LayoutT blank(const schema::LayoutT& from, uint32_t generation, const std::vector<uint32_t>& avoid) {
  schema::LayoutT out = from;
  out.generation = generation;
  for (auto& c : out.components) {
    c->instantiated = false;
    c->osts.clear();
    c->stripes_used = 0;
    if (c->first_ost >= 0 && has(avoid, static_cast<uint32_t>(c->first_ost))) c->first_ost = -1;
  }
  return out;
}

schema::InodeRecordT with_layout(Ino ino, const schema::LayoutT& layout) {
  schema::InodeRecordT out;
  out.ino = ino.v;
  out.layout = std::make_unique<schema::LayoutT>(layout);
  return out;
}

void put_row(OpContext& c, Ino ino, SessionId session, const schema::LayoutT& layout) {
  schema::MigrationRecordT row;
  row.layout = std::make_unique<schema::LayoutT>(layout);
  row.session = session.v;
  row.started = c.now();
  c.batch().put_record(Family::kMeta, migration_key(ino), row);
}
}  // namespace

// ---------------------------------------------------------------- the table

std::optional<Migrations::Active> Migrations::find(Ino ino) const {
  if (count_.load() == 0) return std::nullopt;
  std::lock_guard guard(mutex_);
  auto it = active_.find(ino);
  return it == active_.end() ? std::nullopt : std::optional(it->second);
}

bool Migrations::moving(Ino ino) const {
  if (count_.load() == 0) return false;
  std::lock_guard guard(mutex_);
  auto it = active_.find(ino);
  return it != active_.end() && it->second.stage != Stage::kCopying;
}

size_t Migrations::size() const { return count_.load(); }

Result<Migrations::Active> Migrations::mine(Ino ino, SessionId session, uint64_t token) {
  std::lock_guard guard(mutex_);
  auto it = active_.find(ino);
  if (it == active_.end() || it->second.session != session || it->second.token != token) return Err(Errc::kStale, fmt::format("the migration of inode {} is over: something else changed the file, or it took too long", ino));
  it->second.heard = p_.runtime.clock().boot();
  return it->second;
}

void Migrations::change(Ino ino, const std::function<void(Active&)>& fn) {
  std::lock_guard guard(mutex_);
  if (auto it = active_.find(ino); it != active_.end()) fn(it->second);
}

/// Who waits goes on when the batch that says so is committed.
void Migrations::forget(OpContext& c, Ino ino) {
  auto woken = std::make_shared<std::vector<Signal>>();
  c.on_staged([this, ino, woken] {
    std::lock_guard guard(mutex_);
    auto it = active_.find(ino);
    if (it == active_.end()) return;
    woken->swap(it->second.waiting);
    active_.erase(it);
    count_ = active_.size();
  });
  c.on_commit([woken] {
    for (Signal& s : *woken) s.set();
  });
}

Task<Result<void>> Migrations::wait(Ino ino) {
  const Nanos deadline = p_.runtime.clock().boot() + kMovedPatience;
  Signal over;
  {
    std::lock_guard guard(mutex_);
    auto it = active_.find(ino);
    if (it == active_.end() || it->second.stage == Stage::kCopying) co_return Result<void>{};
    std::erase_if(it->second.waiting, [](const Signal& s) { return s.is_set(); });
    it->second.waiting.push_back(over);
  }
  auto done = co_await over.wait(deadline);
  if (!done && done.error().code == Errc::kDeadline) {
    over.set();  // nobody listens any more
    co_return Err(Errc::kRetryLater, fmt::format("the data of inode {} is being moved", ino));
  }
  co_return done;
}

Result<void> Migrations::end(OpContext& c, const schema::InodeRecordT& record) {
  const Ino ino(record.ino);
  auto active = find(ino);
  if (!active || active->stage == Stage::kSwitching) return {};
  NACRE_CHECK_OK(p_.owed.owe(c, with_layout(ino, active->target)));
  c.batch().del(Family::kMeta, migration_key(ino));
  forget(c, ino);
  return {};
}

// ---------------------------------------------------------------- objects

Task<Result<CmdSeq>> Migrations::number() {
  if (p_.commands.low()) CO_CHECK_OK(co_await p_.commands.refill());
  auto number = p_.commands.take();
  if (!number) co_return Err(Errc::kRetryLater, "the numbers of commands to storage targets are being refilled");
  co_return CmdSeq(*number);
}

Task<Result<std::vector<wire::ObjectStat>>> Migrations::command(uint8_t kind, const std::vector<layout::StripeRef>& objects, CmdSeq number, FilesetId fileset, uint64_t offset, Nanos deadline) {
  std::vector<TargetCommand> commands;
  for (const auto& o : objects) commands.push_back({o.ost, o.object, kind, offset, 0, number, fileset});
  co_return co_await p_.objects.command(std::move(commands), /*sync=*/kind == wire::kCmdDestroy, deadline);
}

/// The targets to copy from must be the ones they were when copying began: one that has restarted may have lost what it had
/// acknowledged, until the clients that still have it have sent it again.
Result<void> Migrations::check_targets(const std::vector<layout::StripeRef>& sources, std::map<OstId, uint64_t>& incarnations) const {
  for (const auto& o : sources) {
    auto at = p_.registry.endpoint(o.ost);
    if (!at) return Err(Errc::kOstDown, fmt::format("ost{} has never registered", o.ost));
    if (at->state == wire::kOstInactive) return Err(Errc::kOstInactive, fmt::format("ost{} was marked inactive: its data can't be read; 'nacre ost activate ost{}' brings it back", o.ost, o.ost));
    auto [known, fresh] = incarnations.emplace(o.ost, at->incarnation);
    if (known->second != at->incarnation) return Err(Errc::kStale, fmt::format("ost{} has restarted during the migration", o.ost));
    if (fresh && at->lost_until > p_.runtime.clock().real()) return Err(Errc::kRetryLater, fmt::format("ost{} came back a moment ago: clients get the time to send again what it may have lost", o.ost));
  }
  return {};
}

Result<bool> Migrations::fill(schema::LayoutT& target, uint64_t size, const std::vector<uint32_t>& avoid) {
  if (size == 0) return false;
  std::vector<Candidate> candidates = p_.registry.candidates();
  for (Candidate& x : candidates) x.active = x.active && !has(avoid, x.id.v);
  return instantiate(target, 0, std::min(size, kMaxFileSize), [this, &candidates](const schema::ComponentT& c) { return p_.chooser.choose(candidates, c.stripe_count, c.pool, c.first_ost); });
}

// ---------------------------------------------------------------- begin

Result<Migrations::State> Migrations::begin_op(OpContext& c, Ino ino, const Wish& wish) {
  NACRE_CHECK_OK(c.lock({ino}));
  NACRE_TRY(auto record, c.settled_inode(ino));
  if (!is_file(record) || !record.layout) return Err(Errc::kInval, "only plain files have data that can be moved");
  NACRE_CHECK_OK(check_owner(c, record));
  const SessionId session = c.identity().session;
  if (auto other = find(ino)) {
    if (other->stage == Stage::kSwitching) return c.park({Park::Kind::kMoved, {ino}, 0});
    if (other->session != session) return Err(Errc::kBusy, fmt::format("the data of inode {} is being moved by another client", ino));
    NACRE_CHECK_OK(end(c, record));  // its mover has begun anew
  }
  NACRE_TRY(auto attr, attr_of(c, record));
  State out;
  out.record = record;
  out.attr = attr;
  if (!wish.layout && !wish.avoid.empty() && !lies_on(*record.layout, wish.avoid)) return out;
  schema::LayoutT target = blank(wish.layout ? *wish.layout : *record.layout, next_generation(p_.services.store, record), wish.avoid);
  if (!is_placed(*record.layout)) {
    if (!wish.layout) return out;
    record.layout = std::make_unique<schema::LayoutT>(target);  // no data yet: it will be written by the new layout
    c.put_inode(record);
    return out;
  }
  if (size() >= kMaxMigrations) return Err(Errc::kRetryLater, fmt::format("{} migrations are under way, the limit", kMaxMigrations));
  Active fresh;
  NACRE_CHECK_OK(check_targets(layout::used_objects(*record.layout, ino), fresh.incarnations));
  NACRE_CHECK_OK(fill(target, attr.size, wish.avoid));
  fresh.session = session;
  fresh.token = out.token = target.generation;
  fresh.target = out.target = target;
  fresh.avoid = wish.avoid;
  fresh.heard = p_.runtime.clock().boot();
  record.shadow_generation = target.generation;
  c.put_inode(record);
  put_row(c, ino, session, target);
  c.require_sync();  // before an object of that generation can come into being
  c.on_staged([this, ino, fresh] {
    std::lock_guard guard(mutex_);
    active_[ino] = fresh;
    count_ = active_.size();
  });
  return out;
}

Task<Result<Migrations::State>> Migrations::begin(Driver& driver, OpContext& ctx, Ino ino, Wish wish) {
  co_return co_await driver.change(ctx, [&](OpContext& c) { return begin_op(c, ino, wish); });
}

Task<Result<Migrations::State>> Migrations::look(Driver& driver, OpContext& ctx, Ino ino, uint64_t token) {
  CO_TRY(Active active, mine(ino, ctx.identity().session, token));
  co_return co_await driver.read(ctx, [&](OpContext& c) -> Result<State> {
    NACRE_TRY(auto record, c.inode(ino));
    State out{token, record, active.target, plain_attr(c, record)};
    return out;
  });
}

// ---------------------------------------------------------------- seal

Task<Result<Migrations::State>> Migrations::seal(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, Nanos deadline) {
  CO_TRY(CmdSeq seal, co_await number());
  const SessionId session = ctx.identity().session;
  // From here on nobody is given a right to write, and nothing is added to the layout: these are all objects there are.
  auto record = co_await driver.change(ctx, [&](OpContext& c) -> Result<schema::InodeRecordT> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto found, c.settled_inode(ino));
    NACRE_TRY(Active active, mine(ino, session, token));
    if (active.stage == Stage::kSwitching) return Err(Errc::kStale, "the migration is committed already");
    c.on_staged([this, ino, seal] {
      change(ino, [&](Active& a) {
        a.stage = Stage::kSealing;
        a.seal = seal;
        a.until = p_.runtime.clock().boot() + p_.pause;
      });
    });
    return found;
  });
  if (!record) co_return std::unexpected(std::move(record).error());
  const auto sources = layout::used_objects(*record->layout, ino);
  auto active = mine(ino, session, token);
  Result<void> sound = active ? check_targets(sources, active->incarnations) : Result<void>(std::unexpected(active.error()));
  auto stats = sound ? co_await command(wire::kCmdSeal, sources, seal, FilesetId(record->fileset), 0, deadline) : Result<std::vector<wire::ObjectStat>>(std::unexpected(sound.error()));
  if (stats) {
    auto out = co_await close_seal(driver, ctx, ino, token, sources, std::move(*stats));
    if (out) co_return out;
    stats = std::unexpected(std::move(out).error());
  }
  (void)co_await abort(driver, ino, token);
  co_return std::unexpected(std::move(stats).error());
}

/// All objects are sealed: the file is as long as they say, and the new layout must reach as far.
Task<Result<Migrations::State>> Migrations::close_seal(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, std::vector<layout::StripeRef> sources, std::vector<wire::ObjectStat> stats) {
  const SessionId session = ctx.identity().session;
  co_return co_await driver.change(ctx, [&](OpContext& c) -> Result<State> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.settled_inode(ino));
    NACRE_TRY(Active active, mine(ino, session, token));
    if (active.stage != Stage::kSealing) return Err(Errc::kStale, "the migration has gone on without this request");
    const Glimpse glimpse = glimpse_of(record, sources, stats.data());
    schema::InodeRecordT shown = record;
    if (c.was_open(ino)) apply_glimpse(shown, glimpse);
    schema::LayoutT target = active.target;
    NACRE_TRY(bool grown, fill(target, shown.size, active.avoid));
    if (grown) {
      put_row(c, ino, session, target);
      c.require_sync();
    }
    c.on_staged([this, ino, glimpse, target, stats] {
      change(ino, [&](Active& a) {
        a.stage = Stage::kSealed;
        a.target = target;
        a.sealed = glimpse;
        a.stats = stats;
      });
    });
    State out{token, record, target, plain_attr(c, shown)};
    return out;
  });
}

// ---------------------------------------------------------------- commit

Result<Migrations::State> Migrations::commit_op(OpContext& c, Ino ino, const Active& seen, const Glimpse& target) {
  NACRE_CHECK_OK(c.lock({ino}));
  NACRE_TRY(auto record, c.inode(ino));
  NACRE_TRY(Active active, mine(ino, seen.session, seen.token));
  if (active.stage != Stage::kSealed || active.seal != seen.seal || p_.runtime.clock().boot() >= active.until) return Err(Errc::kStale, "the migration took too long");
  const schema::InodeRecordT before = record;
  if (c.was_open(ino)) apply_glimpse(record, active.sealed);
  record.layout = std::make_unique<schema::LayoutT>(active.target);
  record.allocated = target.allocated;
  record.mtime_base = std::max(record.mtime_base, target.changed);  // the copies are young, the data is not
  c.put_inode(record);
  c.batch().account(&before, &record);
  NACRE_CHECK_OK(p_.owed.owe(c, before));
  put_row(c, ino, {}, *before.layout);
  c.require_sync();
  c.on_staged([this, ino, old = *before.layout] {
    p_.opens.objects_changed(ino);
    change(ino, [&](Active& a) {
      a.stage = Stage::kSwitching;
      a.target = old;
      a.until = p_.runtime.clock().boot() + p_.capabilities.term() + kClockSlack;
      a.driven = true;
    });
  });
  State out{seen.token, record, active.target, plain_attr(c, record)};
  return out;
}

Task<Result<Migrations::State>> Migrations::commit(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, Nanos deadline) {
  CO_TRY(Active seen, mine(ino, ctx.identity().session, token));
  CO_TRY(auto record, co_await driver.read(ctx, [&](OpContext& c) { return c.inode(ino); }));
  if (seen.stage == Stage::kSwitching) {  // the answer was lost
    State out{token, record, *record.layout, {}};
    out.attr.ino = ino.v;
    co_return out;
  }
  if (seen.stage != Stage::kSealed || !record.layout) co_return Err(Errc::kStale, "the objects of the migration are not sealed");
  const auto sources = layout::used_objects(*record.layout, ino);
  auto still = co_await command(wire::kCmdSeal, sources, seen.seal, FilesetId(record.fileset), 1, deadline);
  bool broken = !still && still.error().code == Errc::kStale;
  if (!still && !broken) co_return std::unexpected(std::move(still).error());
  for (size_t i = 0; !broken && i < sources.size(); ++i) broken = (*still)[i].wseq() != seen.stats[i].wseq() || (*still)[i].size() != seen.stats[i].size();
  if (broken) {
    (void)co_await abort(driver, ino, token);
    co_return Err(Errc::kStale, fmt::format("the objects of inode {} have changed under the seal: a storage target has restarted", ino));
  }
  const auto made = layout::used_objects(seen.target, ino);
  CO_TRY(auto stats, co_await p_.objects.stat(made, deadline));
  const Glimpse target = glimpse_of(with_layout(ino, seen.target), made, stats.data());
  CO_TRY(State out, co_await driver.change(ctx, [&](OpContext& c) { return commit_op(c, ino, seen, target); }));
  Loop::current()->spawn(finish_switch(driver, ino, *record.layout, FilesetId(record.fileset)));
  co_return out;
}

/// Readers may still have rights to the old objects, which don't show what is written from now on: writers wait until these are
/// gone. A target that doesn't answer holds them up only as long as such a right can last.
Task<void> Migrations::finish_switch(Driver& driver, Ino ino, schema::LayoutT old, FilesetId fileset) {
  const auto objects = layout::used_objects(old, ino);
  for (;;) {
    auto active = find(ino);
    if (!active) co_return;
    auto destroy = co_await number();
    auto done = destroy ? co_await command(wire::kCmdDestroy, objects, *destroy, fileset, 0, p_.runtime.clock().boot() + kOstAnswer) : Result<std::vector<wire::ObjectStat>>(std::unexpected(destroy.error()));
    if (done || p_.runtime.clock().boot() >= active->until) break;
    if (auto slept = co_await sleep_for(kSwitchRetry); !slept) co_return;
  }
  OpContext ctx(p_.services, wire::CredT{});
  auto done = co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    c.batch().del(Family::kMeta, migration_key(ino));
    forget(c, ino);
    return true;
  });
  if (!done && done.error().code != Errc::kShutdown) log::error("the end of the migration of inode {} can't be recorded: {}", ino, done.error().message());
}

// ---------------------------------------------------------------- the end without success

Task<Result<void>> Migrations::give_up(Driver& driver, SessionId session, Ino ino, uint64_t token) {
  auto active = find(ino);
  if (!active || active->session != session || active->token != token) co_return Result<void>{};
  co_return co_await abort(driver, ino, token);
}

Task<Result<void>> Migrations::abort(Driver& driver, Ino ino, uint64_t token) {
  OpContext ctx(p_.services, wire::CredT{});
  bool sealed = false;
  auto done = co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    auto active = find(ino);
    if (!active || active->token != token || active->stage == Stage::kSwitching) return false;
    sealed = active->stage != Stage::kCopying || !active->session;  // before a restart it may have been
    NACRE_CHECK_OK(end(c, with_layout(ino, {})));
    return true;
  });
  if (!done) co_return std::unexpected(std::move(done).error());
  if (*done && sealed) (void)co_await unseal(driver, ino);  // else by the first writer that is refused
  co_return Result<void>{};
}

Task<Result<void>> Migrations::unseal(Driver& driver, Ino ino) {
  CO_TRY(CmdSeq unseal, co_await number());
  OpContext ctx(p_.services, wire::CredT{});
  CO_TRY(auto record, co_await driver.read(ctx, [&](OpContext& c) { return c.view().inode(ino); }));
  if (!record || !record->layout || moving(ino)) co_return Result<void>{};
  auto done = co_await command(wire::kCmdUnseal, layout::used_objects(*record->layout, ino), unseal, FilesetId(record->fileset), 0, p_.runtime.clock().boot() + kOstAnswer);
  if (!done && done.error().code != Errc::kOstInactive) co_return std::unexpected(std::move(done).error());
  co_return Result<void>{};
}

Task<void> Migrations::abort_later(Migrations& self, Driver& driver, Ino ino, uint64_t token, std::string why) {
  log::info("the migration of inode {} is given up: {}", ino, why);
  auto done = co_await self.abort(driver, ino, token);
  if (done) co_return;
  if (done.error().code != Errc::kShutdown) log::warn("the migration of inode {} can't be given up yet: {}", ino, done.error().message());
  self.change(ino, [](Active& a) { a.driven = false; });
}

// ---------------------------------------------------------------- background

Result<void> Migrations::load() {
  View view(p_.services.store, Tier::kFull);
  std::vector<std::pair<Ino, schema::MigrationRecordT>> rows;
  Result<void> bad;
  NACRE_CHECK_OK(view.scan(Family::kMeta, migration_prefix(), prefix_end(migration_prefix()), [&](std::string_view key, std::string_view value) {
    auto ino = parse_migration_key(key);
    auto row = decode_record<schema::MigrationRecordT>(value);
    if (ino && row && row->layout) rows.emplace_back(*ino, std::move(*row));
    else log::error("the record of a migration is damaged: nacre fsck looks for objects that it may have left");
    return true;
  }));
  const Nanos now = p_.runtime.clock().boot();
  for (auto& [ino, row] : rows) {
    NACRE_TRY(auto record, view.inode(ino));
    Active a;
    a.target = *row.layout;
    a.token = row.layout->generation;
    a.heard = now;
    a.until = now + p_.capabilities.term() + kClockSlack;
    if (record && record->layout && record->layout->generation > row.layout->generation) a.stage = Stage::kSwitching;
    active_[ino] = std::move(a);
  }
  count_ = active_.size();
  return {};
}

Task<void> Migrations::run(Driver& driver) {
  const Nanos silent = 2 * p_.capabilities.term();  // a mover renews its right to write in half its time
  while (!p_.runtime.stopping()) {
    std::vector<std::pair<Ino, Active>> all;
    if (count_.load() != 0) {
      std::lock_guard guard(mutex_);
      for (const auto& [ino, a] : active_)
        if (!a.driven) all.emplace_back(ino, a);
    }
    const Nanos now = p_.runtime.clock().boot();
    for (auto& [ino, a] : all) {
      std::string why;
      SessionPtr session = a.session ? p_.sessions.find(a.session) : nullptr;
      if (!a.session) why = "the metadata server has restarted";
      else if (!session || session->state() == Session::State::kEvicting) why = "its mover is gone";
      else if (a.stage != Stage::kCopying && now >= a.until) why = "it took too long after the seal (mds.migrate_pause)";
      else if (now - a.heard > silent) why = "its mover is silent";
      if (why.empty()) continue;
      change(ino, [](Active& x) { x.driven = true; });
      if (a.stage == Stage::kSwitching) Loop::current()->spawn(finish_switch(driver, ino, a.target, FilesetId{}));
      else Loop::current()->spawn(abort_later(*this, driver, ino, a.token, why));
    }
    if (auto slept = co_await sleep_for(kMigrationPoll); !slept) co_return;
  }
}

}  // namespace nacre::mds
