// SPDX-License-Identifier: Apache-2.0
// After an unclean start: the journal may have lost its last second, but what clients wrote to the storage targets in it is
// there. For each object that was changed since the last entry of the changelog that survived, or a little before:
//   its file is known      → the file counts as written by a lost writer, so that its size is told and settled from the objects
//   the file is not        → its create was lost; the object goes
//   the generation is newer → a truncation was lost; the object goes, and the next truncation takes a generation above it
// Without it `stat` and `read` would tell different sizes, and the bytes of a lost truncation would come back in the next one.
// Each target is looked at once a run, when it first registers. Nothing is done if the database is a restored backup: then what
// lies there is newer than what is known, and `nacre fsck` decides. Any loop.
#pragma once
#include <mutex>
#include <set>

#include "metadata/background/owed.h"
#include "metadata/background/settle.h"
#include "metadata/leases/open_table.h"
#include "metadata/ops/driver.h"
#include "metadata/targets/channels.h"

namespace nacre::mds {

inline constexpr Nanos kAftermathMargin = 5 * kSecond;  ///< targets know the server's time less exactly than it does
inline constexpr uint32_t kAftermathPage = 1000;

class Aftermath {
 public:
  struct Parts {
    Runtime& runtime;
    Services& services;
    Driver& driver;
    OpenTable& opens;
    OstChannels& channels;
    OwedSender& owed;
    Settler& settler;
  };
  /// first: inode numbers from here on belong to this run.
  Aftermath(Parts parts, Ino first) : p_(std::move(parts)), first_(first) {}
  /// Finds out since when objects must be looked at. Blocking, before anything is served.
  Result<void> load();
  /// A target has registered.
  void target_up(OstId ost);

 private:
  Task<void> examine(OstId ost);
  Task<Result<void>> examine_page(OstId ost, const wire::ObjectListReplyT& page);
  Task<Result<bool>> judge(OstId ost, const ObjectId& object);
  Parts p_;
  const Ino first_;
  bool active_ = false;
  Nanos since_ = 0;
  std::mutex mutex_;
  std::set<OstId> seen_;
};

}  // namespace nacre::mds
