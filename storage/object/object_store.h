// SPDX-License-Identifier: Apache-2.0
// The object store of one OST: checksummed copy-on-write blocks under an index, in one directory, without any network.
// Acknowledged = in the page cache and the index's log (survives kill -9); stable = synced by a transaction group (txg), which
// runs every txg_interval, when commit() asks, and at once for writes that merged with data a block already held.
// All tasks may be awaited on any loop of the runtime and stay there; the rest is thread-safe. Times are ns since the epoch UTC.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/io/block_device.h"
#include "common/io/buffer.h"
#include "common/runtime/loop.h"
#include "common/runtime/task.h"

namespace rocksdb {
class Env;
}

namespace nacre::storage {

using Uuid = std::array<uint8_t, 16>;

inline constexpr uint64_t kMinCapacity = 16ull << 20;   ///< bytes; below, the reserve leaves nothing to use
inline constexpr size_t kMaxCommands = 1000;            ///< of one commands() call
inline constexpr size_t kMaxStats = 100'000;            ///< of one stat() call
inline constexpr size_t kMaxListed = 10'000;            ///< of one list() call
inline constexpr uint64_t kMinScrub = 1ull << 20, kMaxScrub = 64ull << 20;  ///< bytes of one scrub() call
/// A tombstone outlives every capability that may still name the object: 60 s, plus skew and delay.
inline constexpr Nanos kTombstoneTerm = 180 * kSecond;

struct FormatOptions {
  Uuid cluster_id{};
  Uuid uuid{};                ///< of this target; from system_rng()
  OstId ost;
  uint64_t capacity = 0;      ///< bytes, ≥ kMinCapacity; rounded down to 4 KiB
  Nanos created = 0;
  rocksdb::Env* env = nullptr;  ///< instead of the system's (tests)
};

struct StoreOptions {
  Uuid cluster_id{};          ///< a target of another cluster is refused (kNotOurs)
  OstId ost;                  ///< as is one that was formatted with another number
  Nanos txg_interval = 1 * kSecond;
  uint64_t block_cache = 256ull << 20;  ///< bytes of the index's block cache
  bool direct = false;        ///< O_DIRECT on DIR/blocks
  bool uring = true;
  /// Told once when the target can't go on (a sync or the index failed, P1.12): the owner ends the process. Any thread.
  std::function<void(Error)> fatal;
  std::shared_ptr<BlockDevice> device;  ///< instead of DIR/blocks (tests)
  rocksdb::Env* env = nullptr;          ///< instead of the system's (tests); must outlive the store
};

struct WriteArgs {
  ObjectId object;
  FilesetId fileset;
  Epoch epoch;                ///< the capability's; kStaleEpoch if older than the stored one, kRetryLater if newer (ask the MDS, set_epochs, repeat)
  uint64_t offset = 0;        ///< bytes in the object; offset + data.size() ≤ kMaxFileSize
  Buffer data;                ///< 1 byte to 1 MiB. Written without a copy if `offset` is a multiple of 4 KiB and data() is 4 KiB-aligned
  std::vector<uint32_t> sums; ///< wire::range_sums of (object, offset, data); verified here
  WSeq wseq;                  ///< none = a new write; else a resend after a restart: applied where the stored one is lower
  bool sync = false;          ///< answer when stable
};
struct WriteResult {
  WSeq wseq;                  ///< of a resend: its own
  uint64_t size = 0;          ///< of the object, after the write
  uint64_t allocated = 0;     ///< bytes
  Nanos changed = 0;          ///< strictly increasing per object
  bool is_stable = false;     ///< always so for `sync`, resends, and merges with data a block held
};

struct ReadResult {
  Buffer payload;             ///< whole blocks from round_down(offset, 4 KiB) on, up to the one the object ends in (zeros past the end); may be empty
  std::vector<uint32_t> sums; ///< one per block of the payload; 0 = hole, all zeros. Not verified here: the reader does
  uint64_t size = 0;          ///< of the object; 0 if it doesn't exist
};

struct SeekResult {
  bool found = false;
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct ObjectInfo {
  uint64_t size = 0, allocated = 0;
  Nanos changed = 0;
  WSeq wseq;                  ///< last write applied
  bool exists = false;
};

struct Command {
  ObjectId object;
  uint8_t kind = 0;           ///< wire::kCmd…
  uint64_t offset = 0;        ///< truncate: the new end
  uint64_t length = 0;
  CmdSeq command;             ///< not newer than the object's last one: nothing is done, and reported as done
  FilesetId fileset;
};
struct CommandsResult {
  std::vector<CmdSeq> done;      ///< in the order of the call
  std::vector<ObjectInfo> infos; ///< after each, same order
};

struct ListedObject {
  ObjectId object;
  ObjectInfo info;            ///< exists = false: its record in the index is damaged
  FilesetId fileset;
};
struct ListResult {
  std::vector<ListedObject> objects;  ///< in order of object
  bool end = false;                   ///< there are no more
  uint64_t total = 0;                 ///< objects of the target
};

struct DamagedRange {
  ObjectId object;
  uint64_t offset = 0, length = 0;    ///< bytes of the object, whole blocks
};
struct ScrubResult {
  std::vector<DamagedRange> damaged;  ///< at most a few hundred: then the call ends early
  ObjectId object;                    ///< where to go on: the chunk `chunk` of this object, if there is one, else what follows
  uint64_t chunk = 0;
  bool end = false;                   ///< everything was looked at
  uint64_t bytes = 0;                 ///< verified
};

struct Usage {
  uint64_t capacity = 0;      ///< bytes
  uint64_t used = 0;          ///< allocated, with what awaits its txg
  uint64_t available = 0;     ///< to new data: free, less the reserve, less what the backing filesystem can't give
  uint64_t objects = 0;
};

struct Status {
  uint64_t txg = 0;           ///< the one being filled
  WSeq stable, last;          ///< last: newest write sequence given out
  uint64_t checksum_errors = 0;
  uint64_t resends_applied = 0, resends_refused = 0;
  uint64_t free_extents = 0;
  uint64_t undo_restored = 0; ///< blocks that the last unclean start took back to an older version or a hole
  std::string io;             ///< BlockDevice::kind()
};

/// What OstRegister tells the MDS.
struct Registration {
  OstId ost;
  Uuid uuid{};
  uint64_t incarnation = 0;   ///< one more with each open
  bool clean = false;         ///< the last stop was a close()
  Ino max_ino;                ///< highest ever seen in an object or command
  CmdSeq max_command;
  WSeq wseq;                  ///< none above this was given out before this start
  SessionId max_session;      ///< none above this has asked for anything
  Epoch max_epoch;            ///< of any fileset
};

struct FenceEntry {
  SessionId session;
  Nanos until = 0;            ///< MDS time; dropped afterwards
};

class ObjectStore {
 public:
  /// Makes DIR (which may exist if empty) a target: blocks, index/, lock. Blocking.
  /// Errors: kExist (is one already), kNotOurs (holds other files), kInval (capacity), kIo.
  static Result<void> format(const std::string& dir, const FormatOptions& options);

