// SPDX-License-Identifier: Apache-2.0
// Chunks against an array of blocks; their stored form; damaged ones.
#include <gtest/gtest.h>

#include "common/base/rng.h"
#include "storage/object/chunk.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage {
namespace {

constexpr uint64_t kCapacity = 1'000'000;

Run run(uint32_t first, uint32_t length, uint64_t at, uint64_t wseq, bool unwritten = false) {
  Run r;
  r.first = static_cast<uint16_t>(first);
  r.length = static_cast<uint16_t>(length);
  r.birth = 1;
  r.at = at;
  r.wseq = wseq;
  r.unwritten = unwritten;
  return r;
}

TEST(Chunk, RandomEditsAgainstAnArray) {
  struct Block { bool held = false, unwritten = false; uint64_t at = 0; uint32_t sum = 0; uint64_t least_wseq = 0; };
  for (uint64_t seed = 1; seed <= (testing::long_form() ? 200 : 4); ++seed) {
    SeededRng rng(seed);
    Chunk chunk;
    std::array<Block, kBlocksPerChunk> model{};
    uint64_t next_at = 1;
    for (int step = 0; step < 300; ++step) {
      const auto first = static_cast<uint32_t>(rng.below(kBlocksPerChunk)), length = static_cast<uint32_t>(1 + rng.below(std::min<uint64_t>(kBlocksPerChunk - first, 40)));
      std::vector<Extent> freed;
      chunk.cut(first, length, freed);
      uint64_t expected = 0, got = 0;
      for (uint32_t b = first; b < first + length; ++b) expected += model[b].held;
      for (const Extent& e : freed) got += e.length;
      ASSERT_EQ(got, expected);
      for (uint32_t b = first; b < first + length; ++b) model[b] = {};
      const bool insert = rng.below(4) != 0, unwritten = rng.below(4) == 0;
      if (insert) {
        if (rng.below(2)) next_at += 7;  // else contiguous on disk
        std::vector<uint32_t> sums;
        for (uint32_t i = 0; i < length; ++i) sums.push_back(static_cast<uint32_t>(rng.u64()) | 1);
        const uint64_t wseq = unwritten ? 0 : 1 + static_cast<uint64_t>(step);
        chunk.insert(run(first, length, next_at, wseq, unwritten), sums.data());
        for (uint32_t i = 0; i < length; ++i) model[first + i] = {true, unwritten, next_at + i, unwritten ? 0 : sums[i], wseq};
        next_at += length;
      }
      chunk.merge(100);  // sequences above 100 may be joined
      std::string value;
      chunk.encode(value);
      auto decoded = Chunk::decode(value, kCapacity);
      ASSERT_TRUE(decoded) << decoded.error().message();
      ASSERT_EQ(*decoded, chunk);
      uint32_t blocks = 0;
      for (uint32_t b = 0; b < kBlocksPerChunk; ++b) {
        const auto* r = chunk.find(b);
        ASSERT_EQ(r != nullptr, model[b].held) << b;
        ASSERT_EQ(chunk.sum(b), model[b].sum);
        if (!r) continue;
        ++blocks;
        ASSERT_EQ(chunk.at(b), model[b].at);
        ASSERT_EQ(r->unwritten != 0, model[b].unwritten);
        ASSERT_GE(r->wseq, model[b].least_wseq);
        if (model[b].least_wseq <= 100) ASSERT_EQ(r->wseq, model[b].least_wseq) << "only sequences of this incarnation may be raised";
      }
      ASSERT_EQ(chunk.blocks(), blocks);
    }
  }
}

TEST(Chunk, SequentialWritesBecomeOneRun) {
  Chunk c;
  const uint32_t sum = 7;
  for (uint32_t b = 0; b < kBlocksPerChunk; ++b) {
    c.insert(run(b, 1, 1000 + b, 500 + b), &sum);
    c.merge(499);
  }
  ASSERT_EQ(c.runs().size(), 1u);
  EXPECT_EQ(c.runs()[0].wseq, 500u + 255);
}

TEST(Chunk, DamagedRecordsAreRefused) {
  const uint32_t sums[] = {1, 2, 3, 4};
  Chunk c;
  c.insert(run(10, 4, 100, 1), sums);
  std::string good;
  c.encode(good);
  ASSERT_TRUE(Chunk::decode(good, 104));
  auto refused = [](std::string_view v, uint64_t capacity, Errc code) {
    auto r = Chunk::decode(v, capacity);
    ASSERT_FALSE(r);
    EXPECT_EQ(name_of(r.error().code), name_of(code));
  };
  refused(good, 103, Errc::kCorrupt);
  refused("", 104, Errc::kCorrupt);
  refused(good.substr(0, good.size() / 2), 104, Errc::kCorrupt);
  std::string newer = good;
  newer[0] = kRecordFormat + 1;
  refused(newer, 104, Errc::kVersion);
  Chunk no_sums;
  no_sums.insert(run(0, 2, 5, 1, true), nullptr);
  std::string value;
  no_sums.encode(value);
  // Every byte changed in turn: refused, or at least still a chunk whose invariants hold.
  for (const std::string& base : {good, value})
    for (size_t i = 0; i < base.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        std::string bad = base;
        bad[i] = static_cast<char>(bad[i] ^ 1 << bit);
        auto r = Chunk::decode(bad, 104);
        if (!r) continue;
        uint32_t end = 0;
        for (const auto& x : r->runs()) {
          ASSERT_GE(x.first, end);
          ASSERT_LE(x.end(), kBlocksPerChunk);
          ASSERT_LE(x.at + x.length, 104u);
          end = x.end();
        }
      }
}

TEST(Chunk, UndoRecords) {
  const uint32_t sums[] = {1, 2, 3, 4};
  Chunk c, empty;
  c.insert(run(10, 4, 100, 1), sums);
  std::string value;
  c.encode_undo(value);
  EXPECT_EQ(Chunk::decode_undo(value, 1000).value(), c);
  empty.encode_undo(value);
  EXPECT_EQ(Chunk::decode_undo(value, 1000).value(), empty);
}

}  // namespace
}  // namespace nacre::storage
