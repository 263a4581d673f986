// SPDX-License-Identifier: Apache-2.0
// Brings objects and chunks from the index into the table. What memory holds is read on the loop, the rest on a worker.
#include "common/log/log.h"
#include "common/wire/checksum.h"
#include "storage/object/store.h"

namespace nacre::storage {

Error Store::about(const ObjectId& object, uint64_t offset, Error error) const {
  error.detail = fmt::format("ost{} object {} offset {}{}{}", options_.ost, object, offset, error.detail.empty() ? "" : ": ", error.detail);
  return error;
}

Result<void> Store::load_now(Entry& entry, Tier tier) {
  std::string value;
  NACRE_TRY(const bool exists, index_->get(Family::kObject, object_key(entry.id), value, tier));
  ObjectState state;
  bool damaged = false;
  if (exists) {
    auto decoded = ObjectState::decode(value);
    damaged = !decoded;
    if (decoded) state = *decoded;
    else state.exists = true;  // so that its destruction looks for its chunks
  }
  NACRE_TRY(const bool stale, index_->get(Family::kTombstone, object_key(entry.id), value, tier));
  CmdSeq tombstone;
  if (stale) {
    auto t = view_record<schema::TombstoneRecordT>(value);
    tombstone = CmdSeq(t ? (*t)->command() : 1);  // a damaged one still says that the object was destroyed
  }

  std::lock_guard lock(entry.mutex);
  if (entry.loaded) return {};  // somebody else was faster, and may have changed it since
  if (damaged) log::error("ost{} object {}: its record in the index is damaged; nacre fsck names the file", options_.ost, entry.id);
  entry.damaged = damaged;
  entry.state = state;
  entry.stale = entry.stale || stale;
  entry.tombstone = tombstone;
  entry.last_change = index_->last();
  entry.loaded = true;
  return {};
}

/// A target of a newer format is refused as a whole, so a record of one is damage like any other.
static Error as_damage(Error e) {
  if (e.code != Errc::kVersion) return e;
  return Error(Errc::kCorrupt, "the chunk's record has an unknown format: " + e.detail);
}

Result<void> Store::check_sound(const Entry& entry) const {
  if (!entry.damaged) return {};
  return Err(Errc::kCorrupt, fmt::format("ost{} object {}: its record in the index is damaged; nacre fsck names the file, which has to be restored from a copy", options_.ost, entry.id));
}

Task<Result<void>> Store::load(EntryPtr entry) {
  {
    std::lock_guard lock(entry->mutex);
    if (entry->loaded) co_return Result<void>{};
  }
  auto ok = load_now(*entry, Tier::kMemory);
  if (!ok && ok.error().code == Errc::kIncomplete) {
    auto job = [&] { return load_now(*entry, Tier::kDisk); };
    ok = co_await run_blocking(job);
  }
  if (!ok) co_return std::unexpected(about(entry->id, 0, std::move(ok).error()));
  co_return Result<void>{};
}

Result<void> Store::load_slot_now(Entry& entry, ChunkSlot& slot, uint64_t chunk, Tier tier) {
  std::string value;
  NACRE_TRY(const bool exists, index_->get(Family::kChunk, chunk_key(entry.id, chunk), value, tier));
  Chunk content;
  if (exists) {
    auto decoded = Chunk::decode(value, blocks_);
    if (!decoded) return Err(as_damage(std::move(decoded).error()));
    content = std::move(*decoded);
  }
  std::lock_guard lock(entry.mutex);
  if (slot.loaded) return {};
  slot.chunk = std::move(content);
  slot.loaded = true;
  return {};
}

Task<Result<SlotPtr>> Store::load_slot(EntryPtr entry, uint64_t chunk) {
  SlotPtr slot;
  {
    std::lock_guard lock(entry->mutex);
    slot = table_.slot(*entry, chunk);
    if (slot->loaded) co_return slot;
    if (!entry->state.exists) {  // then it has no chunk records
      slot->loaded = true;
      co_return slot;
    }
  }
  const uint64_t txg = txg_->filling();  // after the slot is in the table: from here on all changes go through it
  {
    std::lock_guard lock(entry->mutex);
    if (!slot->loaded) slot->loaded_txg = txg;
  }
  auto ok = load_slot_now(*entry, *slot, chunk, Tier::kMemory);
  if (!ok && ok.error().code == Errc::kIncomplete) {
    auto job = [&] { return load_slot_now(*entry, *slot, chunk, Tier::kDisk); };
    ok = co_await run_blocking(job);
  }
  if (!ok) co_return std::unexpected(about(entry->id, chunk * kChunkSize, std::move(ok).error()));
  co_return slot;
}

Task<Result<std::vector<Store::ChunkRow>>> Store::rows(ObjectId object, uint64_t from, uint64_t to, size_t most, bool with_damaged) {
  using Rows = std::vector<ChunkRow>;
  const auto collect = [this, object, from, to, most, with_damaged](Tier tier) -> Result<Rows> {
    Rows out;
    Error damage(Errc::kOk);
    const auto first = chunk_key(object, from), last = chunk_key(object, to);
    const auto visit = [&](std::string_view key, std::string_view value) {
      ObjectId id;
      uint64_t chunk = 0;
      if (!parse_chunk_key(key, id, chunk)) return true;
      auto content = Chunk::decode(value, blocks_);
      if (!content && with_damaged) {
        log::error("ost{} object {} offset {}: the chunk's record in the index is damaged: {}", options_.ost, object, chunk * kChunkSize, content.error().message());
        out.push_back({chunk, {}, true});
        return out.size() < most;
      }
      if (!content) {
        damage = about(object, chunk * kChunkSize, as_damage(std::move(content).error()));
        return false;
      }
      out.push_back({chunk, std::move(*content)});
      return out.size() < most;
    };
    NACRE_CHECK_OK(index_->scan(Family::kChunk, first, last, visit, tier));
    if (damage.code != Errc::kOk) return std::unexpected(std::move(damage));
    return out;
  };
  auto found = collect(Tier::kMemory);
  if (!found && found.error().code == Errc::kIncomplete) {
    auto job = [&] { return collect(Tier::kDisk); };
    found = co_await run_blocking(job);
  }
  co_return found;
}

Task<Result<Buffer>> Store::read_block(ObjectId object, uint64_t block, uint64_t at, uint32_t sum) {
  Buffer buffer = Buffer::allocate(kBlockSize);
  auto ok = co_await device_->read(at * kBlockSize, buffer);
  if (!ok) co_return std::unexpected(about(object, block * kBlockSize, std::move(ok).error()));
  if (wire::block_sum(object, block, buffer.span()) != sum) {
    checksum_errors_.fetch_add(1, std::memory_order_relaxed);
    co_return std::unexpected(about(object, block * kBlockSize, Error(Errc::kChecksum, "the stored block is damaged, so a part of it can't be replaced")));
  }
  co_return buffer;
}

}  // namespace nacre::storage
