// SPDX-License-Identifier: Apache-2.0
// What the metadata server asks of objects: their sizes (glimpse) and commands. Requests for one target go together, targets
// are asked in parallel. On a loop.
#pragma once
#include <vector>

#include "common/layout/layout.h"
#include "metadata/ops/hooks.h"
#include "metadata/store/store.h"
#include "metadata/targets/channels.h"

namespace nacre::mds {

inline constexpr size_t kMaxStatsPerCall = 10'000;    ///< 40 bytes each: a reply of 400 KiB
inline constexpr size_t kMaxCommandsPerCall = 1'000;
inline constexpr Nanos kDownAnswer = 250 * kMillisecond;  ///< patience with a target that counts as down already

struct TargetCommand {
  OstId ost;
  ObjectId object;
  uint8_t kind = 0;             ///< wire::kCmd…
  uint64_t offset = 0, length = 0;
  CmdSeq number;
  FilesetId fileset;
};

class Objects {
 public:
  Objects(const Store& store, OstChannels& channels, Registry& registry, Clock& clock) : store_(store), channels_(channels), registry_(registry), clock_(clock) {}

  /// Stats of all objects, in order. Objects on inactive targets count as absent. Errors: as OstChannels::call's.
  Task<Result<std::vector<wire::ObjectStat>>> stat(std::vector<layout::StripeRef> objects, Nanos deadline, CancelPtr cancel = nullptr);
  /// Reads the committed layouts and asks their objects. Inodes that are gone give an empty glimpse.
  Task<Result<std::vector<Glimpse>>> glimpse(std::vector<Ino> inos, Nanos deadline, CancelPtr cancel = nullptr);
  /// Sends them and returns the objects' stats afterwards, in order. All are applied if it returns without an error; else some
  /// may be. Errors: as OstChannels::call's; kNoSpc of an allocation.
  Task<Result<std::vector<wire::ObjectStat>>> command(std::vector<TargetCommand> commands, bool sync, Nanos deadline, CancelPtr cancel = nullptr);

 private:
  Nanos patience(OstId ost, Nanos deadline) const;
  Task<Result<std::vector<schema::InodeRecordT>>> records(std::vector<Ino> inos);
  const Store& store_;
  OstChannels& channels_;
  Registry& registry_;
  Clock& clock_;
};

/// The file as its objects tell it. objects and stats belong together, all of `record`.
Glimpse glimpse_of(const schema::InodeRecordT& record, const std::vector<layout::StripeRef>& objects, const wire::ObjectStat* stats);

}  // namespace nacre::mds
