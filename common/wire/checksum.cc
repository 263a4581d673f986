// SPDX-License-Identifier: Apache-2.0
#include "common/wire/checksum.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "common/base/units.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nacre::wire {
namespace {
/// What identifies a block's place, hashed to the seed. The bytes are little-endian, 24 of them; the result is on disk.
uint64_t seed_of(const ObjectId& object, uint64_t block) {
  uint8_t place[24];
  std::memcpy(place, &object.ino.v, 8);
  std::memcpy(place + 8, &object.generation.v, 4);
  std::memcpy(place + 12, &object.component, 2);
  std::memcpy(place + 14, &object.stripe, 2);
  std::memcpy(place + 16, &block, 8);
  return XXH3_64bits(place, sizeof place);
}
}  // namespace

uint32_t block_sum(const ObjectId& object, uint64_t block, std::span<const std::byte> bytes) {
  assert(!bytes.empty() && bytes.size() <= kBlockSize);
  const uint64_t h = XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed_of(object, block));
  const uint32_t folded = static_cast<uint32_t>(h) ^ static_cast<uint32_t>(h >> 32);
  return folded ? folded : 1;
}

std::vector<uint32_t> range_sums(const ObjectId& object, uint64_t offset, std::span<const std::byte> data) {
  std::vector<uint32_t> sums;
  sums.reserve(data.size() / kBlockSize + 2);
  while (!data.empty()) {
    const size_t n = std::min<uint64_t>(kBlockSize - offset % kBlockSize, data.size());
    sums.push_back(block_sum(object, offset / kBlockSize, data.first(n)));
    data = data.subspan(n);
    offset += n;
  }
  return sums;
}

}  // namespace nacre::wire
