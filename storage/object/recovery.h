// SPDX-License-Identifier: Apache-2.0
// What an unclean start does before anything is served: every chunk that an unsynced txg touched (its undo rows say which) is
// read; a block whose bytes didn't reach the disk goes back to the newest version that did, to a hole only if there was none
// (P1.10). Blocks that the last synced version had at the same place are not read again. Runs on one loop.
#pragma once
#include <vector>

#include "common/io/block_device.h"
#include "storage/object/chunk.h"
#include "storage/object/index.h"

namespace nacre::storage {

class Recovery {
 public:
  Recovery(Index& index, BlockDevice& device, uint64_t blocks, OstId ost) : index_(index), device_(device), blocks_(blocks), ost_(ost) {}

  /// `synced`: the last txg known to be stable. Everything kept is synced when this returns; the undo rows are still there.
  Task<Result<void>> run(uint64_t synced);
  uint64_t newest_txg() const { return newest_; }  ///< found in undo rows; 0 if there were none
  uint64_t restored() const { return restored_; }  ///< blocks taken back to an older version or to a hole

 private:
  struct Touched {
    ObjectId object;
    uint64_t chunk = 0;
    uint64_t txg = 0;
  };
  /// One chunk: as the index has it, and before each unsynced txg that touched it, newest first.
  struct Case {
    ObjectId object;
    uint64_t chunk = 0;
    std::vector<uint64_t> txgs;
    bool exists = false;
    Chunk current;
    std::vector<Chunk> versions;
  };
  Result<std::vector<Case>> find(uint64_t synced);
  Result<void> load(Case& c);
  Task<Result<void>> repair(Case* c);
  Task<Result<std::vector<bool>>> verify(const Case& c, const Chunk& chunk, std::vector<bool> wanted);
  Result<void> store(const Case& c, const Chunk& fixed);

  Index& index_;
  BlockDevice& device_;
  const uint64_t blocks_;
  const OstId ost_;
  uint64_t newest_ = 0, restored_ = 0;
};

}  // namespace nacre::storage
