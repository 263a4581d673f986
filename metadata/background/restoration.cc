// SPDX-License-Identifier: Apache-2.0
// See restoration.h.
#include "metadata/background/restoration.h"

#include <algorithm>

#include "common/log/log.h"

namespace nacre::mds {

void Restoration::seen(const wire::OstRegisterRequestT& q) {
  std::lock_guard guard(mutex_);
  high_.ino = std::max(high_.ino, q.max_ino);
  high_.command = std::max(high_.command, q.max_command);
  high_.session = std::max(high_.session, q.max_session);
  high_.wseq = std::max(high_.wseq, q.wseq);
  high_.epoch = std::max(high_.epoch, q.max_epoch);
}

bool Restoration::give_up(OstId ost) {
  if (!active() || p_.registry.has(ost)) return false;
  std::lock_guard guard(mutex_);
  if (std::erase(p_.configured, ost) == 0) return false;
  log::warn("restored metadata: an administrator gave up ost{}, which is not on record: numbers that only it has seen are given out again", ost.v);
  return true;
}

std::vector<OstId> Restoration::silent() const {
  std::lock_guard guard(mutex_);
  return p_.registry.silent(p_.configured);
}

std::vector<std::string> Restoration::waiting_for() const {
  std::vector<std::string> out;
  if (!active()) return out;
  for (OstId id : silent()) out.push_back(fmt::format("ost{} to say which numbers it has seen", id.v));
  if (out.empty()) out.emplace_back(doing_.load());
  return out;
}

Task<Result<void>> Restoration::wait_for_targets() {
  Clock& clock = p_.runtime.clock();
  for (Nanos reported = 0;;) {
    const auto missing = silent();
    if (missing.empty()) co_return Result<void>{};
    if (reported == 0 || clock.boot() - reported >= kRestoreReport) {
      reported = std::max<Nanos>(clock.boot(), 1);
      std::string names;
      for (OstId id : missing) names += fmt::format(" ost{}", id.v);
      log::warn("the metadata was restored from a backup: nothing is served until{} said which numbers they have seen; 'nacre ost deactivate' gives up one that won't come back", names);
    }
    CO_CHECK_OK(co_await sleep_for(kRestorePoll));
  }
}

Task<Result<void>> Restoration::raise(const Highest& high) {
  const uint64_t inos = std::max(p_.inos.next(), high.ino), commands = std::max(p_.commands.next(), high.command), sessions = std::max(p_.session_ids.next(), high.session);
  if (inos >= kInoLimit - kRestoreMargin) co_return Err(Errc::kCorrupt, "storage targets report inode numbers at the end of their range: run nacre fsck");
  p_.inos.skip_past(inos + kRestoreMargin);
  p_.commands.skip_past(commands + kRestoreMargin);
  p_.session_ids.skip_past(sessions + kRestoreSessionMargin);
  for (RangeAllocator* r : {&p_.inos, &p_.commands, &p_.session_ids}) CO_CHECK_OK(co_await r->refill());
  Journal& journal = p_.journal;
  CO_CHECK_OK(co_await run_blocking([&journal, least = Epoch(high.epoch)] { return journal.store().raise_epochs(journal, least); }));
  CO_CHECK_OK(journal.restart_changelog(kRestoreMargin));
  CO_CHECK_OK(p_.registry.raise_version(kMapVersionsPerStart * kIncarnationsPerRestore));
  log::info("restored metadata: the targets have seen inodes up to {}, commands up to {}, sessions up to {}, epochs up to {}; new numbers begin above", high.ino, high.command, high.session, high.epoch);
  co_return Result<void>{};
}

/// Sessions of the backup, and those that came after its last one: numbers rise. Their fences travel with the answers to the
/// targets' next registration.
Task<Result<void>> Restoration::fence_old(uint64_t last) {
  Clock& clock = p_.runtime.clock();
  const Nanos until = clock.real() + p_.capability_term + kFenceMargin;
  SessionId newest(0);
  for (;;) {
    const auto page = p_.sessions.after(newest, 1000);
    if (page.empty()) break;
    for (const auto& s : page) p_.registry.fence(s->id(), until);
    newest = page.back()->id();
  }
  const uint64_t first = newest.v > kSessionsUnderWay ? newest.v - kSessionsUnderWay : 1;
  if (last >= first && last - first >= kMaxUnknownSessions) {
    log::warn("restored metadata: up to {} sessions of after the backup may hold capabilities, which end in {} s", last - first + 1, (until - clock.real()) / kSecond);
    doing_ = "capabilities of sessions of after the backup to end";
    CO_CHECK_OK(co_await sleep_for(until - clock.real()));
  } else {
    for (uint64_t s = first; s <= last; ++s) p_.registry.fence(SessionId(s), until);
  }
  doing_ = "storage targets to take the fences of old sessions";
  p_.registry.ask_again();
  co_return co_await wait_for_targets();
}

Task<Result<void>> Restoration::drop_sessions() {
  doing_ = "sessions of the backup to be evicted";
  for (SessionId at(0);;) {
    const auto page = p_.sessions.after(at, kEvictionsAtOnce);
    if (page.empty()) co_return Result<void>{};
    at = page.back()->id();
    std::vector<Task<Result<void>>> evictions;
    for (const auto& s : page) evictions.push_back(p_.evictor.evict(s, "the metadata was restored from a backup"));
    for (auto& done : co_await when_all(std::move(evictions))) CO_CHECK_OK(std::move(done));
  }
}

Task<Result<void>> Restoration::run() {
  if (!active()) co_return Result<void>{};
  CO_CHECK_OK(co_await wait_for_targets());
  Highest high;
  {
    std::lock_guard guard(mutex_);
    high = high_;
  }
  CO_CHECK_OK(co_await raise(high));
  CO_CHECK_OK(co_await fence_old(high.session));
  CO_CHECK_OK(co_await drop_sessions());
  Journal& journal = p_.journal;
  CO_CHECK_OK(co_await run_blocking([&journal] { return journal.store().end_restore(journal); }));
  active_ = false;
  log::info("restored metadata: serving; run 'nacre fsck' for what was made, changed or removed after the backup");
  co_return Result<void>{};
}

}  // namespace nacre::mds
