// SPDX-License-Identifier: Apache-2.0
// The object store's parts put together. Data operations live in write.cc, read.cc and command.cc; start and stop in open.cc and
// recovery.cc. Every operation: enter the gate, pin the entry, take its range lock, load what it needs, plan, do device I/O,
// then commit one batch under entry.mutex and bring the cached entry to the same state before the mutex is left.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "common/runtime/sync.h"
#include "storage/object/index.h"
#include "storage/object/object_store.h"
#include "storage/object/object_table.h"
#include "storage/object/space.h"
#include "storage/object/txg.h"

namespace nacre::storage {

inline constexpr uint32_t kMaxEdges = 2;  ///< blocks that a cut covers only in part: the first and the last
inline constexpr Nanos kExpiryInterval = 10 * kSecond;  ///< how often tombstones and fences are looked through
inline constexpr size_t kMaxSeals = 100'000;              ///< objects sealed at once; about 100 bytes each

struct CommandBatch;

class Store final : public ObjectStore {
 public:
  Store(Runtime& runtime, std::string dir, StoreOptions options);
  ~Store() override;

  Task<Result<void>> start();  ///< what open() does
  Task<Result<void>> close() override;
  Task<Result<WriteResult>> write(WriteArgs args) override;
  Task<Result<ReadResult>> read(ObjectId object, uint64_t offset, uint32_t length) override;
  Task<Result<SeekResult>> seek(ObjectId object, uint64_t offset, bool hole) override;
  Task<Result<std::vector<ObjectInfo>>> stat(std::vector<ObjectId> objects) override;
  Task<Result<ListResult>> list(std::optional<ObjectId> after, size_t limit) override;
  Task<Result<ScrubResult>> scrub(ObjectId object, uint64_t chunk, uint64_t max_bytes) override;
  Task<Result<CommandsResult>> commands(std::vector<Command> commands, bool sync) override;
  Task<Result<WSeq>> commit(WSeq up_to) override;
  WSeq stable() const override { return txg_->stable(); }
  Usage usage() const override;
  Status status() const override;
  Registration registration() const override;
  void set_time_offset(Nanos offset) override {
    time_offset_.store(offset, std::memory_order_relaxed);
    time_known_.store(true, std::memory_order_relaxed);
  }
  Nanos now() const override { return runtime_.clock().real() + time_offset_.load(std::memory_order_relaxed); }
  Task<Result<void>> set_epochs(std::vector<std::pair<FilesetId, Epoch>> epochs) override;
  Epoch epoch(FilesetId fileset) const override;
  Task<Result<void>> set_fences(std::vector<FenceEntry> fences) override;
  bool fenced(SessionId session) const override;
  void note_session(SessionId session) override;
  std::vector<FenceEntry> fences() const override;

 private:
  friend struct WriteOp;
  friend struct CutOp;
  friend struct CommandBatch;

  // ---- open.cc
  Result<schema::OstSuperT> open_index();
  Result<void> open_device();
  Result<void> load_state();                     ///< epochs, fences, high-water marks
  Result<void> load_ranges();                    ///< the high-water marks; if they are damaged, from the objects
  Result<bool> load_allocator(uint64_t txg);     ///< false: there is none of that txg, scan
  Result<void> scan_allocator();
  Result<void> begin(schema::OstSuperT& super);  ///< not clean any more, a new incarnation, new ranges
  Result<void> store_clean();
  void fail(const Error& why);
  void tick();
  Task<void> punch();
  Task<void> expire();                  ///< tombstones and fences whose time is over

  // ---- read.cc
  void read_ahead(EntryPtr entry, uint64_t offset, uint64_t end);
  Task<void> fetch(EntryPtr entry, uint64_t from, uint64_t to);

  // ---- load.cc
  Result<void> load_now(Entry& entry, Tier tier);
  Task<Result<void>> load(EntryPtr entry);
  Result<void> load_slot_now(Entry& entry, ChunkSlot& slot, uint64_t chunk, Tier tier);
  Task<Result<SlotPtr>> load_slot(EntryPtr entry, uint64_t chunk);
  /// Whether the object's record could be read (kCorrupt). entry.mutex is held.
  Result<void> check_sound(const Entry& entry) const;
  /// Chunk records in [from, to) of the index, in order, at most `most`. damaged: the record can't be read, content is empty; only
  /// for who asked for them, else kCorrupt.
  struct ChunkRow { uint64_t chunk; Chunk content; bool damaged = false; };
  Task<Result<std::vector<ChunkRow>>> rows(ObjectId object, uint64_t from, uint64_t to, size_t most, bool with_damaged = false);
  /// The 4 KiB of a written block, checked against its sum. Errors: kChecksum, kIo.
  Task<Result<Buffer>> read_block(ObjectId object, uint64_t block, uint64_t at, uint32_t sum);

