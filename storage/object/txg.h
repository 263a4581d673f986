// SPDX-License-Identifier: Apache-2.0
// Transaction groups: what was acknowledged becomes stable. A cycle ends one txg and begins the next: sync the blocks file, sync the
// index's log, drop the txg's undo rows, let its freed blocks go, move stable(). A cycle runs every interval if anything
// changed, and at once when somebody waits; waiters share it. Any error ends the target (P1.12): `fail` is told, waiters get it.
// The numbers are only touched under the index's journal mutex, so that they agree with the order of batches.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "common/io/block_device.h"
#include "common/runtime/sync.h"
#include "common/schema/codec.h"
#include "storage/object/index.h"
#include "storage/object/space.h"

namespace nacre::storage {

/// Write sequences made durable ahead of use: 20 s of 50,000 writes a second; a new range is asked for at half of it.
inline constexpr uint64_t kWSeqRange = 1'000'000;
/// Undo rows of a txg that are deleted one by one; more go by a range, which RocksDB would make reads look through.
inline constexpr size_t kSingleUndoRows = 256;

class Txg {
 public:
  struct Parts {
    Index& index;
    BlockDevice& device;
    Space& space;
    schema::OstSuperT super;           ///< as stored and synced; wseq_high is the first range's end
    uint64_t first_wseq = 0;           ///< none above it was given out
    Nanos interval = kSecond;
    std::function<void(Error)> fail;   ///< told at most once, any thread
    std::function<void()> on_tick;     ///< on the loop, after each interval
  };
  explicit Txg(Parts parts);

  // ---- within Index::commit's build or Index::between
  Result<WSeq> next_wseq();            ///< kRetryLater: the durable range is used up; force() and try again
  WSeq last_wseq() const { return WSeq(next_wseq_ - 1); }
  uint64_t number() const { return number_; }
  void freed(const std::vector<Extent>& extents);  ///< by the batch being built
  void undo_row(const Key<kUndoKey>& key);         ///< it put one
  void touch() { dirty_.store(true, std::memory_order_relaxed); }

  // ---- anywhere
  WSeq stable() const { return WSeq(stable_.load(std::memory_order_acquire)); }
  WSeq newest() const { return WSeq(newest_.load(std::memory_order_acquire)); }
  uint64_t filling() const { return filling_.load(std::memory_order_acquire); }
  bool is_synced(JournalNo n) const { return synced_.load(std::memory_order_acquire) >= n.v; }
  Task<Result<void>> through(JournalNo n);  ///< until batch `n` is stable
  Task<Result<void>> force();               ///< a whole cycle, begun after the call
  void kick();                              ///< wakes the loop (a rotation is due)
  /// Write sequences up to here were given out by earlier starts.
  uint64_t base() const { return base_; }

  void start(Loop& loop);                   ///< once
  Task<void> stop();                        ///< ends the loop's work and waits
  Task<Result<void>> cycle();               ///< after stop(), or before start()
  schema::OstSuperT& super() { return super_; }

 private:
  Task<void> run();
  void settle(const Result<void>& outcome, std::vector<Signal>& waiters);
  void leave(const Error& why);

  Index& index_;
  BlockDevice& device_;
  Space& space_;
  const Nanos interval_;
  const std::function<void(Error)> fail_;
  const std::function<void()> on_tick_;
  const uint64_t base_;

  // Under the journal mutex.
  schema::OstSuperT super_;
  uint64_t next_wseq_;
  uint64_t number_;
  std::vector<Extent> frees_;
  std::vector<Key<kUndoKey>> undo_;  ///< keys of the txg's rows, the first kSingleUndoRows + 1

  std::atomic<bool> dirty_{false};
  std::atomic<uint64_t> high_;  ///< durable end of the range
  std::atomic<uint64_t> stable_, newest_, synced_{0}, filling_;

  std::mutex mutex_;            ///< of what follows
  std::vector<Signal> waiters_;
  std::optional<Signal> kick_;
  std::optional<Signal> ended_;
  bool kicked_ = false, stopping_ = false, running_ = false;
  std::optional<Error> over_;   ///< why nobody may wait any more
};

}  // namespace nacre::storage
