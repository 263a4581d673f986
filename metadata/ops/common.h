// SPDX-License-Identifier: Apache-2.0
// Pieces that several operations (and the service's own: open, close, destroy) share. All work on an OpContext and follow its rules.
#pragma once
#include "metadata/ops/op.h"

namespace nacre::mds {

/// Attributes as an application sees them: glimpsed sizes and times where the file is open for writing. Parks for the glimpse.
Result<wire::AttrT> attr_of(OpContext& ctx, const schema::InodeRecordT& record);
/// The plain translation of a record (what is true while nobody writes).
wire::AttrT plain_attr(OpContext& ctx, const schema::InodeRecordT& record);
/// Moves size, allocated, mtime, ctime and content_time of `record` to what the objects say. True if anything changed.
bool apply_glimpse(schema::InodeRecordT& record, const Glimpse& glimpse);

/// 1-255 bytes, no '/' or NUL, not "." or "..". Errors: kNameTooLong, kNoEnt (empty), kInval.
Result<void> check_name(std::string_view name);
/// Names nobody can make: ".snapshot", ".snapshots", ".purged". Error: kPerm.
Result<void> check_creatable(std::string_view name);

inline bool is_dir(const schema::InodeRecordT& r) { return (r.mode & 0170000) == 0040000; }
inline bool is_file(const schema::InodeRecordT& r) { return (r.mode & 0170000) == 0100000; }
inline bool is_symlink(const schema::InodeRecordT& r) { return (r.mode & 0170000) == 0120000; }
schema::FileType type_of(uint32_t mode);

/// ctime and the change counter; every change of an inode ends with one of these.
void touch(const OpContext& ctx, schema::InodeRecordT& record);
void touch_data(const OpContext& ctx, schema::InodeRecordT& record);  ///< mtime and content_time too
/// suid, and sgid where the group may execute, and security.capability: what a write, truncate or chown takes away.
Result<void> kill_privileges(OpContext& ctx, schema::InodeRecordT& record);

/// The record of a new inode in `parent`: owner, set-group-ID rule, umask or default ACL, times, fileset, birth epoch.
/// Writes its ACL rows. The caller adds name, layout, target, and puts the record.
Result<schema::InodeRecordT> new_inode(OpContext& ctx, const schema::InodeRecordT& parent, uint32_t mode, uint32_t umask);
/// Adds `name` to the directory: dentry, entries, times; the record of `parent` is put.
Result<void> add_name(OpContext& ctx, schema::InodeRecordT& parent, std::string_view name, const schema::InodeRecordT& child);
/// One name of a non-directory is gone (its dentry is the caller's): nlink, link rows, orphan or destruction. Puts or deletes it.
Result<void> drop_name(OpContext& ctx, schema::InodeRecordT& record, Ino parent, std::string_view name, bool replaced);
/// Deletes a nameless inode with all its rows, owes its objects' destruction, uncharges it. Also for the service's orphans
/// (whose OrphanRecord it deletes). The caller holds the lock.
Result<void> destroy_inode(OpContext& ctx, const schema::InodeRecordT& record);
/// Truncate to 0 by metadata alone: objects owed for destruction, generation + 1, components uninstantiated, size 0.
/// Allowed only if no other session has the file open. The caller puts the record and touches it.
Result<void> drop_data(OpContext& ctx, schema::InodeRecordT& record);

inline constexpr uint32_t kMaxLinks = 65'000;       ///< names of one file: bounds what a purge or path query visits
inline constexpr uint32_t kMaxSubdirs = UINT32_MAX - 16;

}  // namespace nacre::mds
