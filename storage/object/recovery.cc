// SPDX-License-Identifier: Apache-2.0
#include "storage/object/recovery.h"

#include <algorithm>

#include "common/log/log.h"
#include "common/runtime/sync.h"
#include "common/wire/checksum.h"
#include "storage/object/object_table.h"

namespace nacre::storage {
namespace {
constexpr size_t kAtOnce = 16;  ///< chunks read at once: at most 16 MiB of buffers and as many records
}  // namespace

Result<std::vector<Recovery::Case>> Recovery::find(uint64_t synced) {
  std::vector<Touched> touched;
  NACRE_CHECK_OK(index_.scan(Family::kUndo, undo_prefix(synced + 1), {}, [&](std::string_view key, std::string_view) {
    Touched t;
    if (parse_undo_key(key, t.txg, t.object, t.chunk)) touched.push_back(t);
    return true;
  }));
  std::sort(touched.begin(), touched.end(), [](const Touched& a, const Touched& b) {
    return std::tie(a.object, a.chunk, b.txg) < std::tie(b.object, b.chunk, a.txg);
  });
  std::vector<Case> cases;
  for (const Touched& t : touched) {
    newest_ = std::max(newest_, t.txg);
    if (cases.empty() || cases.back().object != t.object || cases.back().chunk != t.chunk) {
      Case c;
      c.object = t.object;
      c.chunk = t.chunk;
      cases.push_back(std::move(c));
    }
    cases.back().txgs.push_back(t.txg);
  }
  return cases;
}

Result<void> Recovery::load(Case& c) {
  std::string value;
  NACRE_TRY(c.exists, index_.get(Family::kChunk, chunk_key(c.object, c.chunk), value, Tier::kDisk));
  if (!c.exists) return {};
  auto current = Chunk::decode(value, blocks_);
  if (!current) {  // that object's reads fail; it must not keep the others from being served
    log::error("ost{} object {} offset {}: the chunk's record is damaged: {}", ost_, c.object, c.chunk * kChunkSize, current.error().message());
    c.exists = false;
    return {};
  }
  c.current = std::move(*current);
  for (uint64_t txg : c.txgs) {
    NACRE_TRY(const bool there, index_.get(Family::kUndo, undo_key(txg, c.object, c.chunk), value, Tier::kDisk));
    if (!there) return Err(Errc::kCorrupt, "an undo row vanished while it was read");
    auto version = Chunk::decode_undo(value, blocks_);
    if (version) c.versions.push_back(std::move(*version));
    else log::error("ost{} object {} offset {}: an undo record is damaged: {}", ost_, c.object, c.chunk * kChunkSize, version.error().message());
  }
  if (c.versions.empty()) c.exists = false;  // nothing to fall back to; its checksums tell whether it has to
  return {};
}

/// Which of the `wanted` blocks of `chunk` read back as their checksums say. Blocks without data count as good, unreadable ones as bad.
Task<Result<std::vector<bool>>> Recovery::verify(const Case& c, const Chunk& chunk, std::vector<bool> wanted) {
  std::vector<bool> good(kBlocksPerChunk, true);
  for (const Run& run : chunk.runs()) {
    if (run.unwritten) continue;
    for (uint32_t b = run.first; b < run.end();) {
      if (!wanted[b]) {
        ++b;
        continue;
      }
      uint32_t end = b;
      while (end < run.end() && wanted[end]) ++end;
      const uint64_t at = run.at + (b - run.first);
      Buffer bytes = Buffer::allocate((end - b) * kBlockSize);
      const bool whole = (co_await device_.read(at * kBlockSize, bytes)).has_value();
      for (uint32_t i = b; i < end; ++i) {
        Buffer one = bytes.slice((i - b) * kBlockSize, kBlockSize);
        const bool read = whole || (co_await device_.read((at + (i - b)) * kBlockSize, one)).has_value();  // a bad sector costs its block only
        good[i] = read && wire::block_sum(c.object, c.chunk * kBlocksPerChunk + i, one.span()) == chunk.sum(i);
      }
      b = end;
    }
  }
  co_return good;
}

Task<Result<void>> Recovery::repair(Case* given) {
  Case& c = *given;
  if (!c.exists) co_return Result<void>{};  // removed since: nothing of it can have been lost
  const Chunk& oldest = c.versions.back();  // all its blocks were synced
  std::vector<bool> wanted(kBlocksPerChunk, false);
  for (const Run& run : c.current.runs())
    for (uint32_t b = run.first; b < run.end() && !run.unwritten; ++b) {
      const Run* before = oldest.find(b);
      wanted[b] = !(before && !before->unwritten && oldest.at(b) == c.current.at(b));
    }
  CO_TRY(const std::vector<bool> good, co_await verify(c, c.current, wanted));

  std::vector<bool> lost(kBlocksPerChunk, false);
  for (uint32_t b = 0; b < kBlocksPerChunk; ++b) lost[b] = !good[b];
  if (std::none_of(lost.begin(), lost.end(), [](bool l) { return l; })) co_return Result<void>{};
  Chunk fixed = c.current;
  std::vector<Extent> dropped;
  for (size_t v = 0; v < c.versions.size(); ++v) {
    const Chunk& version = c.versions[v];
    CO_TRY(const std::vector<bool> whole, co_await verify(c, version, lost));
    const bool last = v + 1 == c.versions.size();
    for (uint32_t b = 0; b < kBlocksPerChunk; ++b) {
      if (!lost[b] || (!whole[b] && !last)) continue;
      if (!whole[b])
        log::error("ost{} object {} offset {}: neither the last write nor the synced block before it can be read back; reads will fail with a checksum error", ost_,
                   c.object, (c.chunk * kBlocksPerChunk + b) * kBlockSize);
      fixed.cut(b, 1, dropped);
      if (const Run* run = version.find(b)) {
        Run one = *run;
        one.at = version.at(b);
        one.first = static_cast<uint16_t>(b);
        one.length = 1;
        const uint32_t sum = version.sum(b);
        fixed.insert(one, &sum);
      }
      lost[b] = false;
      ++restored_;
    }
  }
  fixed.merge(UINT64_MAX);
  co_return store(c, fixed);
}

Result<void> Recovery::store(const Case& c, const Chunk& fixed) {
  std::string value;
  NACRE_TRY(const bool exists, index_.get(Family::kObject, object_key(c.object), value, Tier::kDisk));
  auto decoded = exists ? ObjectState::decode(value) : Result<ObjectState>(Err(Errc::kCorrupt, "it has data but no record"));
  if (!decoded) {
    log::error("ost{} object {}: its record is damaged ({}), so what was lost of it isn't taken back", ost_, c.object, decoded.error().message());
    return {};
  }
  ObjectState state = *decoded;
  state.allocated = state.allocated + fixed.blocks() * kBlockSize - c.current.blocks() * kBlockSize;
  auto number = index_.commit([&](Batch& batch) -> Result<void> {
    if (fixed.empty()) {
      batch.erase(Family::kChunk, chunk_key(c.object, c.chunk));
    } else {
      fixed.encode(value);
      batch.put(Family::kChunk, chunk_key(c.object, c.chunk), value);
    }
    state.encode(value);
    batch.put(Family::kObject, object_key(c.object), value);
    return {};
  });
  if (!number) return std::unexpected(std::move(number).error());
  return {};
}

Task<Result<void>> Recovery::run(uint64_t synced) {
  auto look = [this, synced] { return find(synced); };
  CO_TRY(std::vector<Case> cases, co_await run_blocking(look));
  for (size_t from = 0; from < cases.size(); from += kAtOnce) {
    const size_t to = std::min(cases.size(), from + kAtOnce);
    auto read = [&]() -> Result<void> {
      for (size_t i = from; i < to; ++i) NACRE_CHECK_OK(load(cases[i]));
      return {};
    };
    CO_CHECK_OK(co_await run_blocking(read));
    std::vector<Task<Result<void>>> repairs;
    for (size_t i = from; i < to; ++i) repairs.push_back(repair(&cases[i]));
    auto done = co_await when_all(std::move(repairs));
    for (auto& ok : done)
      if (!ok) co_return std::move(ok);
    for (size_t i = from; i < to; ++i) cases[i] = Case{};  // the records were the large part
  }
  // After a kill the data may be in the page cache only: it was just found good there, and must stay so.
  CO_CHECK_OK(co_await device_.sync());
  auto sync = [this] { return index_.sync(); };
  CO_CHECK_OK(co_await run_blocking(sync));
  if (!cases.empty()) log::info("ost{}: {} chunks of unsynced transaction groups checked, {} blocks taken back", ost_, cases.size(), restored_);
  co_return Result<void>{};
}

}  // namespace nacre::storage
