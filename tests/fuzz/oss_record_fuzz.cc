// SPDX-License-Identifier: Apache-2.0
// What a storage target reads from its index: superblock, chunks, undo records, objects and keys. Any bytes give a value inside its
// limits or an error that says why; what decodes encodes to bytes that decode to the same, and can be worked on.
#include <cstdlib>

#include <fuzzer/FuzzedDataProvider.h>

#include "common/base/units.h"
#include "storage/object/chunk.h"
#include "storage/object/keys.h"
#include "storage/object/object_table.h"
#include "storage/object/superblock.h"

using namespace nacre;
using namespace nacre::storage;

namespace {
constexpr uint64_t kBlocks = uint64_t{1} << 20;

void require(bool good) {
  if (!good) std::abort();
}
void check_refusal(const Error& e) { require((e.code == Errc::kCorrupt || e.code == Errc::kVersion) && !e.detail.empty()); }

/// The invariants of a chunk, however it came about.
void check_chunk(const Chunk& c) {
  uint32_t end = 0;
  for (const storage::Run& r : c.runs()) {
    require(r.length > 0 && r.first >= end && r.end() <= kBlocksPerChunk && r.at < kBlocks && r.length <= kBlocks - r.at);
    end = r.end();
  }
  for (uint32_t b = 0; b < kBlocksPerChunk; ++b) {
    const storage::Run* r = c.find(b);
    require((r != nullptr && !r->unwritten) == (c.sum(b) != 0));
  }
}

void work_on(Chunk c, FuzzedDataProvider& in) {
  check_chunk(c);
  for (int i = 0; i < 8 && in.remaining_bytes() > 0; ++i) {
    const auto first = in.ConsumeIntegralInRange<uint32_t>(0, kBlocksPerChunk - 1), length = in.ConsumeIntegralInRange<uint32_t>(1, kBlocksPerChunk - first);
    std::vector<Extent> freed;
    c.cut(first, length, freed);
    for (const Extent& e : freed) require(e.length > 0 && e.at < kBlocks && e.length <= kBlocks - e.at);
    if (in.ConsumeBool()) {
      storage::Run r;
      r.first = static_cast<uint16_t>(first), r.length = static_cast<uint16_t>(length);
      r.birth = in.ConsumeIntegralInRange<uint32_t>(1, 3);
      r.at = in.ConsumeIntegralInRange<uint64_t>(0, kBlocks - length);
      r.wseq = in.ConsumeIntegralInRange<uint64_t>(1, 3);
      r.unwritten = in.ConsumeBool();
      const std::vector<uint32_t> sums(length, 7);
      c.insert(r, r.unwritten ? nullptr : sums.data());
    }
    check_chunk(c);
  }
  std::string value;
  c.encode(value);
  auto again = Chunk::decode(value, kBlocks);
  require(again && *again == c);
}

void chunk(std::string_view value, FuzzedDataProvider& in) {
  auto c = Chunk::decode(value, kBlocks);
  if (c) work_on(std::move(*c), in);
  else check_refusal(c.error());
}
void undo(std::string_view value) {
  auto c = Chunk::decode_undo(value, kBlocks);
  if (!c) return check_refusal(c.error());
  check_chunk(*c);
  std::string bytes;
  c->encode_undo(bytes);
  auto again = Chunk::decode_undo(bytes, kBlocks);
  require(again && *again == *c);
}
void object(std::string_view value) {
  auto s = ObjectState::decode(value);
  if (!s) return check_refusal(s.error());
  std::string bytes;
  s->encode(bytes);
  require(ObjectState::decode(bytes).has_value());
}
void super(std::string_view value) {
  auto s = decode_super(value, "DIR");
  if (!s) return check_refusal(s.error());
  require(s->capacity >= kMinCapacity && decode_super(encode_super(*s), "DIR").has_value());
  if (auto ours = check_super(*s, "DIR", Uuid{}, OstId(3)); !ours) require(ours.error().code == Errc::kNotOurs && !ours.error().detail.empty());
}
void keys(std::string_view key) {
  ObjectId id;
  uint64_t number = 0, txg = 0;
  if (parse_chunk_key(key, id, number)) require(chunk_key(id, number).view() == key);
  if (parse_undo_key(key, txg, id, number)) require(undo_key(txg, id, number).view() == key);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  const int kind = in.ConsumeIntegralInRange(0, 4);
  const std::string value = in.ConsumeRandomLengthString(64 * 1024);
  switch (kind) {
    case 0: chunk(value, in); break;
    case 1: undo(value); break;
    case 2: object(value); break;
    case 3: super(value); break;
    default: keys(value); break;
  }
  return 0;
}
