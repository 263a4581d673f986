// SPDX-License-Identifier: Apache-2.0
// What the check (`nacre fsck`) can find, and how a finding is told. docs/operations.md explains each kind to administrators; the
// texts here go into FsckProblem.kind and stay as they are, since scripts look for them. Pure but for path_of, which reads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "metadata/ops/common.h"

namespace nacre::mds::check {

using Problem = wire::FsckProblemT;

// phase 1: inodes
inline constexpr std::string_view kInodeDamaged = "inode-damaged";         ///< the record can't be read
inline constexpr std::string_view kLayoutDamaged = "layout-damaged";
inline constexpr std::string_view kLinkCount = "link-count";               ///< expected: names that lead to it; found: nlink
inline constexpr std::string_view kNameLost = "name-lost";                 ///< the name in the record leads elsewhere, another name is right
inline constexpr std::string_view kLinkDangling = "link-dangling";         ///< a link row whose name leads elsewhere
inline constexpr std::string_view kUnreachable = "unreachable";            ///< no name leads to it
inline constexpr std::string_view kCycle = "cycle";                        ///< a directory lies inside of itself
inline constexpr std::string_view kEntries = "directory-entries";          ///< expected: counted; found: the record's
inline constexpr std::string_view kSubdirs = "directory-subdirs";          ///< expected: counted; found: the record's
inline constexpr std::string_view kOrphanUnlisted = "orphan-unlisted";     ///< no names, and nobody would destroy it
inline constexpr std::string_view kOrphanNamed = "orphan-named";           ///< has names, and is listed for destruction
inline constexpr std::string_view kXattrUnlisted = "xattr-unlisted";       ///< attributes that the record doesn't know of
inline constexpr std::string_view kRowsWithoutInode = "rows-without-inode";///< links, attributes or orphan records of no inode; found: how many
inline constexpr std::string_view kAllocated = "allocated";                ///< expected: what the objects hold; found: the record's
inline constexpr std::string_view kSize = "size";                          ///< expected: where the objects end; found: the record's
inline constexpr std::string_view kDataLost = "data-lost";                 ///< expected: bytes stored when the file was closed; found: what is there
inline constexpr std::string_view kDataUnreachable = "data-unreachable";   ///< on a target that is inactive; found: how many objects
// phase 2: names
inline constexpr std::string_view kNameDamaged = "name-damaged";
inline constexpr std::string_view kNameHash = "name-hash";                 ///< stored where nobody finds it
inline constexpr std::string_view kNameWithoutDirectory = "name-without-directory";
inline constexpr std::string_view kNameWithoutInode = "name-without-inode";
inline constexpr std::string_view kNameType = "name-type";                 ///< expected: the inode's type; found: the name's
inline constexpr std::string_view kNameUnlisted = "name-unlisted";         ///< the inode doesn't know of it
// phase 3 and 4: objects
inline constexpr std::string_view kObjectWithoutFile = "object-without-file";
inline constexpr std::string_view kObjectDamaged = "object-damaged";       ///< its record on the target can't be read
inline constexpr std::string_view kChecksum = "checksum";                  ///< stored bytes that don't match their checksum
// phase 5: counters
inline constexpr std::string_view kUsageBytes = "usage-bytes";             ///< expected: recounted; found: the counter
inline constexpr std::string_view kUsageInodes = "usage-inodes";

/// Problems of one answer: with a path each that stays below half of the largest message.
inline constexpr size_t kMaxProblems = 200;
inline constexpr size_t kMaxToldPath = 4096;       ///< bytes; of a longer one the end is told

Problem make(std::string_view kind, Ino ino, bool repairable, std::string detail);
Problem make(std::string_view kind, Ino ino, uint64_t expected, uint64_t found, std::string detail);  ///< repairable
void set_object(Problem& problem, OstId ost, const ObjectId& object);

/// One path of the inode from the root; for one that isn't reached as far up as it goes ("…/name"); empty if there is nothing to say.
/// Errors: as View's, but damage on the way only shortens it.
Result<std::string> path_of(const View& view, const schema::InodeRecordT& record);
Result<std::string> path_of(const View& view, Ino parent, std::string_view name);
/// Sets `path` of those that have none and an inode.
Result<void> add_paths(const View& view, std::vector<Problem>& problems);

/// True for an error that says that what was read is damaged, not that reading failed.
inline bool is_damage(const Error& e) { return e.code == Errc::kCorrupt || e.code == Errc::kVersion; }

/// A name as text for a sentence.
std::string quoted(std::string_view name);

}  // namespace nacre::mds::check
