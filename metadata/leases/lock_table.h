// SPDX-License-Identifier: Apache-2.0
// Advisory locks of all sessions: flock(2) per open file description and POSIX byte ranges per lock owner, with blocking
// waiters. Semantics are Linux's on a local filesystem: POSIX ranges of one owner replace, split and merge each other;
// converting an flock gives the old one up first; a request that no held lock opposes is granted at once, waiting ones in the
// order they came; a POSIX wait that would close a circle of waiting owners is refused (EDEADLK), across inodes and clients.
// Invariant: two locks held on one byte by different owners are both shared. No I/O and no clock of its own; any thread.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"

namespace nacre::mds {

inline constexpr uint64_t kLockEnd = INT64_MAX;             ///< inclusive end of "to the end of the file"
inline constexpr uint8_t kLockRead = 0, kLockWrite = 1, kLockNone = 2;  ///< as F_RDLCK, F_WRLCK, F_UNLCK
inline constexpr size_t kMaxLocks = 1'000'000;              ///< held and waiting, all sessions: about 100 MB
inline constexpr size_t kMaxWaitersPerSession = 4096;
inline constexpr size_t kMaxDeadlockSteps = 10'000;         ///< owners visited by one search; a longer chain counts as a circle
inline constexpr size_t kRememberedWaiters = 1024;          ///< granted or cancelled waiters kept per session for late repeats

struct LockOwner {
  SessionId session;
  uint64_t owner = 0;
  constexpr auto operator<=>(const LockOwner&) const = default;
};

struct LockAsk {
  Ino ino;
  LockOwner who;
  bool flock = false;
  uint8_t type = kLockRead;
  uint64_t start = 0;         ///< POSIX only; start ≤ end ≤ kLockEnd
  uint64_t end = kLockEnd;
  uint32_t pid = 0;
  uint64_t handle = 0;        ///< open file description it was made through
  uint64_t waiter = 0;        ///< unique in the session; names a blocking request
};

/// A blocking request that has ended: tell its session.
struct LockWake {
  Ino ino;
  SessionId session;
  uint64_t waiter = 0;
};

enum class LockOutcome : uint8_t {
  kGranted,
  kBusy,         ///< another owner is in the way
  kQueued,       ///< a LockWake follows
  kCancelled,    ///< a cancel of this waiter came before it
  kDeadlock,
  kFull,         ///< a limit is reached
};

class LockTable {
 public:
  /// Sets (type read, write) or frees (none). With `wait` an opposed request is queued under ask.waiter; repeating a queued
  /// one changes nothing. Requests that this one sets free are appended to `woken`.
  LockOutcome set(const LockAsk& ask, bool wait, std::vector<LockWake>& woken);
  /// A lock that stands in the way of `ask`, the one with the lowest start (F_GETLK).
  std::optional<LockAsk> test(const LockAsk& ask) const;
  /// Ends a wait. True if it had been granted already (the session then holds the lock).
  bool cancel(Ino ino, SessionId session, uint64_t waiter);

  /// close(2) of one descriptor: frees the owner's POSIX locks.
  void release_owner(Ino ino, LockOwner who, std::vector<LockWake>& woken);
  /// The open file description is gone: its flocks, and what else was made through it.
  void release_handle(Ino ino, SessionId session, uint64_t handle, std::vector<LockWake>& woken);
  void release_inode(Ino ino, SessionId session, std::vector<LockWake>& woken);
  void release_session(SessionId session, std::vector<LockWake>& woken);

  size_t count(SessionId session) const;   ///< locks held
  bool idle(SessionId session) const;      ///< neither holds nor waits
  size_t total() const;                    ///< held and waiting
  /// All ranges and flocks held on an inode, ordered by owner and start: for tests and status.
  std::vector<LockAsk> held(Ino ino) const;
  /// Queued requests, at most `most`: for the watchdog.
  std::vector<LockAsk> queued(size_t most) const;

 private:
  struct Range {
    uint64_t start, end;
    bool exclusive;
    uint32_t pid;
    uint64_t handle;
  };
  using Ranges = std::vector<Range>;       ///< sorted, disjoint, neighbours of one type merged
  struct Flock {
    LockOwner who;
    bool exclusive;
    uint32_t pid;
    uint64_t handle;
  };
  struct InodeLocks {
    std::map<LockOwner, Ranges> posix;
    std::vector<Flock> flocks;
    std::deque<LockAsk> queue;
    bool empty() const { return posix.empty() && flocks.empty() && queue.empty(); }
  };
  struct SessionState {
    std::set<Ino> inodes;                  ///< where it holds or waits
    size_t waiting = 0;
    std::deque<uint64_t> granted, cancelled;
  };

  static bool covers(const Ranges& ranges, const LockAsk& ask);
  static void replace(Ranges& ranges, const LockAsk& ask);
  static const Range* opposing(const Ranges& ranges, const LockAsk& ask);
  bool opposed(const InodeLocks& locks, const LockAsk& ask) const;
  bool would_deadlock(const InodeLocks& locks, const LockAsk& ask) const;
  void apply(InodeLocks& locks, const LockAsk& ask);
  void wake(Ino ino, InodeLocks& locks, std::vector<LockWake>& woken);
  LockOutcome enqueue(InodeLocks& locks, const LockAsk& ask);
  void drop_waiters(InodeLocks& locks, SessionId session, const uint64_t* handle);
  void settle(Ino ino, SessionId session, std::vector<LockWake>& woken);
  void forget_wait(const LockAsk& ask);
  size_t weight(const InodeLocks& locks, LockOwner who) const;

  mutable std::mutex mutex_;
  std::unordered_map<Ino, InodeLocks> inodes_;
  std::unordered_map<SessionId, SessionState> sessions_;
  std::multimap<LockOwner, LockAsk> waits_;  ///< POSIX waits by owner, for the deadlock search
  size_t total_ = 0;
};

}  // namespace nacre::mds
