// SPDX-License-Identifier: Apache-2.0
// From a request to its method: who may call it, whether the session may go on, how long it took. One coroutine per request, on
// the loop of its connection; nothing here or below waits on a thread.
#pragma once
#include "metadata/service/call.h"

namespace nacre::mds {

inline constexpr Nanos kMaxRequestTime = 30 * kSecond;  ///< a request that waits for others is told to come back after this

class Dispatcher {
 public:
  explicit Dispatcher(Core& core) : core_(core) {}
  Task<rpc::Reply> handle(rpc::PeerPtr peer, rpc::Request request);

 private:
  struct Entry;
  static const Entry* find(uint16_t method);
  Result<void> admit(const Entry& entry, Call& call) const;
  Task<Result<Bytes>> run(const Entry& entry, CallPtr call);
  void note(const Call& call, const Result<Bytes>& answer) const;
  Core& core_;
};

}  // namespace nacre::mds
