// SPDX-License-Identifier: Apache-2.0
// What the handlers of a storage target share. Private to storage/service.
#pragma once
#include <memory>
#include <vector>

#include "common/metrics/endpoint.h"
#include "common/runtime/watch.h"
#include "storage/service/capability_cache.h"
#include "storage/service/enrollment.h"
#include "storage/service/metrics.h"
#include "storage/service/service.h"
#include "storage/service/session_table.h"
#include "storage/service/writers.h"

namespace nacre::storage {

/// Bytes of data requests in progress on one loop; more wait. 128 requests of 1 MiB keep any disk busy.
inline constexpr uint64_t kMaxDataBytes = 128ull << 20;
/// The metadata server evicts a silent client when its lease is over; then it is no longer waited for.
inline constexpr Nanos kEvictionTakes = 5 * kSecond;
/// A reply of so many ObjectStat (40 bytes each) stays below wire::kMaxBody.
inline constexpr size_t kMaxStatsPerRequest = 50'000;
/// Refused requests that are logged per second; all are counted.
inline constexpr uint32_t kMaxRefusalsLogged = 5;

/// Of one connection, in Peer::context.
struct Connection {
  CapabilityCache capabilities;
  SessionId writer;  ///< that is counted in Writers as connected
};

struct ServiceState : std::enable_shared_from_this<ServiceState> {
  Runtime& runtime;
  ServiceOptions options;
  config::OstServer ost;
  wire::Key capability_key;
  std::unique_ptr<ObjectStore> store;
  std::unique_ptr<Enrollment> enrollment;
  std::unique_ptr<rpc::Server> server;
  SessionTable sessions;
  Writers writers;
  Metrics metrics;
  Gate requests;
  Watch under_way;
  metrics::Operations operations;
  std::atomic<bool> ready{false};  ///< everything above is made
  Nanos started = 0;
  uint64_t incarnation = 0;
  std::vector<std::unique_ptr<Semaphore>> data_bytes;  ///< by loop
  std::atomic<Nanos> log_second{0};
  std::atomic<uint32_t> logged{0};
  std::unique_ptr<metrics::Endpoint> endpoint;  ///< last: it asks the others

  ServiceState(Runtime& r, ServiceOptions o) : runtime(r), options(std::move(o)), capability_key(wire::capability_key(options.key)), under_way(r.size()), data_bytes(r.size()) {}

  std::string name() const { return fmt::format("ost{}", ost.id); }
  Semaphore& budget();
  /// A refusal that an administrator should see, at most kMaxRefusalsLogged a second.
  void note(const Error& e, const rpc::PeerPtr& peer);
  /// Counts the error, puts the target's name before its detail.
  rpc::Reply refuse(Error e, const rpc::PeerPtr& peer);
  /// kRecovering while clients have yet to send again what an unclean stop may have lost: older data must not be seen or built upon.
  Result<void> gathered();
  /// Before a write is acknowledged: its session will be waited for after an unclean stop.
  Task<Result<void>> enter_writer(const rpc::PeerPtr& peer, SessionId session);
  /// Verifies the capability; its fields may be used afterwards.
  Result<void> admit(const rpc::PeerPtr& peer, const wire::Capability* cap, const ObjectId& object, uint8_t mode);
};

using StatePtr = std::shared_ptr<ServiceState>;

// exposition.cc
void open_metrics(const StatePtr& s);
// data.cc: clients
Task<rpc::Reply> serve_write(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_read(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_commit(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_seek(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
// commands.cc: the metadata server, and status for everybody
Task<rpc::Reply> serve_stat(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_commands(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_fence(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_list(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_scrub(StatePtr s, rpc::PeerPtr peer, rpc::Request request);
Task<rpc::Reply> serve_status(StatePtr s, rpc::PeerPtr peer, rpc::Request request);

}  // namespace nacre::storage
