// SPDX-License-Identifier: Apache-2.0
// One storage target as the client sees it: a connection per loop, and the written data that isn't stable there yet.
// Invariant: acknowledged data is either stable on the target or retained here, and after the target has restarted every
// retained write is sent again, with its old write sequence, before anything else goes to it.
// Threads: call() on any loop; the retained table is shared by the loops under one short mutex.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/core/inode.h"
#include "client/core/op.h"
#include "common/rpc/peer.h"
#include "common/rpc/server.h"

namespace nacre::client {

/// A write that was acknowledged but may be lost if the target loses power.
struct Retained {
  ObjectId object;
  uint64_t offset = 0;
  Buffer data;
  std::vector<uint32_t> sums;
  uint64_t write_id = 0;
  InodePtr inode;

  uint64_t cost() const { return std::max<uint64_t>(data.size(), kBlockSize) + 256; }
};

inline constexpr Nanos kWroteLately = 90 * kSecond;     ///< longer than a target keeps a quiet session among its writers

class Target : public std::enable_shared_from_this<Target> {
 public:
  Target(Core& core, OstId id);
  const OstId id;
  const std::string name;                               ///< "ost3"

  void update(const wire::OstEntryT& entry);
  /// Sends until there is an answer. Errors: the target's, kOstInactive, the cancel's, gave_up, kShutdown.
  Task<Result<rpc::Reply>> call(rpc::Method method, Bytes body, Buffer payload, Buffer receive_into, OpPtr op);
  /// Makes all writes of this client up to `wseq` stable; 0 = all so far.
  Task<Result<void>> commit(uint64_t wseq, OpPtr op);
  /// Keeps an acknowledged write. False: the target has restarted since, send it again with its write sequence.
  bool retain(uint64_t wseq, uint64_t incarnation, Retained write);
  /// What every reply tells.
  void note(uint64_t stable, uint64_t incarnation);
  /// Waits until what is retained there has become less; one Commit at a time.
  Task<void> relieve(OpPtr op);
  /// Commits what has been retained for long: without traffic nobody would tell that it is stable.
  Task<void> tidy(OpPtr op, Nanos idle);
  /// Keeps trying to connect while something is retained there; connecting sends it again.
  Task<void> reconnect(std::shared_ptr<Core> core);
  /// Drops retained writes of older generations of the inode.
  void drop(Ino ino, Generation older_than);
  uint64_t drop_all();                                  ///< the session was evicted; returns how many writes
  bool retains(Ino ino) const;
  uint64_t retained_bytes() const { return retained_bytes_.load(std::memory_order_relaxed); }
  void count_checksum_error() { checksum_errors_.fetch_add(1, std::memory_order_relaxed); }
  ServerStatus status() const;

  Task<Result<void>> on_connected(rpc::PeerPtr peer);
  void close_on(Loop& loop);

 private:
  struct PerLoop { std::unique_ptr<rpc::Channel> channel; std::string address; };
  rpc::Channel& channel();
  Task<Result<rpc::PeerPtr>> peer(OpPtr op);
  Task<Result<void>> resend(rpc::PeerPtr peer);
  struct Resend;
  Task<Result<bool>> resend_one(std::shared_ptr<Resend> r, uint64_t wseq);
  Task<Result<void>> resend_rights(std::shared_ptr<Resend> r, InodePtr inode, Generation generation, bool force);
  /// So lately that the target may wait for this client after a restart (storage/service/writers.h).
  bool wrote_lately() const;
  std::vector<uint64_t> retained_keys() const;
  bool find(uint64_t wseq, Retained& out) const;
  void erase(uint64_t wseq);
  void erase_locked(std::map<uint64_t, Retained>::iterator it);

  Core& core_;
  std::vector<PerLoop> loops_;
  std::atomic<bool> inactive_{false};
  std::atomic<int> connected_{0};
  std::atomic<uint64_t> retained_bytes_{0}, checksum_errors_{0}, resent_{0};
  mutable std::mutex mutex_;
  std::string address_;
  uint64_t incarnation_ = 0, stable_ = 0;
  std::map<uint64_t, Retained> retained_;
  Nanos last_retained_ = 0;
  std::atomic<Nanos> last_written_{0};                  ///< boot, 0 = never
  bool resending_ = false;
  std::vector<Signal> resend_waiters_;
  bool relieving_ = false;
  std::vector<Signal> relief_waiters_;
};
using TargetPtr = std::shared_ptr<Target>;

}  // namespace nacre::client
