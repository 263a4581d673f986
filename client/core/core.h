// SPDX-License-Identifier: Apache-2.0
// Everything one mounted filesystem consists of, and the background work that keeps it going. FilesystemImpl's methods are
// operations on it. Held by shared pointer: whatever is still running keeps it alive.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "client/core/atimes.h"
#include "client/core/filesystem.h"
#include "client/core/inode.h"
#include "client/core/locks.h"
#include "client/core/mds_client.h"
#include "client/core/op.h"
#include "client/core/target.h"

namespace nacre::client {

inline constexpr Nanos kHousekeeping = 500 * kMillisecond;
inline constexpr Nanos kTidyAfter = 2 * kSecond;      ///< retained data without traffic is committed after this
inline constexpr Nanos kCloseLimit = 5 * kSecond, kDrainLimit = 3 * kSecond;  ///< to close the session; then for operations to end
inline constexpr size_t kMaxTargets = 10'000;
inline constexpr int kMaxLayoutRounds = 8;   ///< of one read, write or seek; each needs a truncate to 0 by somebody in between
inline constexpr int kMaxRightsRetries = 4;  ///< of one piece, for expired or refused capabilities

/// What a request needs of layout and capability.
struct GrantWanted {
  bool write = false;
  uint64_t offset = 0, length = 0;
  uint32_t refused_generation = 0;    ///< a target said kStaleGeneration for this one
  bool force = false;                 ///< ask even if what is known looks good
  GrantPtr refused;                   ///< a target didn't take this one: anything but it
};

class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(Runtime& runtime, rpc::Transport& transport, MountOptions options);

  Runtime& runtime;
  rpc::Transport& transport;
  MountOptions options;
  CancelPtr stop = std::make_shared<Cancel>();
  Waits waits;
  std::shared_ptr<InodeTable> inode_table = std::make_shared<InodeTable>();
  InodeTable& inodes = *inode_table;
  Locks locks;
  Atimes atimes;
  MdsClient mds;
  std::atomic<uint64_t> losses_seen{0};                 ///< by sync_all: MdsClient::losses
  std::atomic<uint64_t> retained_total{0}, retries{0}, read_bytes{0}, written_bytes{0};
  std::atomic<int> appends_under_way{0};
  std::atomic<uint64_t> operations{0};                  ///< Ops that exist; unmounting waits for them

  Clock& clock() const { return runtime.clock(); }
  bool stopping() const { return stop->fired(); }
  rpc::ConnectOptions connect_options() const;
  uint64_t next_handle() { return next_handle_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t next_write_id() { return next_write_id_.fetch_add(1, std::memory_order_relaxed); }

  TargetPtr target(OstId id);                           ///< null if the map doesn't know it
  std::vector<TargetPtr> targets() const;
  void apply_map(const wire::ClusterMapT& map);
  void session_lost(uint64_t new_session);
  ClientStatus status() const;
  Task<void> housekeeping(std::shared_ptr<Core> self);
  /// Runs `fn` on each loop's thread; returns when all have.
  Task<void> on_every_loop(std::function<void(Loop&)> fn);

  // --- rights (grants.cc)
  /// A grant that covers the range, from what is known or from the server.
  Task<Result<GrantPtr>> granted(InodePtr inode, FileHandlePtr handle, GrantWanted wanted, OpPtr op);
  Task<Result<void>> renew(InodePtr inode, FileHandlePtr handle, GrantWanted wanted, OpPtr op);
  /// Takes the layout of a reply: the inode's, for all its handles; data retained for older generations is dropped.
  void adopt(Inode& inode, const schema::LayoutT* layout, const wire::CapabilityT* cap);
  void adopt_if_open(Ino ino, const schema::LayoutT* layout, const wire::CapabilityT* cap);
  /// What every attribute goes through before it is shown.
  Attr shown(std::unique_ptr<wire::AttrT> attr);

  // --- data (write.cc, files.cc)
  Task<Result<void>> commit_inode(InodePtr inode, OpPtr op);
  Task<Result<void>> commit_all(OpPtr op);
  Task<Result<void>> close_handle(std::shared_ptr<Core> self, FileHandlePtr handle, uint64_t flock_owner, Nanos deadline = kForever);

  static Task<void> close_later(std::shared_ptr<Core> self, FileHandlePtr handle);

  // --- callbacks that connections and servers make
  static Task<Result<void>> bind_mds(std::weak_ptr<Core> weak, rpc::PeerPtr peer);
  static Task<Result<void>> bind_target(std::weak_ptr<Core> weak, OstId id, rpc::PeerPtr peer);
  static Task<rpc::Reply> handle_push(std::weak_ptr<Core> weak, rpc::PeerPtr peer, rpc::Request request);
  static Task<void> reconnect(std::weak_ptr<Core> weak, TargetPtr target);

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, TargetPtr> targets_;
  std::atomic<uint64_t> next_handle_{1}, next_write_id_{1};
  std::atomic<uint64_t> map_version_{0};
};

}  // namespace nacre::client
