// SPDX-License-Identifier: Apache-2.0
// Repairs what the check has found. Each is one operation under the locks of what it changes: it looks again first and changes only
// what is still wrong then, so it may be called for what has been repaired or deleted meanwhile. Names are believed before counts, and
// nothing that holds data is destroyed: an inode without a name gets one in /lost+found. On a loop.
#pragma once
#include <map>

#include "metadata/background/orphans.h"
#include "metadata/background/owed.h"
#include "metadata/check/entry_check.h"
#include "metadata/leases/open_table.h"
#include "metadata/ops/driver.h"

namespace nacre::mds::check {

inline constexpr std::string_view kLostFound = "lost+found";
inline constexpr int kRepairTries = 8;                 ///< of a directory that others change while it is counted

/// What one file's record and objects said at one moment at which nobody could change them.
struct Seen {
  schema::InodeRecordT record;
  Glimpse objects;
  uint64_t cuts = 0;
};

class Repair {
 public:
  struct Parts {
    Services& services;
    Driver& driver;
    OpenTable& opens;
    Orphans& orphans;
    OwedSender& owed;
  };
  explicit Repair(Parts parts) : p_(parts) {}

  /// Names, counts, orphan record and attribute mark of an inode. homeless: it may need a name. False: others kept changing it.
  Task<Result<bool>> inode(Ino ino, bool homeless);
  /// Rows of an inode that does not exist, or an orphan record of one that has a name.
  Task<Result<bool>> rows(Ino ino);
  /// A row of family dentry.
  Task<Result<bool>> entry(std::string key);
  /// Makes size and allocated follow the objects. False: the file was changed or opened since.
  Task<Result<bool>> counters(const Seen& seen);
  /// Owes the destruction of objects of a target that belong to no file. `stray` is asked again under the inode's lock.
  Task<Result<bool>> destroy(OstId ost, ObjectId object, std::function<Result<bool>(const View&)> stray);

 private:
  using Counts = std::optional<DirCount>;
  Task<Result<Ino>> lost_found();
  Task<Result<Counts>> count(Ino dir);
  Result<bool> mend_inode(OpContext& ctx, Ino ino, Ino home, const Counts& counted);
  Result<void> mend_names(OpContext& ctx, schema::InodeRecordT& r, const Names& names, Ino home);
  Result<void> give_name(OpContext& ctx, schema::InodeRecordT& r, Ino home);
  Result<bool> leave_ring(OpContext& ctx, schema::InodeRecordT& r);
  Result<bool> mend_entry(OpContext& ctx, const std::string& key, const Counts& counted);
  Result<std::optional<schema::DentryRecordT>> settle_entry(OpContext& ctx, const DentryKey& key, const Problem& problem, const schema::DentryRecordT& entry);
  Result<bool> adopt(OpContext& ctx, const DentryKey& key, schema::InodeRecordT& child);

  Parts p_;
};

}  // namespace nacre::mds::check
