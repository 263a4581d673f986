// SPDX-License-Identifier: Apache-2.0
// The watchdog: what has waited for longer than mds.parked_request is logged while it waits, with what it waits for: requests
// with the storage targets, appends and migrations that hold them up; lock requests, which the server only keeps in a queue,
// with who holds the lock; and clients that say that something of theirs waits for a server.
#include <algorithm>
#include <map>

#include "common/log/log.h"
#include "metadata/service/core.h"

namespace nacre::mds {
namespace {

constexpr Nanos kLongestLook = 5 * kSecond;
constexpr int kRepeatAfter = 10;              ///< times the limit: then it is said again
constexpr size_t kMaxTold = 20;               ///< lines per look and kind
constexpr size_t kMaxCauses = 5;
constexpr size_t kMaxLockWaits = 10'000;

std::string joined(const std::vector<Watch::Row>& rows) {
  std::string out;
  for (const auto& r : rows) out += fmt::format("{}{} ({} s)", out.empty() ? "" : ", ", r.text, r.age / kSecond);
  return out;
}

/// First seen and last told of each queued lock request.
using LockWaits = std::map<std::pair<SessionId, uint64_t>, std::pair<Nanos, Nanos>>;

void look_at_locks(Core& core, Nanos limit, LockWaits& known) {
  const Nanos now = core.clock.boot();
  LockWaits still;
  size_t told = 0;
  for (const LockAsk& ask : core.locks.queued(kMaxLockWaits)) {
    const auto key = std::pair(ask.who.session, ask.waiter);
    auto it = known.find(key);
    auto times = it == known.end() ? std::pair<Nanos, Nanos>(now, 0) : it->second;
    if (now - times.first >= limit && (times.second == 0 || now - times.second >= kRepeatAfter * limit) && told < kMaxTold) {
      ++told;
      times.second = now;
      const auto holder = core.locks.test(ask);
      log::warn("waiting for a lock: {} has waited {} s for inode {}, which is locked by {}", core.name_of(ask.who.session), (now - times.first) / kSecond, ask.ino.v,
                holder ? fmt::format("process {} of {}", holder->pid, core.name_of(holder->who.session)) : std::string("another waiter before it"));
    }
    still.emplace(key, times);
  }
  known.swap(still);
}

void look_at_requests(Core& core, Nanos limit) {
  const Nanos now = core.clock.boot();
  for (const auto& r : core.requests.news(now, limit, kRepeatAfter * limit, kMaxTold)) {
    core.parked_requests.fetch_add(1, std::memory_order_relaxed);
    std::string causes = joined(core.waits.list(now, std::min(limit / 2, kSecond), kMaxCauses));
    if (core.sessions->recovering()) causes += fmt::format("{}{} sessions to reclaim", causes.empty() ? "" : ", ", core.sessions->unreclaimed());
    log::warn("waiting request: {} has been under way for {} s; this server waits for {}", r.text, r.age / kSecond, causes.empty() ? "nobody else" : causes);
  }
}

}  // namespace

std::string Core::name_of(SessionId session) const {
  SessionPtr s = sessions->find(session);
  if (!s) return fmt::format("session {}", session.v);
  return fmt::format("session {} ({} on {})", session.v, s->record().mount, s->record().host);
}

Task<void> Core::watch_requests() {
  const Nanos limit = static_cast<Nanos>(settings().mds_parked_request) * kMillisecond;
  LockWaits locks_seen;
  while (co_await sleep_for(std::clamp(limit / 4, 10 * kMillisecond, kLongestLook))) {
    look_at_requests(*this, limit);
    look_at_locks(*this, limit, locks_seen);
  }
}

}  // namespace nacre::mds
