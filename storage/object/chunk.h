// SPDX-License-Identifier: Apache-2.0
// One 1 MiB chunk of an object in memory: its runs in order of blocks, and one checksum per block. Pure; no I/O, no locks.
// Invariants: runs don't overlap, lie in [0, 256), have length > 0; a written block has a sum ≠ 0, every other block 0.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/schema/codec.h"

namespace nacre::storage {

/// `length` blocks of the blocks file from block `at` on.
struct Extent {
  uint64_t at = 0;
  uint64_t length = 0;
  bool operator==(const Extent&) const = default;
};

/// As schema::Run lies on disk (little-endian).
struct Run {
  uint16_t first = 0, length = 0;  ///< blocks within the chunk
  uint32_t birth = 0;              ///< epoch
  uint64_t at = 0;
  uint64_t wseq = 0;               ///< at least that of every write which these blocks show; 0 if unwritten
  uint8_t unwritten = 0;           ///< allocated, reads as zeros
  uint8_t pad0 = 0;
  uint16_t pad1 = 0;
  uint32_t pad2 = 0;
  uint32_t end() const { return uint32_t{first} + length; }
  bool operator==(const Run&) const = default;
};
static_assert(sizeof(Run) == sizeof(schema::Run));

class Chunk {
 public:
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<uint32_t>& sums() const { return sums_; }
  bool empty() const { return runs_.empty(); }
  uint32_t blocks() const;                      ///< allocated ones
  const Run* find(uint32_t block) const;        ///< the run that holds the block, or nullptr
  uint32_t sum(uint32_t block) const { return block < sums_.size() ? sums_[block] : 0; }
  uint64_t at(uint32_t block) const;            ///< in the blocks file; the block must be allocated

  /// Takes [first, first + count) out; extents that held it are added to `freed`.
  void cut(uint32_t first, uint32_t count, std::vector<Extent>& freed);
  /// Puts `run` where nothing is, with one sum per block (none if unwritten).
  void insert(const Run& run, const uint32_t* sums);
  /// Joins runs that are neighbours here and on disk and alike. Write sequences above `base` are of this incarnation: there, the
  /// journal's prefix holds every write up to the newest, so a joined run may carry the higher one; others must be equal.
  void merge(uint64_t base);

  /// The stored value (format byte and ChunkRecord), appended to `out` after clearing it.
  void encode(std::string& out) const;
  /// Errors: kCorrupt, kVersion. `capacity`: blocks of the target; runs beyond it are damage.
  static Result<Chunk> decode(std::string_view value, uint64_t capacity);
  /// An UndoRecord's value: this chunk as it was (empty = it didn't exist).
  void encode_undo(std::string& out) const;
  static Result<Chunk> decode_undo(std::string_view value, uint64_t capacity);

  bool operator==(const Chunk&) const = default;

 private:
  std::vector<Run> runs_;
  std::vector<uint32_t> sums_;  ///< of block i at [i]; blocks beyond the end have 0
  void trim();
};

}  // namespace nacre::storage
