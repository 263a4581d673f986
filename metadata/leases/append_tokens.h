// SPDX-License-Identifier: Apache-2.0
// The exclusive right to append to a file, one holder per inode, others wait in order. A holder is (session, handle): asking
// again gives the same token, which is how a lost reply is repeated; so a client has one append at a time per handle.
// The token ends with release(), the handle or the session; never by itself, since data may be on its way. Any thread;
// acquire() on a loop.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "common/base/ids.h"
#include "common/runtime/sync.h"

namespace nacre::mds {

inline constexpr size_t kMaxAppendWaiters = 4096;  ///< per inode; more are told to come back

class AppendTokens {
 public:
  struct Ask {
    Ino ino;
    SessionId session;
    uint64_t handle = 0;
    std::shared_ptr<std::atomic<bool>> connected;  ///< false: the asker's connection is gone, don't grant; null = always there
  };
  /// Errors: kDeadline, the cancel's, kRetryLater (too many wait).
  Task<Result<uint64_t>> acquire(Ask ask, Nanos deadline, CancelPtr cancel);
  /// False if the session doesn't hold that token (it has been released already).
  bool release(Ino ino, SessionId session, uint64_t token);
  void release_handle(Ino ino, SessionId session, uint64_t handle);
  void release_session(SessionId session);
  bool held(Ino ino) const;
  std::optional<SessionId> holder(Ino ino) const;

 private:
  struct Waiter {
    Ask ask;
    Signal signal;
    uint64_t token = 0;
  };
  struct State {
    SessionId session;
    uint64_t handle = 0;
    uint64_t token = 0;
    std::deque<std::shared_ptr<Waiter>> queue;
  };
  void pass_on(Ino ino, State& state);
  mutable std::mutex mutex_;
  std::unordered_map<Ino, State> inodes_;
  uint64_t next_ = 1;
};

}  // namespace nacre::mds
