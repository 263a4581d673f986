// SPDX-License-Identifier: Apache-2.0
// Strong ids. They compare, hash and print, and don't convert into each other. `.v` is the number.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <fmt/format.h>

namespace nacre {

template <class Tag, class Rep = uint64_t>
struct Id {
  Rep v = 0;
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : v(value) {}
  constexpr auto operator<=>(const Id&) const = default;
  constexpr explicit operator bool() const { return v != 0; }
};

using Ino = Id<struct InoTag>;                     ///< 1 = root of the namespace; < 2^48, top 8 of them the metadata target; never reused
using FilesetId = Id<struct FilesetTag, uint32_t>; ///< 1 = root fileset
using Epoch = Id<struct EpochTag, uint32_t>;       ///< snapshot counter of a fileset, from 1
using OstId = Id<struct OstTag, uint32_t>;         ///< from 0 (so 0 is a valid target)
using SessionId = Id<struct SessionTag>;
using Generation = Id<struct GenerationTag, uint32_t>;  ///< of a file's layout, from 1
using WSeq = Id<struct WSeqTag>;                   ///< OST-wide write sequence, from 1; 0 = none
using CmdSeq = Id<struct CmdSeqTag>;               ///< MDS-wide sequence of commands to OSTs
using JournalNo = Id<struct JournalTag>;           ///< number of a journal batch, from 1

inline constexpr Ino kRootIno{1};
inline constexpr FilesetId kRootFileset{1};

/// Names one object on an OST: (inode, layout generation, component index, stripe index).
struct ObjectId {
  Ino ino;
  Generation generation;
  uint16_t component = 0;
  uint16_t stripe = 0;
  constexpr auto operator<=>(const ObjectId&) const = default;
};

}  // namespace nacre

template <class Tag, class Rep>
struct std::hash<nacre::Id<Tag, Rep>> {
  size_t operator()(nacre::Id<Tag, Rep> id) const noexcept { return std::hash<uint64_t>{}(static_cast<uint64_t>(id.v) * 0x9E3779B97F4A7C15ull); }
};
template <>
struct std::hash<nacre::ObjectId> {
  size_t operator()(const nacre::ObjectId& o) const noexcept {
    uint64_t h = o.ino.v * 0x9E3779B97F4A7C15ull;
    h ^= (uint64_t{o.generation.v} << 32 | uint64_t{o.component} << 16 | o.stripe) * 0xC2B2AE3D27D4EB4Full;
    return h ^ (h >> 29);
  }
};
template <class Tag, class Rep>
struct fmt::formatter<nacre::Id<Tag, Rep>> : fmt::formatter<Rep> {
  auto format(nacre::Id<Tag, Rep> id, fmt::format_context& ctx) const { return fmt::formatter<Rep>::format(id.v, ctx); }
};
template <>
struct fmt::formatter<nacre::ObjectId> {
  constexpr auto parse(fmt::format_parse_context& ctx) { return ctx.begin(); }
  auto format(const nacre::ObjectId& o, fmt::format_context& ctx) const {
    return fmt::format_to(ctx.out(), "{}.g{}.c{}.s{}", o.ino.v, o.generation.v, o.component, o.stripe);
  }
};
