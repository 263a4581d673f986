// SPDX-License-Identifier: Apache-2.0
// The locks this client holds (so that a restarted MDS can be told) and those it waits for. POSIX byte ranges of one owner
// merge and split as fcntl(2) says; a flock is one per owner and inode. Thread-safe.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "client/core/filesystem.h"

namespace nacre::client {

inline constexpr uint8_t kLockRead = 0, kLockWrite = 1, kLockFree = 2;  ///< LockSpec.type: F_RDLCK, F_WRLCK, F_UNLCK
inline constexpr uint64_t kLockToEnd = INT64_MAX;

/// The locks of one inode.
class LockSet {
 public:
  void apply(const wire::LockSpecT& spec);              ///< sets or frees
  bool holds(uint64_t owner, bool flock) const;
  const std::vector<wire::LockSpecT>& all() const { return locks_; }
  bool empty() const { return locks_.empty(); }

 private:
  std::vector<wire::LockSpecT> locks_;
};

/// A lock request that waits at the server.
struct LockWaiter {
  enum class State { kWaiting, kGranted, kRefused, kAskAgain };
  uint64_t number = 0;
  Ino ino;
  wire::LockSpecT spec;
  State state = State::kWaiting;
  Error error;
  Signal signal;                                        ///< of the current wait; made on the waiting loop
};

class Locks {
 public:
  void apply(Ino ino, const wire::LockSpecT& spec);
  bool holds(Ino ino, uint64_t owner, bool flock) const;
  void forget_owner(Ino ino, uint64_t owner, bool flock);
  std::vector<std::unique_ptr<wire::ReclaimLockT>> held() const;
  uint64_t count() const;
  void lost(Error why);                                 ///< the session ended: nothing is held, waiters end with `why`

  std::shared_ptr<LockWaiter> add_waiter(Ino ino, wire::LockSpecT spec);
  void remove_waiter(const std::shared_ptr<LockWaiter>& waiter);
  /// Before each request: from now on a grant or ask_again() counts for this wait.
  void arm(const std::shared_ptr<LockWaiter>& waiter);
  LockWaiter::State state(const std::shared_ptr<LockWaiter>& waiter) const;
  void granted(uint64_t number, Errc status);           ///< from the server; a granted lock is held from here on
  void ask_again();                                     ///< the connection or the server was lost

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, LockSet> held_;
  std::map<uint64_t, std::shared_ptr<LockWaiter>> waiters_;
  uint64_t next_ = 1;
};

}  // namespace nacre::client
