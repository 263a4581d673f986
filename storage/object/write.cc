// SPDX-License-Identifier: Apache-2.0
// Writes. Never in place: the new bytes go to free blocks (or to blocks allocated ahead, which hold nothing), then one batch
// replaces the records. A block covered in part is composed with what it held; that old content is checked first, and since a
// resend can't repeat such a merge it is acknowledged only when stable (P1.17, P1.18).
#include "storage/object/store.h"
#include "common/wire/checksum.h"

namespace nacre::storage {
namespace {

/// A write up to this size is put together in one buffer if it can't be written as it came: one device write instead of two.
constexpr size_t kSmallWrite = 64 * KiB;
/// Attempts at what another txg may allow: blocks that are being freed, or a new range of write sequences.
constexpr int kTxgTries = 4;

/// Consecutive blocks of the object that go to consecutive blocks of the device.
struct Piece {
  uint64_t block = 0, length = 0, at = 0;
};
}  // namespace

struct WriteOp {
  Store& store;
  WriteArgs args;
  EntryPtr entry{};
  uint64_t first = 0, last = 0;          ///< blocks touched
  uint64_t first_chunk = 0;
  std::vector<SlotPtr> slots{};          ///< of the chunks touched, at most 2
  std::vector<uint32_t> sums{};          ///< of the blocks as they will be stored
  std::vector<bool> skip{};              ///< resends: blocks that hold this or newer data; empty = none
  Buffer body{}, tail{};                 ///< blocks [first, …) and, if it isn't in the body, the last one
  std::vector<Piece> pieces{};           ///< what is written, in order of blocks
  std::vector<Extent> fresh{};           ///< blocks taken for it
  bool merged = false;
  Epoch birth{};

  uint64_t end() const { return args.offset + args.data.size(); }
  size_t blocks() const { return last - first + 1; }
  bool skipped(uint64_t block) const { return !skip.empty() && skip[block - first]; }
  const ChunkSlot& slot_of(uint64_t block) const { return *slots[block / kBlocksPerChunk - first_chunk]; }

