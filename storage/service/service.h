// SPDX-License-Identifier: Apache-2.0
// nacre-oss without its command line: one storage target's store behind RPC. Admits requests (serving, role, capability, fence,
// limits), hands them to the store, and says how stable everything is in every reply. Requests are served on the loop of their
// connection; start and stop are awaited on any loop.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "common/config/cluster.h"
#include "common/rpc/server.h"
#include "storage/object/object_store.h"

namespace nacre::storage {

struct ServiceOptions {
  config::Cluster cluster;
  uint32_t ost = 0;                      ///< which [[ost]] of the cluster file; its address may end in port 0 (tests)
  wire::Key key{};                       ///< of the cluster
  /// Told once when the target can't go on (P1.12); has to end the process at once. Any thread.
  std::function<void(Error)> fatal;
  std::shared_ptr<BlockDevice> device;   ///< instead of DIR/blocks (tests)
  rocksdb::Env* env = nullptr;           ///< instead of the system's (tests)
};

struct ServiceState;

class Service {
 public:
  /// Opens the store, listens, and begins to register with the metadata server; serving() follows by itself.
  /// Errors: as ObjectStore::open's and rpc::serve's, kConfig.
  static Task<Result<std::unique_ptr<Service>>> start(Runtime& runtime, rpc::Transport& transport, ServiceOptions options);
  ~Service();
  /// Refuses new requests, lets those in progress end, makes everything stable, and closes the store.
  Task<Result<void>> stop();
  bool serving() const;                  ///< registered with the metadata server
  std::string address() const;           ///< where it listens
  ObjectStore& store();

 private:
  explicit Service(std::shared_ptr<ServiceState> state);
  std::shared_ptr<ServiceState> state_;
};

/// `nacre-oss --format`: makes the [[ost]]'s data directory a target. Size 0 in the cluster file: an equal share of what the
/// backing filesystem has free, among the targets without a size that lie on it. Blocking. Errors: as ObjectStore::format's, kConfig.
Result<uint64_t> format_target(const config::Cluster& cluster, uint32_t ost);

/// The [[ost]] with this id. Errors: kConfig.
Result<config::OstServer> find_ost(const config::Cluster& cluster, uint32_t ost);

}  // namespace nacre::storage
