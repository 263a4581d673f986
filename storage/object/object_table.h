// SPDX-License-Identifier: Apache-2.0
// The objects in use: their records and chunks as last committed, and the range locks that order writers. A cache in front of
// the index: an entry that nobody holds may go at any time, one that is held is the truth. Operations hold entries by EntryPtr.
// Any thread; no mutex is held across an await. Order of mutexes: shard → entry → the index's journal; locks_mutex is innermost.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/runtime/sync.h"
#include "common/runtime/task.h"
#include "storage/object/chunk.h"

namespace nacre::storage {

inline constexpr size_t kShards = 64;
inline constexpr size_t kMaxEntries = 16'384;      ///< cached objects; ~500 B each
inline constexpr size_t kMaxSlots = 32'768;        ///< cached chunks; 1.1 KiB each, 9 KiB when every block lies elsewhere
inline constexpr size_t kSlotsPerEntry = 64;       ///< of one object that nobody uses at the moment
inline constexpr size_t kMaxRangeWaiters = 65'536; ///< of one object; more are asked to retry

/// ObjectRecord in memory.
struct ObjectState {
  bool exists = false;
  uint64_t size = 0, allocated = 0;
  FilesetId fileset;
  Nanos changed = 0;
  CmdSeq command;
  WSeq wseq, truncate_wseq;
  uint32_t died_epoch = 0;

  void encode(std::string& out) const;
  static Result<ObjectState> decode(std::string_view value);
};

struct ChunkSlot {
  Chunk chunk;
  bool loaded = false;
  uint64_t loaded_txg = 0;  ///< no batch of a later txg touched the chunk before it was loaded
  uint64_t undo_txg = 0;    ///< the txg that has an undo row of this chunk; 0 = not known
};
using SlotPtr = std::shared_ptr<ChunkSlot>;

/// Blocks [first, last] of an object.
struct BlockRange {
  uint64_t first = 0, last = UINT64_MAX;
  bool meets(const BlockRange& o) const { return first <= o.last && o.first <= last; }
};

struct Entry {
  explicit Entry(ObjectId object) : id(object) {}
  const ObjectId id;

  std::mutex mutex;         ///< of what follows, up to the locks
  bool loaded = false;
  bool damaged = false;     ///< its record can't be read: nothing but its destruction goes through
  bool stale = false;       ///< destroyed
  CmdSeq tombstone;         ///< of the command that destroyed it
  ObjectState state;
  JournalNo last_change;    ///< no batch after this one touched the object
  std::map<uint64_t, SlotPtr> slots;
  uint64_t read_end = 0;    ///< where the last read ended: one that begins there goes on with it
  uint64_t ahead = 0;       ///< up to here readers in order have had it fetched

  std::mutex locks_mutex;
  std::vector<BlockRange> held;
  struct Waiter {
    BlockRange range;
    Signal signal;
    bool granted = false;
  };
  std::deque<std::shared_ptr<Waiter>> waiters;
};
using EntryPtr = std::shared_ptr<Entry>;

/// Holds a range of an object's blocks against other writers and commands.
class RangeLock {
 public:
  RangeLock() = default;
  RangeLock(EntryPtr entry, BlockRange range) : entry_(std::move(entry)), range_(range) {}
  RangeLock(RangeLock&& o) noexcept : entry_(std::move(o.entry_)), range_(o.range_) {}
  RangeLock& operator=(RangeLock&& o) noexcept;
  ~RangeLock() { unlock(); }
  void unlock();

 private:
  EntryPtr entry_;
  BlockRange range_;
};
/// First come, first served among those that meet. Errors: kShutdown, kRetryLater.
Task<Result<RangeLock>> lock_range(EntryPtr entry, BlockRange range);

class ObjectTable {
 public:
  EntryPtr pin(const ObjectId& id);
  /// The entry if it is cached.
  EntryPtr peek(const ObjectId& id);
  /// The chunk's slot, made if need be; entry.mutex is held by the caller.
  SlotPtr slot(Entry& entry, uint64_t chunk);
  /// Forgets the slots of chunks ≥ `first` (they are gone from the index); entry.mutex is held by the caller.
  void drop_slots(Entry& entry, uint64_t first);

 private:
  struct Node {
    EntryPtr entry;
    std::list<ObjectId>::iterator used;
  };
  struct Shard {
    std::mutex mutex;
    std::map<ObjectId, Node> nodes;
    std::list<ObjectId> recent;  ///< newest first
  };
  Shard& shard(Ino ino) { return shards_[std::hash<Ino>{}(ino) >> 40 & (kShards - 1)]; }
  void evict(Shard& shard);
  std::array<Shard, kShards> shards_;
  std::atomic<size_t> slots_{0};
};

}  // namespace nacre::storage
