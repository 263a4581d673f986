// SPDX-License-Identifier: Apache-2.0
// The metadata server as a whole: opens its directory, recovers, serves. Made and stopped from outside the loops.
#pragma once
#include <memory>
#include <string>

#include "metadata/service/core.h"

namespace nacre::mds {

class Dispatcher;

class MetadataServer {
 public:
  /// Blocks until requests are served. `address`: where to listen, "HOST:PORT". The runtime is started and outlives the server.
  /// Errors with a sentence: the store's, kInUse (address), kConfig.
  static Result<std::unique_ptr<MetadataServer>> start(Runtime& runtime, rpc::Transport& transport, CoreOptions options, std::string address);
  ~MetadataServer();

  std::string address() const;
  /// No new connections or requests. Then stop the runtime.
  void stop();
  /// After the runtime has stopped: writes everything and marks the directory clean. Without it the next start recovers, as after a kill.
  Result<void> close_clean();
  Core& core() { return *core_; }

 private:
  MetadataServer();
  std::unique_ptr<Core> core_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace nacre::mds
