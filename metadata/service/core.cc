// SPDX-License-Identifier: Apache-2.0
// See core.h.
#include "metadata/service/core.h"

#include <sys/statvfs.h>

#include <algorithm>

#include "common/log/log.h"
#include "metadata/service/hooks.h"

namespace nacre::mds {

static Nanos of_ms(uint64_t ms) { return static_cast<Nanos>(ms) * kMillisecond; }

Result<void> Core::open(std::unique_ptr<Store> opened) {
  started = clock.boot();
  Store::Options so;
  so.path = options.data;
  so.cluster_id = options.cluster.id;
  so.block_cache = settings().mds_block_cache;
  so.write_buffer = std::clamp(settings().mds_block_cache / 8, uint64_t{1} << 20, uint64_t{64} << 20);  // 64 MiB of the default; its log file has room for as much
  so.clock = &clock;
  store = std::move(opened);
  if (!store) {
    NACRE_TRY(store, Store::open(so));
  }
  Journal::Options jo;
  jo.commit_interval = of_ms(settings().mds_commit_interval);
  jo.changelog_records = settings().mds_changelog_records;
  jo.fatal = options.fatal;
  NACRE_TRY(journal, Journal::open(*store, jo));
  changelog = std::make_unique<Changelog>(*journal, Changelog::Options{of_ms(settings().mds_changelog_age), &clock});
  NACRE_TRY(inos, RangeAllocator::open(*journal, "ino", kRootIno.v + 1, kInodeStep));
  NACRE_TRY(session_ids, RangeAllocator::open(*journal, "session", 1, kSessionStep));
  NACRE_TRY(commands, RangeAllocator::open(*journal, "command", 1, kCommandStep));
  for (RangeAllocator* r : {inos.get(), session_ids.get(), commands.get()})
    if (r->low()) NACRE_CHECK_OK(r->refill_now());
  Sessions::Options sess;
  sess.term = of_ms(settings().lease_term);
  sess.skew = of_ms(settings().lease_skew);
  sess.recovery_window = of_ms(settings().mds_recovery_window);
  sess.clock = &clock;
  NACRE_TRY(sessions, Sessions::open(*journal, *session_ids, sess));
  Registry::Options reg;
  reg.ost_timeout = of_ms(settings().mds_ost_timeout);
  reg.resend_term = sess.term + 2 * sess.skew;
  reg.cluster_id = options.cluster.id;
  for (const auto& m : options.cluster.mds) reg.mds.push_back(m.address);
  reg.clock = &clock;
  NACRE_TRY(registry, Registry::open(*journal, reg));
  channels = std::make_unique<OstChannels>(runtime, transport, *registry, OstChannels::Options{options.cluster.id, options.key, options.host, &waits});
  objects = std::make_unique<Objects>(*store, *channels, *registry, clock);
  capabilities = std::make_unique<Capabilities>(options.key, clock, of_ms(settings().mds_capability_term));
  hooks = std::make_unique<Hooks>(*this);
  services = std::make_unique<Services>(Services{*store, *journal, *inos, *hooks, dir_layouts, clock});
  driver = std::make_unique<Driver>(runtime, *services, options.turn_commit);
  owed = std::make_unique<OwedSender>(runtime, *journal, *commands, *objects);
  orphans = std::make_unique<Orphans>(runtime, *services, opens, *sessions);
  intents = std::make_unique<Intents>(runtime, *services, opens, *objects, *commands);
  migrations = std::make_unique<Migrations>(Migrations::Parts{runtime, *services, opens, *objects, *owed, *registry, *sessions, *commands, chooser, *capabilities, of_ms(settings().mds_migrate_pause)});
  settler = std::make_unique<Settler>(Settler::Parts{runtime, *services, *driver, opens, locks, appends, *objects, *orphans, [this](std::vector<LockWake> w) { tell(std::move(w)); }});
  evictor = std::make_unique<Evictor>(Evictor::Parts{runtime, *services, *driver, *sessions, *registry, *channels, *settler, locks, capabilities->term()});
  std::vector<OstId> configured;
  for (const auto& o : options.cluster.osts) configured.emplace_back(o.id);
  restoration = std::make_unique<Restoration>(Restoration::Parts{runtime, *journal, *inos, *session_ids, *commands, *sessions, *registry, *evictor, capabilities->term(), std::move(configured)});
  checker = std::make_unique<check::Checker>(check::Checker::Parts{runtime, *services, *driver, opens, *registry, *channels, *objects, *orphans, *owed});
  aftermath = std::make_unique<Aftermath>(Aftermath::Parts{runtime, *services, *driver, opens, *channels, *owed, *settler}, Ino(inos->next()));
  NACRE_CHECK_OK(aftermath->load());
  NACRE_CHECK_OK(orphans->load());
  NACRE_CHECK_OK(intents->load());
  NACRE_CHECK_OK(migrations->load());
  NACRE_CHECK_OK(load_lost_writers());
  return journal->sync_now();
}

/// Who had what open for writing when the last run ended: these files' sizes come from their objects.
Result<void> Core::load_lost_writers() {
  View view(*store, Tier::kFull);
  return view.scan(Family::kOpen, "", "", [this](std::string_view key, std::string_view) {
    auto parsed = parse_open_key(key);
    if (!parsed) return true;
    opens.add_lost(parsed->ino, parsed->session);
    if (!sessions->find(parsed->session)) settler->settle_later(parsed->ino, parsed->session);
    return true;
  });
}

void Core::spawn_background() {
  Loop& loop = runtime.loop(0);
  loop.spawn(journal->run_periodic());
  loop.spawn(watch_room());
  loop.spawn(prune_changelog());
  loop.spawn(watch_requests());
  loop.spawn(begin_work());
}

/// What acts on the storage targets begins when the numbers it uses are known to be new.
Task<void> Core::begin_work() {
  if (auto ready = co_await restoration->run(); !ready) {
    if (ready.error().code != Errc::kShutdown) log::error("the restored metadata can't be put in use: {}", ready.error().message());
    co_return;
  }
  Loop& loop = runtime.loop(0);
  loop.spawn(owed->run());
  loop.spawn(orphans->run(*driver));
  loop.spawn(intents->run(*driver));
  loop.spawn(migrations->run(*driver));
  loop.spawn(settler->run());
  loop.spawn(evictor->run());
}

Task<void> Core::prune_changelog() {
  while (co_await sleep_for(kChangelogPrune)) {
    auto done = co_await run_blocking([this] { return changelog->prune(); });
    if (!done) log::error("the changelog can't be pruned: {}", done.error().message());
  }
}

Task<void> Core::watch_room() {
  while (!runtime.stopping()) {
    room = co_await run_blocking([this]() -> uint64_t {
      struct statvfs v{};
      return ::statvfs(options.data.c_str(), &v) == 0 ? uint64_t{v.f_bavail} * v.f_frsize : 0;
    });
    checker->tick();
    if (auto slept = co_await sleep_for(kRoomPoll); !slept) co_return;
  }
}

Result<void> Core::close_clean() {
  NACRE_CHECK_OK(journal->sync_now());
  for (RangeAllocator* r : {inos.get(), session_ids.get(), commands.get()}) NACRE_CHECK_OK(r->give_back());
  NACRE_CHECK_OK(journal->sync_now());
  return store->close_clean();
}

void Core::tell(std::vector<LockWake> woken) {
  for (const LockWake& w : woken) {
    SessionPtr s = sessions->find(w.session);
    if (!s) continue;
    wire::LockGrantedCallT call;
    call.ino = w.ino.v;
    call.waiter = w.waiter;
    s->push_granted(std::move(call));
  }
}

Result<std::vector<OstId>> Core::choose(const schema::ComponentT& component) {
  return chooser.choose(registry->candidates(), component.stripe_count, component.pool, component.first_ost);
}

Epoch Core::epoch(const schema::InodeRecordT& record) const {
  auto fileset = store->fileset(FilesetId(record.fileset));
  return Epoch(fileset ? fileset->epoch : record.birth_epoch);
}

std::unique_ptr<wire::CapabilityT> Core::rights(SessionId session, const schema::InodeRecordT& record, uint8_t mode) const {
  return Capabilities::describe(session, record, epoch(record), mode);
}

}  // namespace nacre::mds
