// SPDX-License-Identifier: Apache-2.0
// Everything a request can reach, in the order in which it is made, and the few things that several methods share. One Core per
// server; it outlives all coroutines of its runtime. Members are thread-safe on their own.
#pragma once
#include <memory>
#include <string>

#include "common/config/cluster.h"
#include "common/metrics/endpoint.h"
#include "common/runtime/watch.h"
#include "metadata/background/evictor.h"
#include "metadata/background/intents.h"
#include "metadata/background/migrations.h"
#include "metadata/background/orphans.h"
#include "metadata/background/owed.h"
#include "metadata/background/aftermath.h"
#include "metadata/background/restoration.h"
#include "metadata/background/settle.h"
#include "metadata/check/checker.h"
#include "metadata/leases/append_tokens.h"
#include "metadata/leases/lock_table.h"
#include "metadata/leases/open_table.h"
#include "metadata/leases/sessions.h"
#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/driver.h"
#include "metadata/targets/capabilities.h"
#include "metadata/store/changelog.h"
#include "metadata/targets/objects.h"

namespace nacre::mds {

inline constexpr uint64_t kInodeStep = 65'536, kSessionStep = 1024, kCommandStep = 1'000'000;  ///< numbers per synced mark
inline constexpr Nanos kRoomPoll = 10 * kSecond;

struct CoreOptions {
  config::Cluster cluster;
  wire::Key key{};
  std::string data;                      ///< the server's data directory
  std::string host;
  bool turn_commit = true;
  std::function<void(Error)> fatal;      ///< the journal can't write any more; must end the process
};

struct Core {
  Runtime& runtime;
  rpc::Transport& transport;
  const CoreOptions options;
  Clock& clock;
  Nanos started = 0;                     ///< boot

  metrics::Operations operations;
  Watch requests, waits;                 ///< under way, and what they wait for
  std::unique_ptr<Store> store;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<Changelog> changelog;
  std::unique_ptr<RangeAllocator> inos, session_ids, commands;
  OpenTable opens;
  LockTable locks;
  AppendTokens appends;
  std::unique_ptr<Sessions> sessions;
  std::unique_ptr<Registry> registry;
  std::unique_ptr<OstChannels> channels;
  std::unique_ptr<Objects> objects;
  std::unique_ptr<Capabilities> capabilities;
  OstChooser chooser;
  DirLayouts dir_layouts;
  std::unique_ptr<OpHooks> hooks;
  std::unique_ptr<Services> services;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<OwedSender> owed;
  std::unique_ptr<Orphans> orphans;
  std::unique_ptr<Intents> intents;
  std::unique_ptr<Migrations> migrations;
  std::unique_ptr<Settler> settler;
  std::unique_ptr<Evictor> evictor;
  std::unique_ptr<check::Checker> checker;
  std::unique_ptr<Restoration> restoration;
  std::unique_ptr<Aftermath> aftermath;
  std::atomic<uint64_t> slow_requests{0}, parked_requests{0};
  std::atomic<uint64_t> room{0};         ///< free bytes of the filesystem that holds the metadata
  std::unique_ptr<metrics::Endpoint> endpoint;  ///< last: it asks the others

  Core(Runtime& r, rpc::Transport& t, CoreOptions o) : runtime(r), transport(t), options(std::move(o)), clock(r.clock()), requests(r.size()), waits(r.size()) {}
  /// Opens the store (unless it is given, open already) and makes all parts. Blocks; at start. Errors with a sentence.
  Result<void> open(std::unique_ptr<Store> opened = nullptr);
  void spawn_background();
  void open_metrics();                   ///< metrics.cc
  /// After the runtime has stopped: everything to disk, and the mark that nothing is missing.
  Result<void> close_clean();

  const config::Settings& settings() const { return options.cluster.settings; }
  void tell(std::vector<LockWake> woken);
  std::string name_of(SessionId session) const;  ///< "session 5 (/scratch on node7)"
  /// Chooses the storage targets of a component that is being instantiated.
  Result<std::vector<OstId>> choose(const schema::ComponentT& component);
  Epoch epoch(const schema::InodeRecordT& record) const;
  /// What the session may do with the objects of the file, unsigned.
  std::unique_ptr<wire::CapabilityT> rights(SessionId session, const schema::InodeRecordT& record, uint8_t mode) const;

 private:
  Result<void> load_lost_writers();
  Task<void> watch_room();
  Task<void> begin_work();
  Task<void> prune_changelog();
  Task<void> watch_requests();            ///< watchdog.cc
  std::vector<metrics::Family> families() const;
};

}  // namespace nacre::mds
