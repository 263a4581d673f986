// SPDX-License-Identifier: Apache-2.0
// Who may have blocks, and when a freed block may be used again. A target keeps a reserve: new data stops at it, overwrites may
// use half of it, commands all of it; the same again for what the backing filesystem can still give. A block that a batch freed
// comes back after that batch's txg and after every read that began before (P1.9). Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/io/block_device.h"
#include "storage/object/allocator.h"

namespace nacre::storage {

/// min(max(3 %, 1 GiB), 10 %) of the capacity.
uint64_t reserve_of(uint64_t capacity);

/// Counts reads by the epoch they began in, so that one can ask whether all that began before a moment have ended.
class ReadEpochs {
 public:
  uint64_t enter();
  void leave(uint64_t epoch);
  uint64_t advance();                ///< ends the current epoch and returns it
  bool ended(uint64_t epoch) const;  ///< nobody who entered in or before `epoch` is left

 private:
  mutable std::mutex mutex_;
  uint64_t first_ = 1;                ///< epoch of counts_[0]
  std::deque<uint64_t> counts_ = {0}; ///< the last one is the current epoch
};

/// A read in progress; while it lives no block is reused that was in use when it began.
class ReadGuard {
 public:
  explicit ReadGuard(ReadEpochs& epochs) : epochs_(epochs), epoch_(epochs.enter()) {}
  ~ReadGuard() { epochs_.leave(epoch_); }
  ReadGuard(const ReadGuard&) = delete;
  ReadGuard& operator=(const ReadGuard&) = delete;

 private:
  ReadEpochs& epochs_;
  uint64_t epoch_;
};

enum class Purpose { kNew, kOverwrite, kCommand };

class Space {
 public:
  Space(uint64_t capacity, BlockDevice& device);
  Allocator& allocator() { return allocator_; }
  const Allocator& allocator() const { return allocator_; }
  ReadEpochs& reads() { return reads_; }

  /// Blocks, or nothing if the purpose may not have them; decided before any data is taken.
  std::optional<std::vector<Extent>> take(uint64_t blocks, Purpose purpose, const Allocator::Hint& hint);
  /// Whether that many blocks could be had for the purpose now.
  bool has(uint64_t blocks, Purpose purpose) const;
  /// Why they can't: what is short and what may be done.
  std::string shortage(uint64_t blocks, Purpose purpose) const;
  /// Taken but never put into the index: free at once.
  void give_back(std::span<const Extent> extents) { allocator_.release(extents); }

  /// A batch freed them: they are on their way (between here and after_txg the txg holds the list).
  void freed(std::span<const Extent> extents);
  /// The txg that freed them is synced: they come back when the reads of now have ended.
  void after_txg(std::vector<Extent> extents);
  /// Releases what no read holds any more.
  void poll();
  /// Blocks that will be free soon without anybody deleting more.
  bool any_pending() const { return pending_.load(std::memory_order_acquire) != 0 || punching_.load(std::memory_order_acquire) != 0; }
  void refresh_backing();  ///< asks the backing filesystem; a system call

  /// Gives free runs of 1 MiB and more back to the backing filesystem, at most `times` of them.
  Task<Result<void>> punch(size_t times);

  uint64_t used() const;       ///< bytes, pending ones included
  uint64_t available() const;  ///< bytes for new data

 private:
  uint64_t leave(Purpose purpose) const;  ///< blocks that must stay free
  bool backing_allows(uint64_t blocks, Purpose purpose) const;

  BlockDevice& device_;
  Allocator allocator_;
  ReadEpochs reads_;
  const uint64_t reserve_;                  ///< blocks
  std::atomic<uint64_t> pending_{0};        ///< blocks freed, not yet released
  std::atomic<uint64_t> punching_{0};       ///< blocks taken out to be punched
  std::atomic<int64_t> backing_left_{0};    ///< bytes the backing filesystem could give when last asked, less what was taken since
  std::mutex mutex_;
  struct Waiting { uint64_t epoch; std::vector<Extent> extents; };
  std::deque<Waiting> waiting_;             ///< for reads to end
};

}  // namespace nacre::storage
