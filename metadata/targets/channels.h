// SPDX-License-Identifier: Apache-2.0
// Connections to the storage targets: one per target and event loop, made when first needed. A call is repeated until it is
// answered or its deadline passes; so only requests that may be repeated go through here (all that the metadata server sends:
// stats, commands with a sequence, fences). call() on a loop, which it stays on.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/watch.h"
#include "common/rpc/server.h"
#include "common/runtime/sync.h"
#include "metadata/targets/registry.h"

namespace nacre::mds {

inline constexpr Nanos kOstAnswer = 10 * kSecond;       ///< how long a client's request waits for a target before it is told kOstDown
inline constexpr Nanos kOstAttempt = 1 * kSecond;       ///< of one attempt to connect, after which the target's state is looked at again
inline constexpr Nanos kOstRetryPause = 50 * kMillisecond;

class OstChannels {
 public:
  struct Options {
    std::array<uint8_t, 16> cluster_id{};
    wire::Key key{};
    std::string host;
    Watch* waits = nullptr;                            ///< where calls that take long are looked for
  };
  OstChannels(Runtime& runtime, rpc::Transport& transport, Registry& registry, Options options);
  ~OstChannels();

  /// Errors: kOstInactive at once; kOstDown (with a sentence) if nobody answers until `deadline`; what the target answers; the cancel's.
  template <rpc::Method M>
  Task<Result<typename rpc::MethodTraits<M>::Reply>> call(OstId ost, typename rpc::MethodTraits<M>::Request request, Nanos deadline, CancelPtr cancel = nullptr) {
    auto raw = co_await call_raw(ost, M, encode(request), deadline, std::move(cancel));
    if (!raw) co_return std::unexpected(std::move(raw).error());
    co_return decode<typename rpc::MethodTraits<M>::Reply>(*raw);
  }
  void close();  ///< any thread; pending calls end

 private:
  struct Link {
    std::string address;
    std::unique_ptr<rpc::Channel> channel;
  };
  Task<Result<Bytes>> call_until(OstId ost, rpc::Method method, Bytes body, Nanos deadline, CancelPtr cancel);
  Task<Result<Bytes>> call_raw(OstId ost, rpc::Method method, Bytes body, Nanos deadline, CancelPtr cancel);
  rpc::Channel& channel(OstId ost, const std::string& address);

  Runtime& runtime_;
  rpc::Transport& transport_;
  Registry& registry_;
  Options options_;
  std::vector<std::map<OstId, Link>> links_;  ///< per loop; touched on it only
};

}  // namespace nacre::mds