  Result<void> check();
  Result<void> admit();
  Task<Result<void>> compose();
  Task<Result<void>> compose_edge(uint64_t block, std::byte* into);
  Task<Result<void>> place();
  void plan(const std::vector<Extent>& extents);
  Task<Result<void>> transfer();
  Result<JournalNo> commit(WriteResult& result);
  Buffer bytes_of(const Piece& piece) const;
};

/// What can be said without looking at the object.
Result<void> WriteOp::check() {
  const size_t size = args.data.size();
  if (size == 0 || size > kMaxIo) return Err(Errc::kInval, fmt::format("a write of {} bytes; 1 to {} are possible", size, kMaxIo));
  if (args.offset > kMaxFileSize - size) return Err(Errc::kFBig, fmt::format("object {}: a write ends beyond {} bytes", args.object, kMaxFileSize));
  first = args.offset / kBlockSize;
  last = (end() - 1) / kBlockSize;
  first_chunk = first / kBlocksPerChunk;
  if (args.sums.size() != blocks())
    return Err(Errc::kInval, fmt::format("object {}: {} checksums came with a write to {} blocks", args.object, args.sums.size(), blocks()));
  const std::byte* data = args.data.data();
  uint64_t offset = args.offset;
  for (size_t i = 0; i < blocks(); ++i) {
    const uint64_t to = std::min(end(), (first + i + 1) * kBlockSize);
    if (wire::block_sum(args.object, first + i, {data, to - offset}) != args.sums[i]) {
      store.checksum_errors_.fetch_add(1, std::memory_order_relaxed);
      return std::unexpected(store.about(args.object, offset, Error(Errc::kChecksum, "the bytes that arrived don't match the sender's checksum; nothing was written")));
    }
    data += to - offset;
    offset = to;
  }
  return {};
}

/// Whether the object takes this write now. The entry's range lock is held.
Result<void> WriteOp::admit() {
  std::lock_guard lock(entry->mutex);
  if (entry->stale) return Err(Errc::kStaleGeneration, fmt::format("object {} was destroyed or replaced", args.object));
  if (store.sealed(args.object)) {
    if (!args.wseq) return Err(Errc::kStaleGeneration, fmt::format("object {} takes no writes: its file is being moved", args.object));
    store.break_seal(args.object);  // this was acknowledged before a restart: whoever sealed has not seen it
  }
  NACRE_CHECK_OK(store.check_sound(*entry));
  birth = store.epoch(args.fileset);
  if (args.epoch < birth) return Err(Errc::kStaleEpoch, fmt::format("fileset {} is at epoch {}, the write at {}", args.fileset, birth, args.epoch));
  if (args.epoch > birth) return Err(Errc::kRetryLater, fmt::format("fileset {} is at epoch {} here, the write at {}", args.fileset, birth, args.epoch));
  if (args.wseq.v > store.txg_->newest().v) return Err(Errc::kInval, fmt::format("write sequence {} was never given out by this target", args.wseq));
  return {};
}

/// Fills `into` with the block as it will be: old bytes where the block lives, the new ones over them.
Task<Result<void>> WriteOp::compose_edge(uint64_t block, std::byte* into) {
  const uint64_t begin = block * kBlockSize;
  const uint64_t from = std::max(begin, args.offset), to = std::min(begin + kBlockSize, end());
  uint64_t at = 0, size = 0;
  uint32_t sum = 0;
  {
    std::lock_guard lock(entry->mutex);
    const Chunk& chunk = slot_of(block).chunk;
    const uint32_t in_chunk = block % kBlocksPerChunk;
    sum = chunk.sum(in_chunk);
    if (sum) at = chunk.at(in_chunk);
    size = entry->state.size;
  }
  // Beyond the object's end a block is zero, so nothing is kept if the write covers all that lives.
  const bool covers = from == begin && to >= std::min(size, begin + kBlockSize);
  if (sum == 0 || covers) {
    std::memset(into, 0, from - begin);
    std::memset(into + (to - begin), 0, begin + kBlockSize - to);
  } else {
    CO_TRY(Buffer old, co_await store.read_block(args.object, block, at, sum));
    std::memcpy(into, old.data(), kBlockSize);
    merged = true;
  }
  std::memcpy(into + (from - begin), args.data.data() + (from - args.offset), to - from);
  sums[block - first] = wire::block_sum(args.object, block, {into, kBlockSize});
  co_return Result<void>{};
}

/// Brings the bytes into whole, aligned blocks; copies only what it must.
Task<Result<void>> WriteOp::compose() {
  const bool aligned = args.offset % kBlockSize == 0 && reinterpret_cast<uintptr_t>(args.data.data()) % kBlockSize == 0;
  const bool partial_head = args.offset % kBlockSize != 0, partial_tail = end() % kBlockSize != 0;
  sums = std::move(args.sums);
  if (aligned && !partial_tail) {
    body = args.data;
    co_return Result<void>{};
  }
  if (aligned && args.data.size() > kSmallWrite) {
    body = args.data.slice(0, (blocks() - 1) * kBlockSize);
    tail = Buffer::allocate(kBlockSize);
    if (!skipped(last)) CO_CHECK_OK(co_await compose_edge(last, tail.data()));
    co_return Result<void>{};
  }
  body = Buffer::allocate(blocks() * kBlockSize);
  std::memcpy(body.data() + args.offset % kBlockSize, args.data.data(), args.data.size());
  if (partial_head && !skipped(first)) CO_CHECK_OK(co_await compose_edge(first, body.data()));
  if (partial_tail && (last != first || !partial_head) && !skipped(last))
    CO_CHECK_OK(co_await compose_edge(last, body.data() + (blocks() - 1) * kBlockSize));
  co_return Result<void>{};
}

/// Assigns device blocks: `extents` in order to all blocks but those that keep a place allocated ahead.
void WriteOp::plan(const std::vector<Extent>& extents) {
  size_t next = 0;
  uint64_t used = 0;
  for (uint64_t block = first; block <= last; ++block) {
    if (skipped(block)) continue;
    const Run* run = slot_of(block).chunk.find(block % kBlocksPerChunk);
    uint64_t at = 0;
    if (run && run->unwritten) {
      at = run->at + (block % kBlocksPerChunk - run->first);
    } else {
      at = extents[next].at + used;
      if (++used == extents[next].length) ++next, used = 0;
    }
    if (!pieces.empty() && pieces.back().block + pieces.back().length == block && pieces.back().at + pieces.back().length == at) ++pieces.back().length;
    else pieces.push_back({block, 1, at});
  }
}

/// Takes the blocks, before anything is written. Errors: kNoSpc.
Task<Result<void>> WriteOp::place() {
  uint64_t holes = 0, over = 0;
  Allocator::Hint hint{args.object, kNoGoal, false};
  {
    std::lock_guard lock(entry->mutex);
    for (uint64_t block = first; block <= last; ++block) {
      if (skipped(block)) continue;
      const Run* run = slot_of(block).chunk.find(block % kBlocksPerChunk);
      if (!run) ++holes;
      else if (!run->unwritten) ++over;
    }
    // Behind the preceding block, if that is at hand; the object grows if it ends there.
    const uint64_t before = first ? first - 1 : 0;
    auto it = first ? entry->slots.find(before / kBlocksPerChunk) : entry->slots.end();
    if (it != entry->slots.end() && it->second->loaded && it->second->chunk.find(before % kBlocksPerChunk)) {
      hint.goal = it->second->chunk.at(before % kBlocksPerChunk) + 1;
      hint.growing = args.offset + kBlockSize > entry->state.size && holes != 0;
    }
  }
  const Purpose purpose = holes ? Purpose::kNew : Purpose::kOverwrite;
  for (int tries = 0;; ++tries) {
    auto extents = store.space_->take(holes + over, purpose, hint);
    if (extents) {
      fresh = std::move(*extents);
      break;
    }
    if (tries == kTxgTries || !store.space_->any_pending())
      co_return Err(Errc::kNoSpc, fmt::format("ost{}: {}", store.options_.ost, store.space_->shortage(holes + over, purpose)));
    CO_CHECK_OK(co_await store.txg_->force());
    if (tries > 1) CO_CHECK_OK(co_await sleep_for(kMillisecond));  // reads still hold freed blocks
    store.space_->poll();
  }
  std::lock_guard lock(entry->mutex);
  plan(fresh);
  co_return Result<void>{};
}

Buffer WriteOp::bytes_of(const Piece& piece) const {
  const size_t at = (piece.block - first) * kBlockSize;
  if (at >= body.size()) return tail;
  return body.slice(at, std::min(piece.length * kBlockSize, body.size() - at));
}

static Task<Result<void>> write_extent(BlockDevice& device, uint64_t at, Buffer bytes) { co_return co_await device.write(at * kBlockSize, std::move(bytes)); }

Task<Result<void>> WriteOp::transfer() {
  // The tail is a buffer of its own, so a piece that reaches into it is two writes.
  if (!tail.empty() && !pieces.empty() && pieces.back().block + pieces.back().length - 1 == last && pieces.back().length > 1) {
    Piece& p = pieces.back();
    --p.length;
    pieces.push_back({last, 1, p.at + p.length});
  }
  if (pieces.size() == 1) {
    co_return co_await store.device_->write(pieces[0].at * kBlockSize, bytes_of(pieces[0]));
  }
  std::vector<Task<Result<void>>> writes;
  writes.reserve(pieces.size());
  for (const Piece& p : pieces) writes.push_back(write_extent(*store.device_, p.at, bytes_of(p)));
  auto done = co_await when_all(std::move(writes));
  for (auto& ok : done)
    if (!ok) co_return std::move(ok);
  co_return Result<void>{};
}

/// The batch: chunk records, their undo rows if this txg has none yet, the object record.
Result<JournalNo> WriteOp::commit(WriteResult& result) {
  std::lock_guard lock(entry->mutex);
  ObjectState next = entry->state;
  std::vector<Chunk> changed(slots.size());
  std::vector<bool> touched(slots.size(), false);
  std::vector<uint64_t> undo(slots.size(), 0);
  for (const Piece& p : pieces) touched[p.block / kBlocksPerChunk - first_chunk] = touched[(p.block + p.length - 1) / kBlocksPerChunk - first_chunk] = true;
  std::string value;

  const auto build = [&](Batch& batch) -> Result<void> {
    if (store.epoch(args.fileset) != birth) return Err(Errc::kStaleEpoch, fmt::format("fileset {} left epoch {} during the write", args.fileset, birth));
    WSeq wseq = args.wseq;
    if (!wseq) {
      NACRE_TRY(wseq, store.txg_->next_wseq());
    }
    const uint64_t txg = store.txg_->number();
    std::vector<Extent> freed;
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!touched[i]) continue;
      changed[i] = slots[i]->chunk;
      undo[i] = txg;
      if (slots[i]->undo_txg == txg) continue;
      const auto key = undo_key(txg, args.object, first_chunk + i);
      if (slots[i]->loaded_txg >= txg) {  // an evicted slot may have been touched in this txg already
        NACRE_TRY(const bool there, store.index_->get(Family::kUndo, key, value, Tier::kDisk));  // the txg is young: this is in the memtable
        if (there) continue;
      }
      slots[i]->chunk.encode_undo(value);
      batch.put(Family::kUndo, key, value);
      store.txg_->undo_row(key);
    }
    const auto put_piece = [&](uint64_t block, uint64_t length, uint64_t at) {
      Chunk& chunk = changed[block / kBlocksPerChunk - first_chunk];
      const auto in_chunk = static_cast<uint32_t>(block % kBlocksPerChunk);
      const size_t before = freed.size();
      chunk.cut(in_chunk, static_cast<uint32_t>(length), freed);
      // Blocks allocated ahead are written where they are: they aren't freed.
      std::erase_if(freed, [&, i = size_t{0}](const Extent& e) mutable { return i++ >= before && e.at >= at && e.at + e.length <= at + length; });
      Run run;
      run.first = static_cast<uint16_t>(in_chunk);
      run.length = static_cast<uint16_t>(length);
      run.birth = birth.v;
      run.at = at;
      run.wseq = wseq.v;
      chunk.insert(run, &sums[block - first]);
    };
    for (Piece p : pieces) {
      while (p.length) {  // a piece may cross from one chunk to the next
        const uint64_t n = std::min(p.length, kBlocksPerChunk - p.block % kBlocksPerChunk);
        put_piece(p.block, n, p.at);
        p = {p.block + n, p.length - n, p.at + n};
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      if (!touched[i]) continue;
      changed[i].merge(store.txg_->base());
      next.allocated = next.allocated + changed[i].blocks() * kBlockSize - slots[i]->chunk.blocks() * kBlockSize;
      changed[i].encode(value);
      batch.put(Family::kChunk, chunk_key(args.object, first_chunk + i), value);
    }
    if (!next.exists) next.fileset = args.fileset;
    next.exists = true;
    next.size = std::max(next.size, end());
    if (!args.wseq || (args.wseq > entry->state.wseq && !pieces.empty())) next.changed = std::max(store.now(), entry->state.changed + 1);
    next.wseq = std::max(next.wseq, wseq);
    next.encode(value);
    batch.put(Family::kObject, object_key(args.object), value);
    store.note_object(batch, args.object);
    store.note_freed(args.object, freed);
    store.txg_->touch();
    result = {wseq, next.size, next.allocated, next.changed, false};
    return {};
  };
  auto number = store.index_->commit(build);
  if (!number) return number;
  if (!entry->state.exists) store.objects_.fetch_add(1, std::memory_order_relaxed);
  entry->state = next;
  entry->last_change = *number;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!touched[i]) continue;
    slots[i]->chunk = std::move(changed[i]);
    slots[i]->undo_txg = undo[i];
  }
  return number;
}

