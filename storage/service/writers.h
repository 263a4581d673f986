// SPDX-License-Identifier: Apache-2.0
// Which sessions may hold writes that this target has acknowledged and not yet made stable (P1.17). The set lies in the file
// `writers` of the target's directory: a session is in it, synced, before its first write is acknowledged, and leaves it when all
// of its writes are stable and it is gone or has been quiet for a while.
// After an unclean start those bytes may be missing here, and only the clients have them. Until each of these sessions has said
// that it has sent them again (a commit over a connection of this incarnation) or is fenced, the target gathers: it takes resends
// and refuses what would show or build upon the older state. A client that says nothing is waited for until the metadata server
// must have evicted it. Thread-safe.
#pragma once
#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/runtime/sync.h"

namespace nacre::storage {

class Writers {
 public:
  static constexpr Nanos kQuiet = 60 * kSecond;       ///< a session that wrote nothing for so long leaves the set
  static constexpr size_t kMaxSessions = 1'000'000;   ///< in the file

  /// clean: the last run ended with everything stable, so nothing is waited for. Errors: kIo, kCorrupt (the file is damaged: it
  /// names itself).
  Result<void> load(const std::string& directory, bool clean);

  /// Before a write of the session begins; each is followed by leave(), also if the write fails, unless enter() fails. Waits for a
  /// sync if the session is not in the file.
  Task<Result<void>> enter(SessionId session);
  void leave(SessionId session, WSeq wseq, Nanos now);  ///< wseq: of the write; none if it failed
  void connected(SessionId session);
  void disconnected(SessionId session);
  /// Lets go of those that need not be waited for. Blocking when there are any; call now and then on a worker.
  Result<void> prune(WSeq stable, Nanos now);

  // --- after an unclean start
  /// Clients can come since `now`: a silent one is waited for until `limit` later. The first call counts.
  void serves(Nanos now, Nanos limit);
  bool gathering(Nanos now);
  void reported(SessionId session);                   ///< it has sent again what it had, or is fenced
  std::vector<SessionId> awaited() const;
  std::string waiting_for() const;                    ///< "2 clients (sessions 4, 9)"

 private:
  struct Info { WSeq last; Nanos at = 0; uint32_t connections = 0, running = 0; };
  Result<void> store(const std::set<SessionId>& sessions);
  std::string path_;
  std::mutex file_mutex_;                             ///< one writer of the file; before mutex_
  mutable std::mutex mutex_;
  std::unordered_map<SessionId, Info> known_;         ///< in the file, connected, or writing
  std::set<SessionId> stored_, awaited_;              ///< stored_: in the file
  Nanos until_ = kForever;
  std::atomic<bool> gathering_{false};
};

}  // namespace nacre::storage
