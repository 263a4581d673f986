// SPDX-License-Identifier: Apache-2.0
// The metadata client: one session, one connection per loop, requests that are repeated until they are answered.
// Requests that change something run exactly once: a repeat carries the same (slot, sequence). When a caller gives up
// before the answer, the request is driven to its end in the background, since only then its slot is free again.
// An MDS that restarted gets everything the session holds (Reclaim) before anything else on the new connection.
// Threads: call() on any loop; connections belong to their loops; the session's state is under one short mutex.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/core/op.h"
#include "client/core/slots.h"
#include "common/rpc/peer.h"
#include "common/rpc/server.h"

namespace nacre::client {

inline constexpr size_t kReclaimBatch = 1000;         ///< opens or locks per Reclaim
inline constexpr size_t kAtimesPerKeepalive = 1000;
inline constexpr Nanos kAppendDrain = 2 * kSecond;    ///< Reclaim waits this long for appends under way

struct CallExtra {
  uint64_t session = 0;                                  ///< ≠ 0: the request makes sense in this session only, else kStale
  bool* crossed_restart = nullptr;                       ///< set if the server restarted between the first try and the answer
  std::function<void(Result<rpc::Reply>)> abandoned;     ///< gets the answer if the caller had given up before it came
  bool finish = false;                                   ///< drive it to its end in the background although it is no kOnce
};

class MdsClient {
 public:
  explicit MdsClient(Core& core);

  /// Opens the session through the calling loop's connection; errors that waiting can't cure come back at once.
  Task<Result<void>> open(OpPtr op);
  /// Closes the session and all connections. Bounded by `deadline`.
  Task<void> close(Nanos deadline);

  /// Typed request. The cred is filled in from the operation's caller; supplementary groups are added when asked for.
  template <rpc::Method M>
  Task<Result<typename rpc::MethodTraits<M>::Reply>> call(typename rpc::MethodTraits<M>::Request request, OpPtr op, CallExtra extra = {});
  Task<Result<rpc::Reply>> call_raw(rpc::Method method, Bytes body, OpPtr op, CallExtra extra);

  uint64_t session() const { return session_.load(std::memory_order_acquire); }
  uint64_t incarnation() const { return incarnation_.load(std::memory_order_acquire); }
  Nanos now() const;                                     ///< the MDS's time
  const std::string& name() const { return name_; }
  wire::AttrT root() const;
  ServerStatus status() const;
  uint64_t retries() const { return retries_.load(std::memory_order_relaxed); }
  /// Counts the times that changes which had been acknowledged were lost with the server's power before they were synced. An
  /// fsync that finds it higher than its handle has seen must fail: what it should have made durable may be gone.
  /// kIo if there were any since `seen`, once.
  Result<void> nothing_lost(std::atomic<uint64_t>& seen) const;
  uint64_t losses() const { return losses_.load(std::memory_order_acquire); }
  bool evicted() const { return evicted_.load(std::memory_order_relaxed); }

  /// Renews the session until the core stops. One per client, on the loop that opened it.
  Task<void> keep_alive(std::shared_ptr<Core> core);
  Task<Result<void>> refresh_map(OpPtr op);
  /// Tells the server about one open that it may have forgotten in a restart.
  Task<Result<void>> reclaim_open(Ino ino, uint64_t handle, uint32_t flags, OpPtr op);

 private:
  friend class Core;  // for the callbacks of connections
  struct PerLoop { std::unique_ptr<rpc::Channel> channel; };
  rpc::Channel& channel();
  Task<Result<rpc::PeerPtr>> peer(OpPtr op);
  Task<Result<rpc::Reply>> repeat(rpc::Method method, Bytes body, OpPtr op, CallExtra extra);
  Task<Result<rpc::Reply>> once(rpc::Method method, Bytes body, OpPtr op, CallExtra extra);
  Task<void> finish(std::shared_ptr<Core> core, rpc::Method method, Bytes body, SlotLease lease, CallExtra extra, const char* name);

  // session.cc
  Task<Result<void>> bind(rpc::PeerPtr peer);
  Task<Result<void>> open_session(rpc::PeerPtr peer, uint64_t resume);
  Task<Result<void>> reclaim(rpc::PeerPtr peer);
  Task<rpc::Reply> handle(rpc::PeerPtr peer, rpc::Request request);
  void acknowledged(const rpc::Reply& reply);
  void adopt_session(const wire::SessionOpenReplyT& reply, uint64_t resume);
  void set_time(Nanos server, Nanos asked_at);
  Task<Result<void>> keep_alive_once(OpPtr op);

  Core& core_;
  std::string name_;
  std::vector<PerLoop> loops_;
  Slots slots_;
  std::atomic<uint64_t> session_{0}, incarnation_{0};
  std::atomic<Nanos> time_offset_{0};
  std::atomic<uint64_t> retries_{0};
  std::atomic<uint64_t> acked_{0};   // highest journal number of an answer
  std::atomic<uint64_t> losses_{0};
  std::atomic<bool> evicted_{false};
  std::atomic<uint64_t> map_version_{0};
  std::atomic<Nanos> keepalive_{5 * kSecond};
  std::atomic<int> connected_{0};
  mutable std::mutex mutex_;
  bool opening_ = false;
  wire::AttrT root_;
  Signal keepalive_wake_;
  CancelPtr fatal_;             // of open(): an answer that waiting can't cure
};

template <rpc::Method M>
Task<Result<typename rpc::MethodTraits<M>::Reply>> MdsClient::call(typename rpc::MethodTraits<M>::Request request, OpPtr op, CallExtra extra) {
  constexpr bool kHasCred = requires { request.cred; };
  if constexpr (kHasCred) {
    request.cred = std::make_unique<wire::CredT>();
    request.cred->uid = op->caller().uid;
    request.cred->gid = op->caller().gid;
    if (op->groups_read() || !op->caller().groups) {
      CO_TRY(request.cred->groups, op->groups());
      request.cred->groups_known = true;
    }
  }
  auto reply = co_await call_raw(M, encode(request), op, extra);
  if constexpr (kHasCred) {
    if (!reply && reply.error().code == Errc::kNeedGroups && !request.cred->groups_known) {
      CO_TRY(request.cred->groups, op->groups());
      request.cred->groups_known = true;
      reply = co_await call_raw(M, encode(request), op, std::move(extra));
    }
  }
  if (!reply) co_return std::unexpected(std::move(reply).error());
  co_return decode<typename rpc::MethodTraits<M>::Reply>(reply->body);
}

}  // namespace nacre::client
