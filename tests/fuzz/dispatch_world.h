// SPDX-License-Identifier: Apache-2.0
// A metadata server without its network: the real core on a real database in memory-backed files, requests handed to the
// dispatcher as if they had arrived, storage targets that keep sizes, one hand-driven loop and a clock of its own. Everything
// that must not be ends the process with a sentence.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <string>

#include "common/rpc/server.h"
#include "common/testing/memory_transport.h"
#include "metadata/service/core.h"
#include "metadata/service/dispatch.h"
#include "tests/fuzz/dispatch_requests.h"

namespace nacre::mds::fuzz {

class Caller;

/// A request on its way, and what came of it.
struct Answer {
  bool done = false;
  rpc::Reply reply;
};

/// What the storage targets have stored. Outlives restarts of the server.
struct Targets {
  struct Object {
    uint64_t size = 0, allocated = 0, wseq = 0, command = 0;
    Nanos changed = 0;
  };
  std::map<ObjectId, Object> objects;
  bool no_space = false;
};

class World {
 public:
  /// Formats `directory` and makes the tree that dispatch_requests.h describes.
  static void make_template(const std::string& directory);
  static std::unique_ptr<Store> open_store(const std::string& directory);
  /// `directory`: a copy of the template; `store`: it, open, with the template's rows.
  World(std::string directory, std::unique_ptr<Store> store);
  ~World();
  /// Ends the server; null if the store was closed on the way.
  std::unique_ptr<Store> take_store();

  void play(const Step& step);
  /// All answers are here, and the namespace is whole.
  void check();
  /// Every session is evicted; nothing of them is left.
  void check_end();
  /// What a kill leaves on disk is whole.
  void check_disk();

 private:
  struct Bare {};
  World(std::string directory, Bare);
  void open(std::unique_ptr<Store> store = nullptr);
  std::unique_ptr<Store> close(bool clean);
  void join(uint8_t who, bool reclaim);
  void join_all(bool reclaim);
  void revive(uint8_t who);
  void populate();
  void serve_targets(bool up);
  rpc::Reply ask(uint8_t who, rpc::Method method, Bytes body);
  Bytes must(uint8_t who, rpc::Method method, Bytes body);
  std::shared_ptr<Answer> send(uint8_t who, const Step& step);
  void answered(uint16_t method, const rpc::Reply& reply);
  void write_object(std::span<const uint8_t> report);
  bool wait(const std::function<bool()>& what, Nanos limit);
  void pass(Nanos time);
  void evict_all();
  bool targets_untouched() const;

  const std::string directory_;
  CoreOptions options_;
  std::shared_ptr<Targets> targets_ = std::make_shared<Targets>();
  ManualClock clock_;
  testing::MemoryNetwork network_{1};
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<rpc::Transport> mds_host_, ost_host_;
  std::array<std::unique_ptr<rpc::Server>, 2> servers_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::array<std::shared_ptr<Caller>, kCallers> callers_;
  std::array<uint64_t, 3> sessions_{};
  std::map<std::pair<uint8_t, uint8_t>, uint32_t> sequences_;
  std::vector<std::shared_ptr<Answer>> pending_;
  uint64_t incarnation_ = 0;
  bool up_ = false, stopping_ = false;
};

}  // namespace nacre::mds::fuzz
