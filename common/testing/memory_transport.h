// SPDX-License-Identifier: Apache-2.0
// A network in memory for tests and simulation: hosts with names, connections with seeded delays, connections that break,
// partitions between hosts. The same seed gives the same run. For hand-driven runtimes: everything happens on one thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "common/rpc/transport.h"

namespace nacre::testing {

struct MemoryNetworkOptions {
  Nanos delay_min = 20 * kMicrosecond;     ///< one way, of each write; order within a connection is kept
  Nanos delay_max = 400 * kMicrosecond;
  uint32_t breaks_per_million = 0;         ///< writes that break their connection: both ends lose what is under way
  size_t max_read = 0;                     ///< reads return at most a random number of bytes up to this; 0 = all there is
  uint64_t window = 1 << 20;               ///< bytes under way in one direction; the writer waits beyond
};

class MemoryNetwork {
 public:
  MemoryNetwork(uint64_t seed, MemoryNetworkOptions options = {});
  ~MemoryNetwork();
  /// The transport as processes on host `name` see it. Addresses are "NAME:PORT"; port 0 = any.
  std::unique_ptr<rpc::Transport> host(const std::string& name);

  /// While two hosts are apart nothing that was sent arrives and connecting hangs until its deadline; healing delivers what was held back.
  void set_partition(const std::string& a, const std::string& b, bool apart);
  /// Breaks all connections between two hosts, or of everybody.
  void break_between(const std::string& a, const std::string& b);
  void break_all();
  void set_breaks_per_million(uint32_t n);

  struct Counters { uint64_t connections = 0, writes = 0, bytes = 0, broken = 0; };
  const Counters& counters() const;

 private:
  struct Core;
  friend class MemoryTransport;
  friend class MemoryStream;
  friend class MemoryAcceptor;
  std::shared_ptr<Core> core_;
};

}  // namespace nacre::testing
