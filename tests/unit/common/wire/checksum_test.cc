// SPDX-License-Identifier: Apache-2.0
#include "common/wire/checksum.h"

#include <set>

#include <gtest/gtest.h>

#include "common/base/units.h"
#include "tests/unit/common/wire/golden.h"

namespace nacre::wire {
namespace {

const ObjectId kObject{Ino(0x123456789abc), Generation(2), 1, 3};

std::vector<std::byte> pattern(size_t n) {
  std::vector<std::byte> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 31 + (i >> 8) * 7);
  return out;
}

TEST(Checksum, GoldenSums) {
  std::string got;
  auto data = pattern(kBlockSize);
  for (size_t n : {size_t{1}, size_t{16}, size_t{17}, size_t{128}, size_t{129}, size_t{240}, size_t{241}, size_t{4095}, size_t{4096}})
    got += fmt::format("{:08x}", block_sum(kObject, 5, std::span(data).first(n)));
  EXPECT_EQ(got, testing::golden("block_sums_v1.hex"));
}

TEST(Checksum, DependsOnPlace) {
  auto data = pattern(kBlockSize);
  ObjectId other_ino = kObject, other_generation = kObject, other_component = kObject, other_stripe = kObject;
  other_ino.ino.v++, other_generation.generation.v++, other_component.component++, other_stripe.stripe++;
  std::set<uint32_t> sums{block_sum(kObject, 0, data), block_sum(kObject, 1, data)};
  for (const auto& o : {other_ino, other_generation, other_component, other_stripe}) sums.insert(block_sum(o, 0, data));
  EXPECT_EQ(sums.size(), 6u);
}

TEST(Checksum, RangeSumsAreBlockSums) {
  auto data = pattern(3 * kBlockSize);
  const uint64_t offset = 7 * kBlockSize + 100;
  auto sums = range_sums(kObject, offset, data);
  ASSERT_EQ(sums.size(), 4u);
  auto all = std::span<const std::byte>(data);
  EXPECT_EQ(sums[0], block_sum(kObject, 7, all.first(kBlockSize - 100)));
  EXPECT_EQ(sums[1], block_sum(kObject, 8, all.subspan(kBlockSize - 100, kBlockSize)));
  EXPECT_EQ(sums[3], block_sum(kObject, 10, all.last(100)));
  EXPECT_TRUE(range_sums(kObject, 0, {}).empty());
}

TEST(Checksum, NeverZero) {
  std::vector<std::byte> zeros(kBlockSize);
  for (uint64_t block = 0; block < 2000; ++block) ASSERT_NE(block_sum(kObject, block, zeros), 0u);
}

}  // namespace
}  // namespace nacre::wire
