// SPDX-License-Identifier: Apache-2.0
// One storage target's service on a network and a disk in memory, with a stand-in for the metadata server, driven by hand on one
// thread: the same calls give the same run.
#pragma once
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "common/testing/memory_device.h"
#include "common/testing/memory_transport.h"
#include "storage/service/service.h"
#include "tests/unit/common/runtime/hand.h"
#include "tests/unit/storage/object/power_env.h"

namespace nacre::storage::fuzz {

inline constexpr uint64_t kCapacity = 64 << 20;

/// One request and what came of it.
struct Call {
  bool as_mds = false;
  uint16_t method = 0;
  Bytes body;
  Buffer payload;
  bool done = false;
  Result<rpc::Reply> reply = Err(Errc::kDeadline);
};
using CallPtr = std::shared_ptr<Call>;

class World {
 public:
  World();
  ~World();
  /// Sends the request; its answer is there after wait().
  void send(CallPtr call);
  /// Until every request is answered, or its deadline of a minute has passed.
  void wait();
  void pass(Nanos time);
  /// A clean stop and the next start.
  void restart();
  ObjectStore& store() { return service_->store(); }
  const wire::Key& key() const { return key_; }
  std::optional<Error> fatal;  ///< why the target gave up, if it did

 private:
  template <class T>
  T run(Task<T> task);
  void until(const std::function<bool()>& done);
  void start();
  void stop();
  rpc::PeerPtr connect(uint8_t role);

  const std::filesystem::path dir_;
  testing::Hand hand_;
  nacre::testing::PowerEnv env_{std::make_shared<nacre::testing::Power>()};
  std::shared_ptr<nacre::testing::MemoryDevice> device_ = std::make_shared<nacre::testing::MemoryDevice>(kCapacity);
  nacre::testing::MemoryNetwork net_{1};
  std::unique_ptr<rpc::Transport> oss_host_ = net_.host("oss"), client_host_ = net_.host("client"), mds_host_ = net_.host("mds");
  wire::Key key_{};
  config::Cluster cluster_;
  std::unique_ptr<rpc::Server> mds_;
  std::unique_ptr<Service> service_;
  rpc::PeerPtr client_, as_mds_;
  size_t under_way_ = 0;
};

}  // namespace nacre::storage::fuzz
