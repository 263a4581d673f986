// SPDX-License-Identifier: Apache-2.0
// All sessions. A session's record is synced before the client hears its number, and its eviction mark before anybody acts on
// it. After a restart the sessions on record must reclaim within the recovery window; until all have, or have been evicted,
// recovering() is true. Only sessions whose record says that they may have locks keep lock requests waiting: a node that died
// without any holds up nobody. Expiry is measured on the boot clock from the last message that was received. Any thread.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/rpc/peer.h"
#include "metadata/leases/session.h"
#include "metadata/store/journal.h"

namespace nacre::mds {

inline constexpr size_t kMaxSessions = 100'000;
inline constexpr size_t kMaxSessionText = 255;    ///< bytes of host and mount point

inline constexpr Nanos kLockIdle = 10 * kSecond;  ///< without a lock for so long a session's record says so: at most one sync in this time

/// Held by a lock request from before it looks at the lock table until it is through.
class LockNote {
 public:
  explicit LockNote(SessionPtr session) : session_(std::move(session)) {}
  LockNote(LockNote&&) = default;
  LockNote& operator=(LockNote&& o) noexcept {
    session_.swap(o.session_);
    return *this;
  }
  ~LockNote() {
    if (!session_) return;
    std::lock_guard guard(session_->lock_mark().mutex);
    --session_->lock_mark().under_way;
  }

 private:
  SessionPtr session_;
};

class Sessions {
 public:
  struct Options {
    Nanos term = 30 * kSecond;
    Nanos skew = 2 * kSecond;
    Nanos recovery_window = 60 * kSecond;
    Clock* clock = &system_clock();
  };
  /// Loads the records. Errors: as View's.
  static Result<std::unique_ptr<Sessions>> open(Journal& journal, RangeAllocator& ids, Options options);

  /// A new session, durable. On a loop. Errors: kInval (names too long, client_uuid not 16 bytes), kRetryLater (too many).
  Task<Result<SessionPtr>> create(wire::SessionOpenRequestT request, rpc::PeerInfo peer);
  SessionPtr find(SessionId id) const;            ///< null: unknown; evicting ones are found
  /// The session if it may be gone on with: known, of that client, not evicted.
  SessionPtr resume(SessionId id, const std::vector<uint8_t>& client_uuid) const;
  /// Those of that client but `but`, and not evicted: it opens a new session only when it has died or lost them.
  std::vector<SessionPtr> others_of(const std::vector<uint8_t>& client_uuid, SessionId but) const;
  std::vector<SessionPtr> after(SessionId id, size_t limit) const;  ///< in order of number
  size_t size() const;

  bool recovering() const { return unreclaimed_.load() != 0; }
  bool recovering_locks() const { return unreclaimed_lockers_.load() != 0; }
  size_t unreclaimed() const { return unreclaimed_.load(); }
  size_t reclaimed() const { return reclaimed_.load(); }
  Nanos window_end() const { return window_end_; }  ///< boot time
  void end_window() { window_end_ = options_.clock->boot(); }  ///< who has not reclaimed by now is evicted
  /// The session has brought everything: it becomes active. False if it was not waiting to.
  bool finish_reclaim(Session& session);

  /// Returns once the record says, durably, that the session may have locks. On a loop, inside a request of the session.
  Task<Result<LockNote>> note_locks(SessionPtr session);
  /// Takes the mark off active sessions that have had no lock for kLockIdle. idle: neither holds nor waits.
  Result<void> forget_locks(const std::function<bool(SessionId)>& idle);

  void all_seen(Nanos now);                       ///< this server stood still itself: nobody could reach it
  /// Those to be evicted now: silent for term + 2 · skew, or still unreclaimed when the window ends.
  std::vector<SessionPtr> expired() const;
  std::vector<SessionPtr> marked_evicted() const;  ///< at start: evictions that a crash interrupted
  /// Moves to kEvicting (false if it is there already) and marks the record. The caller syncs.
  Result<bool> begin_evict(Session& session);
  /// Deletes the record and its replies; the number is never used again.
  Result<void> erase(SessionPtr session);

 private:
  Sessions(Journal& journal, RangeAllocator& ids, Options options) : journal_(journal), ids_(ids), options_(options) {}
  Result<JournalNo> put_record(const Session& session, bool evicted, bool locks);
  void let_window_go(Session& session);
  Journal& journal_;
  RangeAllocator& ids_;
  Options options_;
  std::atomic<Nanos> window_end_{0};
  std::atomic<size_t> unreclaimed_{0}, unreclaimed_lockers_{0}, reclaimed_{0};
  mutable std::mutex mutex_;
  std::map<SessionId, SessionPtr> sessions_;
  std::vector<SessionPtr> interrupted_;
};

}  // namespace nacre::mds
