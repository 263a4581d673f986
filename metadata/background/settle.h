// SPDX-License-Identifier: Apache-2.0
// Closing handles, and what the last close of a writer means: size, times and allocated bytes of the record become true again,
// from what the closers reported where that is the whole story, else by asking the objects. If a target can't be asked the file
// stays "open for writing" by a lost writer (its size still comes from the objects), and settling is tried again later; so
// closing never waits for a target for long. Any loop.
#pragma once
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "metadata/background/orphans.h"
#include "metadata/leases/append_tokens.h"
#include "metadata/leases/lock_table.h"
#include "metadata/leases/open_table.h"
#include "metadata/ops/driver.h"
#include "metadata/targets/objects.h"

namespace nacre::mds {

inline constexpr int kMaxSettleTurns = 20;               ///< glimpses that were outdated before they could be stored
inline constexpr Nanos kSettleRetry = 5 * kSecond;
inline constexpr Nanos kSettleAnswer = 2 * kSecond;      ///< how long a close waits for a target before the writer counts as lost

class Settler {
 public:
  struct Parts {
    Runtime& runtime;
    Services& services;
    Driver& driver;
    OpenTable& opens;
    LockTable& locks;
    AppendTokens& appends;
    Objects& objects;
    Orphans& orphans;
    std::function<void(std::vector<LockWake>)> wake;     ///< tells sessions what their waiting lock requests got
  };
  explicit Settler(Parts parts) : p_(std::move(parts)) {}

  /// Closes one handle for the request `identity` (its reply is stored with the change). `also`: runs in the operation on the
  /// record, before it is judged; returns true if it changed it. Answers the attributes afterwards.
  using Also = std::function<Result<bool>(OpContext&, schema::InodeRecordT&)>;
  Task<Result<wire::AttrReplyT>> close(Identity identity, Ino ino, uint64_t handle, Also also = nullptr);
  /// Closes everything a session has open, its locks and append tokens too; all its writers count as lost.
  Task<void> close_session(SessionId session);
  /// Closes the writers that the session had before a restart and has not reclaimed.
  Task<void> close_lost(SessionId session);
  /// Settles `ino` later, on behalf of a writer of `session` that is gone.
  void settle_later(Ino ino, SessionId session);
  Task<void> run();                                       ///< until the runtime stops; spawn once

 private:
  struct Seen {
    uint64_t cuts = 0;
    std::optional<Glimpse> glimpse;
  };
  /// kAgain: the objects must be asked (again) first.
  Result<wire::AttrReplyT> close_op(OpContext& ctx, Ino ino, uint64_t handle, const Seen& seen, const Also& also);
  Result<bool> settle(const schema::InodeRecordT& stored, schema::InodeRecordT& record, const Seen& seen) const;
  Task<Result<wire::AttrReplyT>> give_up(Identity identity, Ino ino, uint64_t handle);
  void after_close(Ino ino, SessionId session, uint64_t handle, bool last_open);

  Parts p_;
  std::mutex mutex_;
  std::deque<std::pair<Ino, SessionId>> later_;
};

}  // namespace nacre::mds
