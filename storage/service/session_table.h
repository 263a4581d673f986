// SPDX-License-Identifier: Apache-2.0
// What a storage target remembers of sessions: which writes are in progress (a fence waits for them) and the results of
// finished ones, so that a write repeated because its reply was lost gets the first answer. In memory only: after a restart
// the write sequence of a resend decides. Thread-safe; waits happen on the caller's loop.
#pragma once
#include <array>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "common/runtime/sync.h"
#include "storage/object/object_store.h"

namespace nacre::storage {

class SessionTable {
 public:
  static constexpr size_t kMaxResultsPerSession = 256;  ///< more than a client has in flight to one target
  static constexpr size_t kMaxResults = 512 * 1024;     ///< of all sessions: about 80 MiB; the least recently used session goes
  static constexpr size_t kMaxWaiters = 16;             ///< repeats that wait for one write

  /// Names a write. id 0 = not repeatable: counted, not remembered.
  struct Write { uint64_t id = 0; ObjectId object; uint64_t offset = 0; uint32_t length = 0; };
  enum class Verdict {
    kRun,       ///< first of its name: run it, then finish()
    kDone,      ///< `result` is the answer
    kWait,      ///< await `first`
    kMismatch,  ///< the id was used for other bytes: a fault of the client
    kCrowded,   ///< too many repeats wait
  };
  struct Start {
    Verdict verdict = Verdict::kRun;
    WriteResult result;
    std::optional<Completion<WriteResult>> first;
  };
  Start begin(SessionId session, const Write& write);
  /// Ends a write that begin() let run. An error is not remembered: its repeat runs.
  void finish(SessionId session, const Write& write, const Result<WriteResult>& result);
  /// Returns when no write of the session that was admitted before this call is in progress.
  Task<void> drained(SessionId session);
  size_t results() const;  ///< remembered

 private:
  static constexpr size_t kShards = 16;
  struct Entry {
    Write write;
    std::optional<WriteResult> result;
    std::vector<Completion<WriteResult>> waiters;
  };
  struct Session {
    uint64_t running = 0;
    std::unordered_map<uint64_t, Entry> entries;
    std::deque<uint64_t> finished;  ///< ids, oldest first
    std::vector<Signal> drains;
    std::list<SessionId>::iterator place;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<SessionId, Session> sessions;
    std::list<SessionId> recent;  ///< most recently used first
    size_t results = 0;
  };
  Shard& shard_of(SessionId s) { return shards_[std::hash<SessionId>{}(s) >> 60 & (kShards - 1)]; }
  static Session& touch(Shard& shard, SessionId id);
  static void make_room(Shard& shard);
  std::array<Shard, kShards> shards_;
};

}  // namespace nacre::storage
