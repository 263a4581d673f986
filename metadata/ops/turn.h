// SPDX-License-Identifier: Apache-2.0
// A turn: what the operations of one pass of an event loop have written but not committed yet, the locks under which they did,
// and the replies that wait for the commit. One per loop, on that loop's thread; only ask_to_end() comes from others.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "common/runtime/core.h"
#include "common/runtime/sync.h"
#include "metadata/ops/locks.h"
#include "metadata/ops/op.h"

namespace nacre::mds {

class Turn {
 public:
  Turn(Loop& loop, Locks& locks, Journal& journal, std::atomic<uint64_t>& commits);
  Turn(const Turn&) = delete;

  /// How the commit of an operation's turn went.
  struct Outcome {
    Signal done;
    Result<JournalNo> number = JournalNo(0);
  };

  bool try_lock(uint32_t stripe);
  /// Ends the turn, then waits for all of `stripes` (ascending, each once).
  void lock_all(const std::vector<uint32_t>& stripes);
  const Batch& batch() const { return batch_; }
  bool has_rows() const { return !batch_.empty(); }
  size_t operations() const { return operations_; }
  /// Takes over what a run has written and runs its on_staged effects.
  void stage(OpContext& ctx);
  /// The commit that comes next, for one more operation; shared by all that wait for it.
  std::shared_ptr<Outcome> join();
  /// Sees to it that the turn ends when the loop has run what is ready now.
  void end_soon();
  /// Commits, runs the on_commit effects, unlocks, releases the replies.
  void end();
  bool asked_to_end() const { return asked_.load(std::memory_order_relaxed); }
  void ask_to_end() { asked_.store(true, std::memory_order_relaxed); }  ///< any thread: somebody waits for a lock

 private:
  Loop& loop_;
  Locks& locks_;
  Journal& journal_;
  std::atomic<uint64_t>& commits_;
  Batch batch_;
  std::vector<uint32_t> held_;
  std::vector<std::function<void()>> committed_;
  std::shared_ptr<Outcome> outcome_;  ///< null while nobody waits
  size_t operations_ = 0;
  std::atomic<bool> asked_{false};
  struct EndNode : ReadyNode { Turn* turn = nullptr; } end_node_;
  bool ending_soon_ = false;
};

}  // namespace nacre::mds
