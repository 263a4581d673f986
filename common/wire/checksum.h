// SPDX-License-Identifier: Apache-2.0
// The data checksum: XXH3-64 seeded with (object, block), folded to 32 bits; never 0, since 0 means "no data". A block that
// lies at another object's or offset's place fails. Pure, thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"

namespace nacre::wire {

/// Sum of `bytes` (1-4,096 of them) that lie in 4 KiB block `block` (object-local offset / 4096) of `object`.
uint32_t block_sum(const ObjectId& object, uint64_t block, std::span<const std::byte> bytes);
/// One sum per block that [offset, offset + data.size()) touches, each over the bytes of that block in `data`.
std::vector<uint32_t> range_sums(const ObjectId& object, uint64_t offset, std::span<const std::byte> data);

}  // namespace nacre::wire