  // ---- scrub.cc
  struct ScrubRow { ObjectId object; uint64_t chunk = 0; std::optional<Chunk> content; };  ///< no content: the record is damaged
  Result<std::vector<ScrubRow>> scrub_rows(ObjectId object, uint64_t chunk) const;
  Task<Result<ScrubResult>> scrub_page(ObjectId object, uint64_t chunk, uint64_t max_bytes);
  Task<Result<void>> scrub_chunk(const ScrubRow& row, ScrubResult& out);
  Task<std::vector<bool>> bad_blocks(const ScrubRow& row, ScrubResult& out);

  // ---- command.cc
  Task<Result<void>> apply(Command command, EntryPtr entry);
  Task<Result<void>> destroy(Command command, EntryPtr entry);
  Task<Result<void>> cut(Command command, EntryPtr entry);
  Task<Result<void>> allocate(Command command, EntryPtr entry);
  Result<JournalNo> commit_rows(Entry& entry, CommandBatch& part);
  Result<void> seal(const Command& command);
  bool sealed(const ObjectId& object) const;
  void break_seal(const ObjectId& object);

  void note_object(Batch& batch, const ObjectId& object);   ///< raises max_ino; under the journal mutex
  void note_command(Batch& batch, CmdSeq command);          ///< raises max_command
  void note_freed(const ObjectId& object, const std::vector<Extent>& extents);  ///< by the batch being built
  Error about(const ObjectId& object, uint64_t offset, Error error) const;
  ObjectInfo info_of(const ObjectState& state) const;

  Runtime& runtime_;
  Loop* home_ = nullptr;
  const std::string dir_;
  StoreOptions options_;
  int lock_fd_ = -1;
  std::shared_ptr<BlockDevice> device_;  ///< null after close()
  std::string io_kind_;
  std::unique_ptr<Index> index_;
  std::unique_ptr<Space> space_;
  std::unique_ptr<Txg> txg_;
  ObjectTable table_;
  Gate gate_;

  uint64_t capacity_ = 0, blocks_ = 0;
  Registration registration_;              ///< as of the start
  std::atomic<uint64_t> max_ino_{0}, max_command_{0}, max_session_{0};
  std::atomic<uint64_t> objects_{0};
  std::atomic<Nanos> time_offset_{0};
  std::atomic<uint64_t> checksum_errors_{0}, resends_applied_{0}, resends_refused_{0};
  uint64_t undo_restored_ = 0;
  std::atomic<bool> failed_{false}, time_known_{false};
  std::atomic<bool> scrubbing_{false};
  std::atomic<bool> rescan_{false};         ///< blocks were lost track of: the next start finds them by a scan
  std::set<ObjectId> doubtful_;             ///< share blocks with others, which free them; written at the start only
  bool punching_ = false, expiring_ = false;  ///< home loop only
  Nanos next_expiry_ = 0;
  bool closed_ = false;

  mutable std::shared_mutex state_mutex_;  ///< of the two maps
  std::unordered_map<FilesetId, Epoch> epochs_;
  std::unordered_map<SessionId, Nanos> fences_;
  std::map<ObjectId, CmdSeq> seals_;       ///< with the command that sealed them; state_mutex_ too
  std::atomic<size_t> seal_count_{0};      ///< entries of seals_
};

/// Keeps the store open for one operation.
class GateGuard {
 public:
  explicit GateGuard(Gate& gate) : gate_(gate.enter() ? &gate : nullptr) {}
  ~GateGuard() { if (gate_) gate_->leave(); }
  GateGuard(const GateGuard&) = delete;
  GateGuard& operator=(const GateGuard&) = delete;
  explicit operator bool() const { return gate_ != nullptr; }

 private:
  Gate* gate_;
};

}  // namespace nacre::storage
