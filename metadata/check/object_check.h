// SPDX-License-Identifier: Apache-2.0
// Files against the objects on the storage targets, in both directions, and damaged blocks by the files that have them. What a
// target says and what the records say are of different moments, so whatever looks wrong is looked at again: the record must be the
// same before and after, nobody may have it open for writing, no change of its objects may be under way. On a loop.
#pragma once
#include <set>

#include "metadata/background/owed.h"
#include "metadata/check/repair.h"
#include "metadata/targets/objects.h"

namespace nacre::mds::check {

/// Between the two looks at a file.
inline constexpr Nanos kSecondLook = 1500 * kMillisecond;
inline constexpr Nanos kTargetAnswer = 60 * kSecond;       ///< of a page of a scrub: 64 MiB of a slow disk
inline constexpr size_t kMaxMissingTold = 4;               ///< missing objects that one sentence names

class ObjectCheck {
 public:
  struct Parts {
    Runtime& runtime;
    const Store& store;
    OpenTable& opens;
    Registry& registry;
    OstChannels& channels;
    Objects& objects;
    RangeAllocator& inos;
    Repair& repair;
  };
  explicit ObjectCheck(Parts parts) : p_(parts) {}

  /// Sizes and allocated bytes of files that nobody writes. Files with objects on targets that are down are left out; those with data
  /// on inactive ones are told.
  Task<Result<void>> files(std::vector<schema::InodeRecordT> records, bool repair, std::vector<Problem>& out);
  /// A page of the objects of a target. Errors: the target's (kOstDown, kOstInactive).
  Task<Result<wire::FsckReplyT>> strays(OstId ost, std::vector<uint8_t> cursor, uint64_t budget, bool repair);
  /// A page of a target's blocks against their checksums. Errors: as strays'.
  Task<Result<wire::FsckReplyT>> checksums(OstId ost, std::vector<uint8_t> cursor, uint64_t budget);

 private:
  bool reachable(const schema::InodeRecordT& record) const;
  bool may_come_back(const schema::InodeRecordT& record) const;
  void tell_unreachable(const schema::InodeRecordT& record, std::vector<Problem>& out) const;
  Task<Result<std::vector<Glimpse>>> glimpses(std::vector<schema::InodeRecordT>& records);
  Task<Result<std::optional<Seen>>> look_again(Ino ino);
  Task<Result<void>> tell(Seen seen, bool repair, std::vector<Problem>& out);
  Task<Result<Problem>> describe_loss(Seen seen);
  Task<Result<std::set<ObjectId>>> owed(OstId ost, std::set<ObjectId> of);
  Task<Result<bool>> stays(OstId ost, ObjectId object);
  Task<Result<void>> stray(OstId ost, const wire::ListedObject& listed, bool repair, std::vector<Problem>& out);
  template <rpc::Method M>
  Task<Result<typename rpc::MethodTraits<M>::Reply>> ask(OstId ost, typename rpc::MethodTraits<M>::Request request);

  Parts p_;
};

/// Why the object on that target is no part of a file; empty if it is one (or belongs to a file that is being moved).
Result<std::string> why_stray(const View& view, const ObjectId& object, OstId ost);

}  // namespace nacre::mds::check
