// SPDX-License-Identifier: Apache-2.0
// Destructions owed to the storage targets. They are rows of the batch that made the objects unreachable, leave only after that
// batch is synced (the barrier, P1.13), are repeated until the target has made them stable, and only then are deleted. What is
// owed to a target that is down stays on disk, not in memory. owe() inside operations on any thread; run() once, on one loop.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "metadata/ops/op.h"
#include "metadata/targets/objects.h"

namespace nacre::mds {

inline constexpr Nanos kOwedPoll = 100 * kMillisecond;
inline constexpr Nanos kOwedRescan = 5 * kSecond;       ///< a number taken early may be committed late, behind the cursor
inline constexpr Nanos kOwedPause = 1 * kSecond;        ///< after a target did not answer

class OwedSender {
 public:
  OwedSender(Runtime& runtime, Journal& journal, RangeAllocator& commands, Objects& objects) : runtime_(runtime), journal_(journal), commands_(commands), objects_(objects) {}

  /// Adds the rows that owe the destruction of all objects the record may have. Error: kRetryLater (no numbers at hand).
  Result<void> owe(OpContext& ctx, const schema::InodeRecordT& record);
  /// The same for one object, wherever it comes from.
  Result<void> owe_object(OpContext& ctx, OstId ost, const ObjectId& object);
  /// Counts what is on record, then sends until the runtime stops. Spawn once.
  Task<void> run();
  uint64_t count() const;
  std::map<OstId, uint64_t> counts() const;             ///< by target; none of 0

 private:
  struct Lane {
    std::string cursor;                                 ///< key from which to look for more
    Nanos next_scan = 0, not_before = 0;                ///< boot
    bool busy = false;
  };
  struct Found {
    std::vector<std::string> keys;
    std::vector<TargetCommand> commands;
  };
  Result<void> owe(OpContext& ctx, const std::vector<layout::StripeRef>& objects);
  Result<Found> look(OstId ost, std::string from) const;
  Result<std::vector<OstId>> debtors() const;
  Task<void> drain(OstId ost);
  Task<Result<bool>> send_some(OstId ost, Lane& lane);

  Runtime& runtime_;
  Journal& journal_;
  RangeAllocator& commands_;
  Objects& objects_;
  mutable std::mutex count_mutex_;
  std::map<OstId, uint64_t> counts_;
  std::atomic<bool> news_{true};
  std::map<OstId, Lane> lanes_;                         ///< the loop of run() only
};

}  // namespace nacre::mds
