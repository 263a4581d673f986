// SPDX-License-Identifier: Apache-2.0
// Reads, seeks and stats. They take no range lock: they see the records as last committed, and the read epoch keeps the blocks
// of those records from being reused until the bytes are in memory (P1.9).
#include "storage/object/store.h"

namespace nacre::storage {
namespace {
/// Chunk records looked at per batch of a seek.
constexpr size_t kSeekRows = 64;
/// A reader that goes through an object in order, in pieces of at least kReadAheadFrom, has the next kReadAhead bytes fetched. With four
/// stripes that is 8 MiB of the file: the disk works while the last piece travels. Only the page cache of this server holds it, so
/// nothing can become stale.
constexpr uint64_t kReadAheadFrom = 128 * KiB, kReadAhead = 2 * MiB;
constexpr size_t kMaxFetches = 16;  ///< of a chunk; one whose blocks lie further apart than that is not worth it

/// Consecutive blocks of the answer that lie together on the device, or read as zeros.
struct ReadPiece {
  size_t first = 0, length = 0;  ///< blocks of the payload
  uint64_t at = 0;
  bool zero = false;
};

void add_piece(std::vector<ReadPiece>& pieces, const ReadPiece& p) {
  if (!pieces.empty()) {
    ReadPiece& last = pieces.back();
    if (last.zero == p.zero && (p.zero || last.at + last.length == p.at)) {
      last.length += p.length;
      return;
    }
  }
  pieces.push_back(p);
}
}  // namespace

static Task<Result<void>> read_extent(BlockDevice& device, uint64_t at, Buffer into) { co_return co_await device.read(at * kBlockSize, std::move(into)); }

Task<Result<ReadResult>> Store::read(ObjectId object, uint64_t offset, uint32_t length) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (length > kMaxIo) co_return Err(Errc::kInval, fmt::format("a read of {} bytes; at most {} are possible", length, kMaxIo));
  if (offset > kMaxFileSize) co_return Err(Errc::kInval, fmt::format("object {}: a read at {} lies beyond {} bytes", object, offset, kMaxFileSize));
  ReadGuard reading(space_->reads());  // before the records are looked at
  EntryPtr entry = table_.pin(object);
  CO_CHECK_OK(co_await load(entry));

  ReadResult result;
  uint64_t first = offset / kBlockSize, end = 0;  // blocks [first, end)
  {
    std::lock_guard lock(entry->mutex);
    if (entry->stale) co_return Err(Errc::kStaleGeneration, fmt::format("object {} was destroyed or replaced", object));
    CO_CHECK_OK(check_sound(*entry));
    result.size = entry->state.size;
    if (length == 0 || offset >= result.size) co_return result;
    end = round_up(std::min(offset + length, result.size), kBlockSize) / kBlockSize;
  }
  std::vector<SlotPtr> slots;
  for (uint64_t c = first / kBlocksPerChunk; c <= (end - 1) / kBlocksPerChunk; ++c) {
    CO_TRY(SlotPtr slot, co_await load_slot(entry, c));
    slots.push_back(std::move(slot));
  }

  std::vector<ReadPiece> pieces;
  result.sums.reserve(end - first);
  {
    std::lock_guard lock(entry->mutex);  // all records as of one moment
    if (entry->stale) co_return Err(Errc::kStaleGeneration, fmt::format("object {} was destroyed or replaced", object));
    result.size = entry->state.size;  // a cut may have come in between
    if (offset >= result.size) co_return ReadResult{{}, {}, result.size};
    end = std::min(end, round_up(result.size, kBlockSize) / kBlockSize);
    for (uint64_t block = first; block < end;) {
      const Chunk& chunk = slots[block / kBlocksPerChunk - first / kBlocksPerChunk]->chunk;
      const auto in_chunk = static_cast<uint32_t>(block % kBlocksPerChunk);
      const auto limit = static_cast<uint32_t>(std::min<uint64_t>(kBlocksPerChunk, in_chunk + (end - block)));
      const Run* run = chunk.find(in_chunk);
      uint32_t to = limit;
      if (run) {
        to = std::min(run->end(), limit);
      } else {
        auto next = std::partition_point(chunk.runs().begin(), chunk.runs().end(), [&](const Run& r) { return r.first <= in_chunk; });
        if (next != chunk.runs().end()) to = std::min<uint32_t>(next->first, limit);
      }
      const bool zero = !run || run->unwritten;
      add_piece(pieces, {block - first, to - in_chunk, zero ? 0 : run->at + (in_chunk - run->first), zero});
      for (uint32_t b = in_chunk; b < to; ++b) result.sums.push_back(chunk.sum(b));
      block += to - in_chunk;
    }
  }
  if (length >= kReadAheadFrom) read_ahead(entry, offset, offset + length);
  result.payload = Buffer::allocate((end - first) * kBlockSize);
  std::vector<Task<Result<void>>> reads;
  for (const ReadPiece& p : pieces) {
    Buffer part = result.payload.slice(p.first * kBlockSize, p.length * kBlockSize);
    if (p.zero) {
      std::memset(part.data(), 0, part.size());
    } else if (pieces.size() == 1) {
      auto ok = co_await device_->read(p.at * kBlockSize, std::move(part));
      if (!ok) co_return std::unexpected(about(object, offset, std::move(ok).error()));
    } else {
      reads.push_back(read_extent(*device_, p.at, std::move(part)));
    }
  }
  auto done = co_await when_all(std::move(reads));
  for (auto& ok : done)
    if (!ok) co_return std::unexpected(about(object, offset, std::move(ok).error()));
  co_return result;
}

