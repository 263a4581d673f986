// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes, block arithmetic, and parsing and printing of sizes and durations as people write them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace nacre {

inline constexpr uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB, TiB = 1024 * GiB;
inline constexpr uint64_t kBlockSize = 4 * KiB;   ///< allocation unit and checksum granule of an OST, always
inline constexpr uint64_t kChunkSize = 1 * MiB;   ///< one index record per object and chunk
inline constexpr uint64_t kBlocksPerChunk = kChunkSize / kBlockSize;  ///< 256
inline constexpr uint64_t kMaxIo = 1 * MiB;       ///< most payload of one data request
inline constexpr uint64_t kMaxFileSize = uint64_t{1} << 60;  ///< EFBIG beyond; leaves room for sums in int64
inline constexpr uint32_t kMaxName = 255;         ///< bytes, NAME_MAX
inline constexpr uint32_t kMaxSymlink = 4095;     ///< bytes, PATH_MAX - 1
inline constexpr uint32_t kMaxXattrValue = 64 * 1024;
inline constexpr uint32_t kMinStripeSize = 64 * KiB;  ///< stripe sizes are multiples of this

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr uint64_t round_down(uint64_t n, uint64_t unit) { return n / unit * unit; }

/// "64K", "1.5 TiB", "10TB", "4096": all suffixes are binary (cli.md). Errors: kInval with what was wrong. Range 0 … 2^63-1.
Result<uint64_t> parse_size(std::string_view text);
/// "1.5 TiB", "512 B": at most one decimal, binary units.
std::string format_size(uint64_t bytes);
/// "500ms", "30s", "5m", "2h", "7d", "2w": milliseconds. A bare number is seconds. Errors: kInval.
Result<uint64_t> parse_duration_ms(std::string_view text);

}  // namespace nacre
