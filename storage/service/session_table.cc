// SPDX-License-Identifier: Apache-2.0
#include "storage/service/session_table.h"

namespace nacre::storage {

SessionTable::Session& SessionTable::touch(Shard& shard, SessionId id) {
  auto [it, made] = shard.sessions.try_emplace(id);
  if (made) {
    shard.recent.push_front(id);
    it->second.place = shard.recent.begin();
  } else {
    shard.recent.splice(shard.recent.begin(), shard.recent, it->second.place);
  }
  return it->second;
}

/// Forgets idle sessions, least recently used first, until the shard is within its share.
void SessionTable::make_room(Shard& shard) {
  auto at = shard.recent.end();
  while (shard.results > kMaxResults / kShards && at != shard.recent.begin()) {
    --at;
    auto it = shard.sessions.find(*at);
    if (it->second.running != 0 || !it->second.drains.empty()) continue;
    shard.results -= it->second.finished.size();
    shard.sessions.erase(it);
    at = shard.recent.erase(at);
  }
}

SessionTable::Start SessionTable::begin(SessionId id, const Write& write) {
  Shard& shard = shard_of(id);
  std::lock_guard lock(shard.mutex);
  Session& session = touch(shard, id);
  if (write.id != 0) {
    auto [it, made] = session.entries.try_emplace(write.id);
    Entry& entry = it->second;
    if (made) {
      entry.write = write;
    } else {
      if (entry.write.object != write.object || entry.write.offset != write.offset || entry.write.length != write.length) return {Verdict::kMismatch, {}, {}};
      if (entry.result) return {Verdict::kDone, *entry.result, {}};
      if (entry.waiters.size() >= kMaxWaiters) return {Verdict::kCrowded, {}, {}};
      entry.waiters.emplace_back();
      return {Verdict::kWait, {}, entry.waiters.back()};
    }
  }
  ++session.running;
  return {};
}

void SessionTable::finish(SessionId id, const Write& write, const Result<WriteResult>& result) {
  std::vector<Completion<WriteResult>> waiters;
  std::vector<Signal> drains;
  {
    Shard& shard = shard_of(id);
    std::lock_guard lock(shard.mutex);
    Session& session = shard.sessions.find(id)->second;  // can't have gone: it has a running write
    if (--session.running == 0) drains.swap(session.drains);
    if (write.id != 0) {
      auto it = session.entries.find(write.id);
      waiters.swap(it->second.waiters);
      if (result) {
        it->second.result = *result;
        session.finished.push_back(write.id);
        ++shard.results;
        if (session.finished.size() > kMaxResultsPerSession) {
          session.entries.erase(session.finished.front());
          session.finished.pop_front();
          --shard.results;
        }
        make_room(shard);
      } else {
        session.entries.erase(it);
      }
    }
    if (auto it = shard.sessions.find(id); it != shard.sessions.end() && it->second.running == 0 && it->second.entries.empty() && it->second.drains.empty()) {
      shard.recent.erase(it->second.place);
      shard.sessions.erase(it);
    }
  }
  for (auto& w : waiters) w.set(result);
  for (auto& d : drains) d.set();
}

Task<void> SessionTable::drained(SessionId id) {
  std::optional<Signal> wait;
  {
    Shard& shard = shard_of(id);
    std::lock_guard lock(shard.mutex);
    auto it = shard.sessions.find(id);
    if (it == shard.sessions.end() || it->second.running == 0) co_return;
    wait = it->second.drains.emplace_back();
  }
  (void)co_await wait->wait();
}

size_t SessionTable::results() const {
  size_t n = 0;
  for (const Shard& s : shards_) {
    std::lock_guard lock(s.mutex);
    n += s.results;
  }
  return n;
}

}  // namespace nacre::storage