/// Starts to fetch what follows [offset, end) if this read goes on where the last one ended.
void Store::read_ahead(EntryPtr entry, uint64_t offset, uint64_t end) {
  uint64_t from = 0, to = 0;
  {
    std::lock_guard lock(entry->mutex);
    const bool in_order = offset == entry->read_end;
    entry->read_end = end;
    if (!in_order) entry->ahead = end;
    from = std::max(entry->ahead, end);
    to = std::min(end + kReadAhead, entry->state.size);
    const bool worth_it = to == entry->state.size ? from < to : from + kReadAhead / 2 <= to;
    if (!in_order || !worth_it) return;
    entry->ahead = to;
  }
  Loop::current()->spawn(fetch(std::move(entry), from, to));
}

/// A hint: what is gone meanwhile, or can't be read, is the business of the read that comes.
Task<void> Store::fetch(EntryPtr entry, uint64_t from, uint64_t to) {
  GateGuard open(gate_);
  if (!open) co_return;
  for (uint64_t c = from / kChunkSize; c * kChunkSize < to; ++c) {
    auto slot = co_await load_slot(entry, c);
    if (!slot) co_return;
    std::vector<Run> runs;
    {
      std::lock_guard lock(entry->mutex);
      for (const Run& r : (*slot)->chunk.runs())
        if (!r.unwritten) runs.push_back(r);
    }
    if (runs.size() > kMaxFetches) continue;
    for (const Run& r : runs) co_await device_->prefetch(r.at * kBlockSize, uint64_t{r.length} * kBlockSize);
  }
}

/// The first block at or after `block` of `chunk` that has data (or, for `hole`, none); kBlocksPerChunk if there is none.
static uint32_t next_block(const Chunk& chunk, uint32_t block, bool hole) {
  while (block < kBlocksPerChunk && (chunk.sum(block) == 0) != hole) ++block;
  return block;
}

Task<Result<SeekResult>> Store::seek(ObjectId object, uint64_t offset, bool hole) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  EntryPtr entry = table_.pin(object);
  CO_CHECK_OK(co_await load(entry));
  SeekResult result;
  {
    std::lock_guard lock(entry->mutex);
    if (entry->stale) co_return Err(Errc::kStaleGeneration, fmt::format("object {} was destroyed or replaced", object));
    CO_CHECK_OK(check_sound(*entry));
    result.size = entry->state.size;
  }
  // Holes are whole blocks: the file may go on where the object ends, and the rest of the object's last block belongs to its data then,
  // as on ext4 and XFS. The client doesn't look beyond the end of the file.
  const uint64_t end = round_up(result.size, kBlockSize);
  if (offset >= end) co_return result;
  uint64_t block = offset / kBlockSize;
  const uint64_t end_chunk = (result.size - 1) / kChunkSize + 1;
  const auto answer = [&](uint64_t at_block) {
    result.offset = std::max(offset, at_block * kBlockSize);
    result.found = result.offset < end || hole;
    if (hole) result.offset = std::min(result.offset, end);  // the end is a hole
    return result;
  };
  for (;;) {
    CO_TRY(auto found, co_await rows(object, block / kBlocksPerChunk, end_chunk, kSeekRows));
    for (const ChunkRow& row : found) {
      if (row.chunk != block / kBlocksPerChunk) {  // no record in between: a hole
        if (hole) co_return answer(block);
        block = row.chunk * kBlocksPerChunk;
      }
      const uint32_t at = next_block(row.content, block % kBlocksPerChunk, hole);
      if (at < kBlocksPerChunk) co_return answer(row.chunk * kBlocksPerChunk + at);
      block = (row.chunk + 1) * kBlocksPerChunk;
    }
    if (found.size() < kSeekRows) break;
  }
  {
    std::lock_guard lock(entry->mutex);  // its records may have gone while they were looked through
    if (entry->stale) co_return Err(Errc::kStaleGeneration, fmt::format("object {} was destroyed or replaced", object));
  }
  if (!hole) co_return result;  // no data up to the end
  co_return answer(block);
}

ObjectInfo Store::info_of(const ObjectState& s) const { return {s.size, s.allocated, s.changed, s.wseq, s.exists}; }

Task<Result<std::vector<ObjectInfo>>> Store::stat(std::vector<ObjectId> objects) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (objects.size() > kMaxStats) co_return Err(Errc::kInval, fmt::format("a stat of {} objects; at most {} are possible", objects.size(), kMaxStats));
  std::vector<ObjectInfo> out(objects.size());
  std::vector<size_t> cold;
  const auto from_index = [&](size_t i, Tier tier) -> Result<void> {
    std::string value;
    NACRE_TRY(const bool exists, index_->get(Family::kObject, object_key(objects[i]), value, tier));
    if (!exists) return {};
    if (auto state = ObjectState::decode(value)) out[i] = info_of(*state);  // one that is damaged must not hide the others
    return {};
  };
  for (size_t i = 0; i < objects.size(); ++i) {
    if (EntryPtr entry = table_.peek(objects[i])) {
      std::lock_guard lock(entry->mutex);
      if (entry->loaded) {
        if (!entry->damaged) out[i] = info_of(entry->state);
        continue;
      }
    }
    auto ok = from_index(i, Tier::kMemory);
    if (!ok && ok.error().code == Errc::kIncomplete) cold.push_back(i);
    else if (!ok) co_return std::unexpected(std::move(ok).error());
  }
  if (!cold.empty()) {
    auto job = [&]() -> Result<void> {
      for (size_t i : cold) NACRE_CHECK_OK(from_index(i, Tier::kDisk));
      return {};
    };
    CO_CHECK_OK(co_await run_blocking(job));
  }
  co_return out;
}

}  // namespace nacre::storage