  /// Takes the target in use; after an unclean stop verifies what the last txgs wrote and falls back where it was lost.
  /// Await on a loop of `runtime`; that loop then runs the txgs. Everything found is synced before this returns.
  /// Errors, each with a sentence what to do: kNotOurs (no target, other cluster, other number), kVersion (newer format),
  /// kInUse (another process), kCorrupt, kIo.
  static Task<Result<std::unique_ptr<ObjectStore>>> open(Runtime& runtime, std::string dir, StoreOptions options);

  /// After close(), or when the runtime has stopped (then the next open is an unclean one).
  virtual ~ObjectStore() = default;
  /// Ends the txgs, writes the allocator, marks the target clean. Operations in progress end first, later ones get kShutdown.
  virtual Task<Result<void>> close() = 0;

  // ---- data
  /// Errors: kStaleGeneration (destroyed; or sealed, then of new writes only, since a resend ends the seal), kStaleEpoch, kRetryLater (newer epoch),
  /// kChecksum (the bytes that arrived, or the old block of a merge), kNoSpc (nothing was taken), kInval, kIo, kShutdown.
  virtual Task<Result<WriteResult>> write(WriteArgs args) = 0;
  /// length ≤ 1 MiB. Errors: kStaleGeneration (destroyed), kInval, kIo.
  virtual Task<Result<ReadResult>> read(ObjectId object, uint64_t offset, uint32_t length) = 0;
  /// SEEK_DATA or SEEK_HOLE within the object; the end of its last block counts as a hole. found = false there and beyond, or
  /// without data.
  virtual Task<Result<SeekResult>> seek(ObjectId object, uint64_t offset, bool hole) = 0;
  /// Same order and length as `objects` (≤ kMaxStats).
  /// An object whose record is damaged counts as absent.
  virtual Task<Result<std::vector<ObjectInfo>>> stat(std::vector<ObjectId> objects) = 0;
  /// The objects after `after` (none = from the first), at most `limit` (≤ kMaxListed).
  virtual Task<Result<ListResult>> list(std::optional<ObjectId> after, size_t limit) = 0;
  /// Reads stored blocks from chunk `chunk` of `object` on, in order of objects, and verifies them against their checksums, until
  /// `max_bytes` (kMinScrub to kMaxScrub) are through. What is replaced meanwhile is no damage. One call at a time. Errors: kRetryLater.
  virtual Task<Result<ScrubResult>> scrub(ObjectId object, uint64_t chunk, uint64_t max_bytes) = 0;
  /// ≤ kMaxCommands, in order; `changed` of an object doesn't move. sync: stable before the result. Truncate, punch and zero range
  /// first make older writes of the object stable, since a resend can't bring them back. The first refusal ends the call with its
  /// error (kNoSpc from allocate, kChecksum or kIo from a cut block): commands before it stay done.
  virtual Task<Result<CommandsResult>> commands(std::vector<Command> commands, bool sync) = 0;

  // ---- stability
  /// Makes all writes up to `up_to` (none = all so far) stable; callers share txgs. Returns stable().
  virtual Task<Result<WSeq>> commit(WSeq up_to) = 0;
  /// Every acknowledged new write of this incarnation up to here is stable. (Resends are stable when acknowledged.)
  virtual WSeq stable() const = 0;

  // ---- state
  virtual Usage usage() const = 0;
  virtual Status status() const = 0;
  virtual Registration registration() const = 0;
  /// MDS time minus this host's CLOCK_REALTIME; what now() adds.
  virtual void set_time_offset(Nanos offset) = 0;
  virtual Nanos now() const = 0;  ///< MDS time

  // ---- what the MDS decided; durable when the task returns
  virtual Task<Result<void>> set_epochs(std::vector<std::pair<FilesetId, Epoch>> epochs) = 0;  ///< never goes back
  virtual Epoch epoch(FilesetId fileset) const = 0;  ///< 1 if never told
  virtual Task<Result<void>> set_fences(std::vector<FenceEntry> fences) = 0;  ///< later `until` wins; until 0 lifts
  virtual bool fenced(SessionId session) const = 0;
  /// A session showed a right: Registration::max_session is at least this from now on, also after a crash.
  virtual void note_session(SessionId session) = 0;
  virtual std::vector<FenceEntry> fences() const = 0;
};

}  // namespace nacre::storage
