// SPDX-License-Identifier: Apache-2.0
#include "storage/object/chunk.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace nacre::storage {

static_assert(std::endian::native == std::endian::little, "runs are copied to disk as they lie in memory");

namespace {
flatbuffers::FlatBufferBuilder& builder() {
  thread_local flatbuffers::FlatBufferBuilder b(16 * 1024);
  b.Clear();
  return b;
}

void finish(flatbuffers::FlatBufferBuilder& b, std::string& out) {
  out.clear();
  out.reserve(1 + b.GetSize());
  out.push_back(static_cast<char>(kRecordFormat));
  out.append(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}
}  // namespace

uint32_t Chunk::blocks() const {
  uint32_t n = 0;
  for (const Run& r : runs_) n += r.length;
  return n;
}

const Run* Chunk::find(uint32_t block) const {
  auto it = std::upper_bound(runs_.begin(), runs_.end(), block, [](uint32_t b, const Run& r) { return b < r.first; });
  if (it == runs_.begin()) return nullptr;
  --it;
  return block < it->end() ? &*it : nullptr;
}

uint64_t Chunk::at(uint32_t block) const {
  const Run* r = find(block);
  assert(r);
  return r->at + (block - r->first);
}

void Chunk::cut(uint32_t first, uint32_t count, std::vector<Extent>& freed) {
  const uint32_t end = first + count;
  auto it = std::partition_point(runs_.begin(), runs_.end(), [&](const Run& r) { return r.end() <= first; });
  while (it != runs_.end() && it->first < end) {
    const uint32_t from = std::max<uint32_t>(it->first, first), to = std::min(it->end(), end);
    freed.push_back({it->at + (from - it->first), to - from});
    Run tail = *it;
    if (to < it->end()) {
      tail.at += to - it->first;
      tail.length = static_cast<uint16_t>(it->end() - to);
      tail.first = static_cast<uint16_t>(to);
    } else {
      tail.length = 0;
    }
    it->length = static_cast<uint16_t>(from - it->first);
    if (it->length == 0) {
      if (tail.length) {
        *it = tail;
        ++it;
      } else {
        it = runs_.erase(it);
      }
    } else {
      ++it;
      if (tail.length) it = runs_.insert(it, tail) + 1;
    }
  }
  for (uint32_t b = first; b < end && b < sums_.size(); ++b) sums_[b] = 0;
  trim();
}

void Chunk::insert(const Run& run, const uint32_t* sums) {
  assert(run.length > 0 && run.end() <= kBlocksPerChunk);
  auto it = std::partition_point(runs_.begin(), runs_.end(), [&](const Run& r) { return r.first < run.first; });
  runs_.insert(it, run);
  if (run.unwritten) return;
  if (sums_.size() < run.end()) sums_.resize(run.end(), 0);
  std::copy_n(sums, run.length, sums_.begin() + run.first);
}

void Chunk::merge(uint64_t base) {
  size_t out = 0;
  for (size_t i = 1; i < runs_.size(); ++i) {
    Run& a = runs_[out];
    const Run& b = runs_[i];
    const bool alike = a.end() == b.first && a.at + a.length == b.at && a.birth == b.birth && a.unwritten == b.unwritten &&
                       (a.wseq == b.wseq || (a.wseq > base && b.wseq > base));
    if (alike) {
      a.length = static_cast<uint16_t>(a.length + b.length);
      a.wseq = std::max(a.wseq, b.wseq);
    } else {
      runs_[++out] = b;
    }
  }
  if (!runs_.empty()) runs_.resize(out + 1);
}

void Chunk::trim() {
  while (!sums_.empty() && sums_.back() == 0) sums_.pop_back();
}

void Chunk::encode(std::string& out) const {
  auto& b = builder();
  const auto runs = b.CreateVectorOfStructs(reinterpret_cast<const schema::Run*>(runs_.data()), runs_.size());
  const auto sums = b.CreateVector(sums_);
  b.Finish(schema::CreateChunkRecord(b, runs, sums));
  finish(b, out);
}

Result<Chunk> Chunk::decode(std::string_view value, uint64_t capacity) {
  NACRE_TRY(const auto* record, view_record<schema::ChunkRecordT>(value));
  Chunk c;
  if (record->runs()) {
    c.runs_.resize(record->runs()->size());
    if (!c.runs_.empty()) std::memcpy(c.runs_.data(), record->runs()->Data(), c.runs_.size() * sizeof(Run));
  }
  if (record->sums()) c.sums_.assign(record->sums()->begin(), record->sums()->end());
  uint32_t end = 0;
  for (const Run& r : c.runs_) {
    if (r.first < end || r.length == 0 || r.end() > kBlocksPerChunk) return Err(Errc::kCorrupt, "a chunk's runs overlap or leave the chunk");
    if (r.at >= capacity || r.length > capacity - r.at) return Err(Errc::kCorrupt, "a chunk's run lies beyond the target's capacity");
    end = r.end();
  }
  if (c.sums_.size() > kBlocksPerChunk) return Err(Errc::kCorrupt, "a chunk has more checksums than blocks");
  for (uint32_t b = 0; b < kBlocksPerChunk; ++b) {
    const Run* r = c.find(b);
    if ((r && !r->unwritten) != (c.sum(b) != 0)) return Err(Errc::kCorrupt, "a chunk's checksums don't belong to its runs");
  }
  c.trim();
  return c;
}

void Chunk::encode_undo(std::string& out) const {
  std::string value;
  if (!empty()) encode(value);
  auto& b = builder();
  const auto bytes = b.CreateVector(reinterpret_cast<const uint8_t*>(value.data()), value.size());
  b.Finish(schema::CreateUndoRecord(b, !empty(), bytes));
  finish(b, out);
}

Result<Chunk> Chunk::decode_undo(std::string_view value, uint64_t capacity) {
  NACRE_TRY(const auto* record, view_record<schema::UndoRecordT>(value));
  if (!record->existed()) return Chunk{};
  if (!record->chunk()) return Err(Errc::kCorrupt, "an undo record without its chunk");
  return decode({reinterpret_cast<const char*>(record->chunk()->data()), record->chunk()->size()}, capacity);
}

}  // namespace nacre::storage
