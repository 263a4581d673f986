// SPDX-License-Identifier: Apache-2.0
// Two ways to ask a cluster. Administrators: the cluster file and its key, straight to a server. Everybody: an ioctl on a path
// inside a mount, where the kernel proves who asks and no key is seen. Both are synchronous and for one thread.
#pragma once
#include <memory>
#include <string>

#include "common/config/cluster.h"
#include "common/rpc/peer.h"
#include "common/rpc/server.h"

namespace nacre::cli {

class Connection {
 public:
  virtual ~Connection() = default;
  virtual Result<Bytes> call_raw(rpc::Method method, Bytes body) = 0;
  /// How long later calls wait for their answer; requests that take long need more than the default.
  virtual void be_patient(Nanos) {}

  template <rpc::Method M>
  Result<typename rpc::MethodTraits<M>::Reply> call(const typename rpc::MethodTraits<M>::Request& request) {
    NACRE_TRY(Bytes body, call_raw(M, encode(request)));
    return decode<typename rpc::MethodTraits<M>::Reply>(body);
  }
};

Result<config::Cluster> load_named_cluster(const std::string& named);
/// Straight to the metadata server. Errors: kConfig, kAuth (no key, wrong key), kUnavailable with its address.
Result<std::unique_ptr<Connection>> connect_mds(const config::Cluster& cluster);
/// Straight to any server of the cluster, e.g. for OssStatus. `timeout` covers connecting and each call.
Result<std::unique_ptr<Connection>> connect_server(const config::Cluster& cluster, const std::string& address, Nanos timeout);
/// Through the mount that `path` lies in. Error: kNotOurs if it lies in none.
Result<std::unique_ptr<Connection>> connect_mount(const std::string& path);
/// True if `path` lies in a Nacre mount.
bool in_mount(const std::string& path);
/// "ost3" or "3". Error: kConfig.
Result<uint32_t> parse_target(const std::string& text);
/// Inode number of a path inside a mount; the path itself is not followed if it is a symlink.
Result<uint64_t> inode_of(const std::string& path);

}  // namespace nacre::cli
