// SPDX-License-Identifier: Apache-2.0
// `nacre fsck`, page by page: what one Fsck request is answered. All state between pages is the cursor, but for the recount of usage
// (recount.h), so a client that goes away leaves nothing and one that repeats a page does no harm. On a loop; scans run on workers.
#pragma once
#include "metadata/check/object_check.h"
#include "metadata/check/recount.h"

namespace nacre::mds::check {

inline constexpr uint64_t kMaxRows = 10'000;           ///< of a page: some 100 ms of a worker, and stats of as many files
inline constexpr uint64_t kMaxPageBytes = 64ull << 20; ///< of a page of checksums

inline constexpr size_t kFilesAtOnce = 64;             ///< whose objects are asked for together; two problems each at most

enum Phase : uint8_t { kInodes = 1, kEntryRows = 2, kStrays = 3, kChecksums = 4, kUsage = 5 };

class Checker {
 public:
  struct Parts {
    Runtime& runtime;
    Services& services;
    Driver& driver;
    OpenTable& opens;
    Registry& registry;
    OstChannels& channels;
    Objects& objects;
    Orphans& orphans;
    OwedSender& owed;
  };
  explicit Checker(Parts parts);

  /// Errors: kInval (phase, cursor), kBusy (another recount), a target's, View's.
  Task<Result<wire::FsckReplyT>> page(wire::FsckRequestT request);
  /// Lets go of a recount that nobody continues; call now and then.
  void tick() { recount_.drop_idle(); }

 private:
  struct Scan {
    std::vector<schema::InodeRecordT> files;  ///< with objects
    std::vector<Problem> problems;
    std::vector<std::string> keys;            ///< phase 2: of the problems, in order
    std::string cursor;
    uint64_t rows = 0;
    bool end = false;
  };
  Result<Scan> scan_inodes(const std::string& cursor, uint64_t budget) const;
  Result<Scan> scan_entries(const std::string& cursor, uint64_t budget) const;
  Task<Result<wire::FsckReplyT>> inodes(wire::FsckRequestT request);
  Task<Result<wire::FsckReplyT>> entries(wire::FsckRequestT request);
  Task<Result<wire::FsckReplyT>> usage(wire::FsckRequestT request);
  Task<Result<void>> sizes_of(Scan& found, bool repair, std::vector<Problem>& out);
  Task<Result<void>> mend(std::vector<Problem>& problems);
  uint64_t inode_count() const;

  Parts p_;
  Repair repair_;
  ObjectCheck objects_;
  Recount recount_;
};

}  // namespace nacre::mds::check
