// SPDX-License-Identifier: Apache-2.0
// Usage in memory: one cell per (fileset, uid, gid), as stored, and the sums over them that limits speak of. Only the cells are
// stored: one row per create instead of four, and no two rows that could disagree. The journal's mutex guards writing; sums
// have their own, so that a reader never waits for a commit.
#pragma once
#include <compare>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>

#include "metadata/store/batch.h"

namespace nacre::mds {

class Usage {
 public:
  struct Amount { int64_t bytes = 0, inodes = 0; };
  struct Cell {
    FilesetId fileset;
    uint32_t uid = 0, gid = 0;
    bool operator==(const Cell&) const = default;
  };
  struct Change { Cell cell; Amount delta, absolute; };

  /// tier_of: the tier's name of a fileset; a fileset never changes it.
  using TierOf = std::function<std::string(FilesetId)>;
  explicit Usage(TierOf tier_of) : tier_of_(std::move(tier_of)) {}
  void load(const Cell& cell, const Amount& amount);
  /// What the charges make of the stored cells. Nothing is changed yet.
  std::vector<Change> plan(std::span<const Charge> charges) const;
  void apply(std::span<const Change> changes);
  Amount of(const Subject& subject) const;
  Amount total() const;

 private:
  void add_sums(const Cell& cell, const Amount& delta);
  struct Hash {
    size_t operator()(const Cell& c) const { return ((uint64_t{c.uid} << 32 | c.gid) * 0x9E3779B97F4A7C15ull) ^ c.fileset.v * 0xC2B2AE3D27D4EB4Full; }
  };
  TierOf tier_of_;
  std::unordered_map<Cell, Amount, Hash> cells_;
  mutable std::mutex sums_mutex_;
  std::map<Subject, Amount> sums_;
  Amount total_;
};

}  // namespace nacre::mds
