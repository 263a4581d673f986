// SPDX-License-Identifier: Apache-2.0
// Takes the state of a session away: because it was silent, did not come back after a restart, or an administrator says so; and
// ends sessions that say goodbye. Order of an eviction (P1.13, P1.19): refused from now on → its requests have ended → mark
// synced → fenced at all targets, or all its capabilities expired → files closed and settled, locks and tokens passed on →
// forgotten. Any loop; run() once. It also keeps the records of who may have locks current.
#pragma once
#include <functional>

#include "metadata/background/settle.h"
#include "metadata/leases/sessions.h"
#include "metadata/targets/channels.h"

namespace nacre::mds {

inline constexpr Nanos kEvictPoll = 200 * kMillisecond;
inline constexpr Nanos kOwnPause = 2 * kSecond;          ///< silence of this server itself (stopped, suspended) that is not held against its clients
inline constexpr Nanos kFenceMargin = 2 * kSecond;       ///< clocks of the targets follow the server's by their heartbeats

class Evictor {
 public:
  struct Parts {
    Runtime& runtime;
    Services& services;
    Driver& driver;
    Sessions& sessions;
    Registry& registry;
    OstChannels& channels;
    Settler& settler;
    const LockTable& locks;
    Nanos capability_term = 60 * kSecond;
  };
  explicit Evictor(Parts parts) : p_(std::move(parts)) {}

  /// Returns when it is through. Nothing for one that is being evicted already.
  Task<Result<void>> evict(SessionPtr session, std::string why);
  /// The client said goodbye: everything it has open is closed; it has no write in flight. Not from inside its gate.
  Task<Result<void>> end(SessionPtr session);
  Task<void> run();                                       ///< expiry, the end of the recovery window, evictions that a crash interrupted

 private:
  Task<Result<void>> finish(SessionPtr session);
  Task<void> fence(SessionPtr session);
  Task<void> take_over(SessionPtr session);
  Parts p_;
};

}  // namespace nacre::mds
