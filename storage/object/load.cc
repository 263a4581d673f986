// SPDX-License-Identifier: Apache-2.0
// Brings objects and chunks from the index into the table. What memory holds is read on the loop, the rest on a worker.
#include "storage/object/store.h"
#include "common/wire/checksum.h"

namespace nacre::storage {

Error Store::about(const ObjectId& object, uint64_t offset, Error error) const {
  error.detail = fmt::format("ost{} object {} offset {}{}{}", options_.ost, object, offset, error.detail.empty() ? "" : ": ", error.detail);
  return error;
}

Result<void> Store::load_now(Entry& entry, Tier tier) {
  std::string value;
  NACRE_TRY(const bool exists, index_->get(Family::kObject, object_key(entry.id), value, tier));
  ObjectState state;
  if (exists) {
    NACRE_TRY(state, ObjectState::decode(value));
  }
  bool stale = false;
  CmdSeq tombstone;
  Error damage(Errc::kOk);
  const auto visit = [&](std::string_view key, std::string_view record) {
    ObjectId dead;
    if (!parse_object_key(key, dead)) return true;
    if (dead == entry.id) {
      auto t = view_record<schema::TombstoneRecordT>(record);
      if (!t) {
        damage = std::move(t).error();
        return false;
      }
      tombstone = CmdSeq((*t)->command());
      stale = true;
    }
    if (dead.generation > entry.id.generation) stale = true;
    return true;
  };
  NACRE_CHECK_OK(index_->scan(Family::kTombstone, generation_key(entry.id.ino, entry.id.generation), inode_end_key(entry.id.ino), visit, tier));
  if (damage.code != Errc::kOk) return std::unexpected(std::move(damage));

  std::lock_guard lock(entry.mutex);
  if (entry.loaded) return {};  // somebody else was faster, and may have changed it since
  entry.state = state;
  entry.stale = entry.stale || stale;
  entry.tombstone = tombstone;
  entry.last_change = index_->last();
  entry.loaded = true;
  return {};
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
    NACRE_TRY(content, Chunk::decode(value, blocks_));
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

Task<Result<std::vector<Store::ChunkRow>>> Store::rows(ObjectId object, uint64_t from, uint64_t to, size_t most) {
  using Rows = std::vector<ChunkRow>;
  const auto collect = [this, object, from, to, most](Tier tier) -> Result<Rows> {
    Rows out;
    Error damage(Errc::kOk);
    const auto first = chunk_key(object, from), last = chunk_key(object, to);
    const auto visit = [&](std::string_view key, std::string_view value) {
      ObjectId id;
      uint64_t chunk = 0;
      if (!parse_chunk_key(key, id, chunk)) return true;
      auto content = Chunk::decode(value, blocks_);
      if (!content) {
        damage = about(object, chunk * kChunkSize, std::move(content).error());
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