/// Which blocks of a resend are still wanted; false if the whole resend comes too late.
static bool choose(WriteOp& op) {
  std::lock_guard lock(op.entry->mutex);
  if (op.args.wseq <= op.entry->state.truncate_wseq) return false;
  op.skip.assign(op.blocks(), false);
  for (uint64_t block = op.first; block <= op.last; ++block) {
    const Run* run = op.slot_of(block).chunk.find(block % kBlocksPerChunk);
    op.skip[block - op.first] = run && run->wseq >= op.args.wseq.v;
  }
  return true;
}

Task<Result<WriteResult>> Store::write(WriteArgs args) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  WriteOp op{*this, std::move(args)};
  CO_CHECK_OK(op.check());
  op.entry = table_.pin(op.args.object);
  const BlockRange range{op.first, op.last};
  CO_TRY(RangeLock lock, co_await lock_range(op.entry, range));
  CO_CHECK_OK(co_await load(op.entry));
  CO_CHECK_OK(op.admit());
  for (uint64_t c = op.first_chunk; c <= op.last / kBlocksPerChunk; ++c) {
    CO_TRY(SlotPtr slot, co_await load_slot(op.entry, c));
    op.slots.push_back(std::move(slot));
  }
  const bool resend = bool(op.args.wseq);
  WriteResult result;
  if (resend && !choose(op)) {
    resends_refused_.fetch_add(1, std::memory_order_relaxed);
    ObjectState state;
    JournalNo last_change;
    {
      std::lock_guard held(op.entry->mutex);
      state = op.entry->state;
      last_change = op.entry->last_change;
    }
    CO_CHECK_OK(co_await txg_->through(last_change));
    co_return WriteResult{op.args.wseq, state.size, state.allocated, state.changed, true};
  }
  CO_CHECK_OK(co_await op.compose());
  CO_CHECK_OK(co_await op.place());
  Result<void> moved = co_await op.transfer();
  if (!moved) {
    space_->give_back(op.fresh);
    co_return std::unexpected(about(op.args.object, op.args.offset, std::move(moved).error()));
  }
  Result<JournalNo> number = op.commit(result);
  for (int tries = 0; !number && number.error().code == Errc::kRetryLater && tries < kTxgTries; ++tries) {
    if (auto ok = co_await txg_->force(); !ok) number = std::unexpected(std::move(ok).error());
    else number = op.commit(result);
  }
  if (!number) {
    if (!failed_.load()) space_->give_back(op.fresh);
    co_return std::unexpected(about(op.args.object, op.args.offset, std::move(number).error()));
  }
  if (index_->rotation_due()) txg_->kick();
  lock.unlock();
  if (resend) resends_applied_.fetch_add(1, std::memory_order_relaxed);
  result.is_stable = resend || op.merged || op.args.sync;
  if (result.is_stable) CO_CHECK_OK(co_await txg_->through(*number));
  co_return result;
}

}  // namespace nacre::storage
