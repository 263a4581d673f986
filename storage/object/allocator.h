// SPDX-License-Identifier: Apache-2.0
// Which blocks of the blocks file are free, in memory. Best fit, close behind the object's last block where that is free; an
// object that grows gets a window of following blocks, so that small appends of several writers don't interleave on disk.
// Knows nothing of txgs: a block is released here only when nobody can need its old content (P1.9). Thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/ids.h"
#include "storage/object/chunk.h"

namespace nacre::storage {

inline constexpr uint64_t kNoGoal = UINT64_MAX;
inline constexpr uint64_t kMinWindow = 16, kMaxWindow = 256;  ///< blocks: 64 KiB, doubled with each use up to a chunk
inline constexpr size_t kMaxWindows = 1024;                   ///< objects that grow at once; more go without
inline constexpr uint64_t kMinPunch = 256;                    ///< blocks: holes of 1 MiB and more are worth a system call
inline constexpr uint64_t kMaxPunch = 16 * 1024;              ///< blocks: 64 MiB are out of the allocator while they are punched
inline constexpr size_t kPunchLook = 4096;                    ///< extents looked at per call

class ExtentMap {
 public:
  void add(Extent e);                      ///< joins with neighbours; must not overlap
  void remove(uint64_t at, uint64_t end);  ///< what of [at, end) is in
  const std::map<uint64_t, uint64_t>& all() const { return extents_; }  ///< first block → one past the last

 private:
  std::map<uint64_t, uint64_t> extents_;
};

class Allocator {
 public:
  struct Hint {
    ObjectId object;
    uint64_t goal = kNoGoal;  ///< the block after the object's preceding block
    bool growing = false;     ///< sequential: more is to follow
  };

  /// `blocks`: capacity. Nothing is free yet.
  explicit Allocator(uint64_t blocks) : capacity_(blocks) {}

  /// `count` blocks in as few pieces as can be, if at least `leave` stay free; else nothing.
  std::optional<std::vector<Extent>> allocate(uint64_t count, uint64_t leave, const Hint& hint);
  /// Blocks whose content nobody needs any more (and which hold space in the backing file).
  void release(std::span<const Extent> extents);
  /// Free blocks that hold no space in the backing file; used to build the map.
  void add_clean(Extent extent);

  uint64_t free() const;
  uint64_t capacity() const { return capacity_; }
  size_t extents() const;
  std::vector<Extent> all_free() const;  ///< in order, windows included
  void age_windows();                    ///< gives back windows not used since the last call

  /// A run of at least kMinPunch free blocks that hold space: taken out until punched() is called for it.
  std::optional<Extent> take_for_punch();
  void punched(Extent extent);
  void mark_unpunched();  ///< after an unclean start nobody knows which free blocks hold space: all may

 private:
  struct Window { Extent extent; uint64_t size = 0; bool used = true; };
  void insert(Extent e);
  void take(uint64_t at, uint64_t length);
  std::optional<Extent> best_fit(uint64_t count) const;
  uint64_t take_window(const Hint& hint, uint64_t count, std::vector<Extent>& out);
  uint64_t take_at(uint64_t at, uint64_t count, std::vector<Extent>& out);
  void take_fit(const Hint& hint, uint64_t count, std::vector<Extent>& out);
  void drop_windows();

  const uint64_t capacity_;
  mutable std::mutex mutex_;
  uint64_t free_ = 0;  ///< blocks, windows included
  std::map<uint64_t, uint64_t> by_at_;               ///< first block → length
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  ///< (length, first block)
  std::unordered_map<ObjectId, Window> windows_;
  ExtentMap unpunched_;
  uint64_t punch_cursor_ = 0;
};

}  // namespace nacre::storage
