// SPDX-License-Identifier: Apache-2.0
// What a check of the whole target asks: the list of its objects, and whether stored blocks still match their checksums. Both work
// on the index as it is, page by page, beside everything else. A scrub reads like a reader: a read epoch keeps the blocks of the
// records it looks at from being reused, so a mismatch is damage; it is told only if the object still has that block.
#include "common/log/log.h"
#include "common/wire/checksum.h"
#include "storage/object/store.h"

namespace nacre::storage {
namespace {
constexpr size_t kScrubRows = 8;        ///< chunks per look at the index: at most 8 MiB are kept from reuse meanwhile
constexpr size_t kMaxDamaged = 200;     ///< ranges of one answer
constexpr size_t kMaxScan = 100'000;    ///< rows without a chunk that can be, looked at in one go

/// Adds blocks to the last range if they follow it.
void add_damage(std::vector<DamagedRange>& all, const ObjectId& object, uint64_t offset, uint64_t length) {
  if (!all.empty() && all.back().object == object && all.back().offset + all.back().length == offset) all.back().length += length;
  else all.push_back({object, offset, length});
}
}  // namespace

Task<Result<ListResult>> Store::list(std::optional<ObjectId> after, size_t limit) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (limit == 0 || limit > kMaxListed) co_return Err(Errc::kInval, fmt::format("a list of {} objects; 1 to {} are possible", limit, kMaxListed));
  std::string from;
  if (after) {
    from = object_key(*after).view();
    from.push_back('\0');
  }
  const auto job = [&]() -> Result<ListResult> {
    ListResult out;
    out.end = true;
    out.total = objects_.load(std::memory_order_relaxed);
    NACRE_CHECK_OK(index_->scan(Family::kObject, from, {}, [&](std::string_view key, std::string_view value) {
      ObjectId object;
      if (!parse_object_key(key, object)) return true;
      if (out.objects.size() == limit) {
        out.end = false;
        return false;
      }
      auto state = ObjectState::decode(value);
      out.objects.push_back(state ? ListedObject{object, info_of(*state), state->fileset} : ListedObject{object, {}, {}});
      return true;
    }));
    return out;
  };
  co_return co_await run_blocking(job);
}

Result<std::vector<Store::ScrubRow>> Store::scrub_rows(ObjectId object, uint64_t chunk) const {
  std::vector<ScrubRow> out;
  size_t seen = 0;
  NACRE_CHECK_OK(index_->scan(Family::kChunk, chunk_key(object, chunk), {}, [&](std::string_view key, std::string_view value) {
    ScrubRow row;
    if (!parse_chunk_key(key, row.object, row.chunk) || row.chunk > kMaxFileSize / kChunkSize) return ++seen < kMaxScan;
    if (auto content = Chunk::decode(value, blocks_)) row.content = std::move(*content);
    out.push_back(std::move(row));
    return out.size() < kScrubRows;
  }));
  return out;
}

/// Blocks of the chunk that don't read back as their checksums say.
Task<std::vector<bool>> Store::bad_blocks(const ScrubRow& row, ScrubResult& out) {
  std::vector<bool> bad(kBlocksPerChunk, false);
  for (const Run& run : row.content->runs()) {
    if (run.unwritten) continue;
    Buffer bytes = Buffer::allocate(run.length * kBlockSize);
    const bool whole = (co_await device_->read(run.at * kBlockSize, bytes)).has_value();
    for (uint32_t b = run.first; b < run.end(); ++b) {
      Buffer one = bytes.slice((b - run.first) * kBlockSize, kBlockSize);
      const bool read = whole || (co_await device_->read((run.at + (b - run.first)) * kBlockSize, one)).has_value();  // a bad sector costs its block only
      bad[b] = !read || wire::block_sum(row.object, row.chunk * kBlocksPerChunk + b, one.span()) != row.content->sum(b);
    }
    out.bytes += uint64_t{run.length} * kBlockSize;
  }
  co_return bad;
}

/// Looks at one chunk; what was replaced or removed since the row was read is left out.
Task<Result<void>> Store::scrub_chunk(const ScrubRow& row, ScrubResult& out) {
  std::vector<bool> bad(kBlocksPerChunk, !row.content);
  if (row.content) bad = co_await bad_blocks(row, out);
  if (std::find(bad.begin(), bad.end(), true) == bad.end()) co_return Result<void>{};
  std::string value;
  auto job = [&] { return index_->get(Family::kChunk, chunk_key(row.object, row.chunk), value, Tier::kDisk); };
  CO_TRY(const bool there, co_await run_blocking(job));
  if (!there) co_return Result<void>{};
  auto now = Chunk::decode(value, blocks_);
  if (!row.content) {
    if (!now) add_damage(out.damaged, row.object, row.chunk * kChunkSize, kChunkSize);
    co_return Result<void>{};
  }
  for (uint32_t b = 0; now && b < kBlocksPerChunk; ++b) {
    if (!bad[b] || now->sum(b) != row.content->sum(b) || now->at(b) != row.content->at(b)) continue;
    const uint64_t offset = (row.chunk * kBlocksPerChunk + b) * kBlockSize;
    checksum_errors_.fetch_add(1, std::memory_order_relaxed);
    log::error("ost{} object {} offset {}: the stored block does not match its checksum", options_.ost, row.object, offset);
    add_damage(out.damaged, row.object, offset, kBlockSize);
  }
  co_return Result<void>{};
}

Task<Result<ScrubResult>> Store::scrub_page(ObjectId object, uint64_t chunk, uint64_t max_bytes) {
  ScrubResult out;
  out.object = object;
  out.chunk = chunk;
  while (!out.end && out.bytes < max_bytes && out.damaged.size() < kMaxDamaged) {
    ReadGuard reading(space_->reads());  // before the records are looked at
    auto job = [&] { return scrub_rows(out.object, out.chunk); };
    CO_TRY(const std::vector<ScrubRow> rows, co_await run_blocking(job));
    size_t done = 0;
    for (; done < rows.size() && out.bytes < max_bytes && out.damaged.size() < kMaxDamaged; ++done) {
      CO_CHECK_OK(co_await scrub_chunk(rows[done], out));
      out.object = rows[done].object;
      out.chunk = rows[done].chunk + 1;
    }
    out.end = done == rows.size() && rows.size() < kScrubRows;
  }
  co_return out;
}

Task<Result<ScrubResult>> Store::scrub(ObjectId object, uint64_t chunk, uint64_t max_bytes) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (max_bytes < kMinScrub || max_bytes > kMaxScrub) co_return Err(Errc::kInval, fmt::format("a scrub of {} bytes; {} to {} are possible", max_bytes, kMinScrub, kMaxScrub));
  if (scrubbing_.exchange(true)) co_return Err(Errc::kRetryLater, fmt::format("ost{}: another check of its checksums is under way", options_.ost));
  auto out = co_await scrub_page(object, chunk, max_bytes);
  scrubbing_ = false;
  co_return out;
}

}  // namespace nacre::storage
