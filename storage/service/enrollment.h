// SPDX-License-Identifier: Apache-2.0
// The tie of a storage target to the metadata server: registers on every connection, sends heartbeats, and keeps what comes
// back (time, epochs, fences) in the store. Until the first registration of this start the target serves no data. When the
// metadata server is away later, data goes on being served: capabilities run out by themselves.
// Works on loop 0; serving() and refresh() from any loop.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/config/cluster.h"
#include "common/rpc/server.h"
#include "storage/object/object_store.h"
#include "storage/service/metrics.h"

namespace nacre::storage {

/// MDS time minus this host's clock, from request and reply times. The sample with the shortest round trip of the last few
/// bounds the error by half of that trip.
class TimeOffset {
 public:
  static constexpr size_t kSamples = 8;
  void add(Nanos sent_real, Nanos received_real, Nanos server);
  Nanos value() const;
  bool known() const { return count_ != 0; }

 private:
  static constexpr Nanos kStep = 50 * kMillisecond;
  struct Sample { Nanos trip, offset; };
  size_t best() const;
  std::array<Sample, kSamples> samples_{};
  size_t count_ = 0, next_ = 0;
};

class Enrollment {
 public:
  struct Options {
    std::array<uint8_t, 16> cluster_id{};
    wire::Key key{};
    std::vector<std::string> mds;   ///< addresses
    std::string address;            ///< own, as clients connect to it
    std::string host;
    std::vector<std::string> pools;
    Nanos heartbeat = 1 * kSecond;
  };
  /// `from_mds` serves what the metadata server calls over this connection.
  Enrollment(Runtime& runtime, rpc::Transport& transport, ObjectStore& store, Metrics& metrics, Options options, rpc::Handler from_mds);
  ~Enrollment();
  void start();
  /// Sends a last heartbeat if connected, then ends. Await on any loop.
  Task<void> stop();
  bool serving() const;
  /// Asks the metadata server for epochs and fences once more; concurrent calls share one question. Errors: kUnavailable, what the server said.
  Task<Result<void>> refresh();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nacre::storage
