// SPDX-License-Identifier: Apache-2.0
// Pieces that several operations (and the service's own: open, close, destroy) share. All work on an OpContext and follow its rules.
#pragma once
#include "metadata/ops/op.h"

namespace nacre::mds {

/// Further bits of InodeRecord.flags, not shown in Attr.flags.
inline constexpr uint32_t kLinkable = 1u << 16;   ///< made by O_TMPFILE without O_EXCL and never linked: Link may give it a name
inline constexpr uint32_t kHasXattrs = 1u << 17;  ///< has, or had, rows in family xattr
inline constexpr uint32_t kShownFlags = 0xffff;

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
void touch_data(const OpContext& ctx, schema::InodeRecordT& record);     ///< mtime and content_time too: of a file whose data changed
void touch_entries(const OpContext& ctx, schema::InodeRecordT& record);  ///< mtime too, and nlink: of a directory whose names changed
/// suid, and sgid where the group may execute, and security.capability: what a write, truncate or chown takes away.
Result<void> kill_privileges(OpContext& ctx, schema::InodeRecordT& record);
/// What even root's change of data takes away (capabilities(7)); set-ID bits stay for a caller with CAP_FSETID.
void drop_file_capability(OpContext& ctx, schema::InodeRecordT& record);

/// The record of a new inode in `parent`: owner, set-group-ID rule, umask or default ACL, times, fileset, birth epoch.
/// Writes its ACL rows. The caller adds name, layout, target, and puts the record.
Result<schema::InodeRecordT> new_inode(OpContext& ctx, const schema::InodeRecordT& parent, uint32_t mode, uint32_t umask);
/// Adds `name` to the directory: dentry, entries, times; the record of `parent` is put. The child's own record is the caller's.
Result<void> add_name(OpContext& ctx, schema::InodeRecordT& parent, std::string_view name, const schema::InodeRecordT& child);
/// One name of a non-directory is gone (its dentry is the caller's): nlink, link rows, orphan or destruction. Puts or deletes it.
Result<void> drop_name(OpContext& ctx, schema::InodeRecordT& record, Ino parent, std::string_view name, bool replaced);
/// The name of an empty directory is gone (its dentry is the caller's).
Result<void> drop_dir(OpContext& ctx, schema::InodeRecordT& record, bool replaced);
/// A non-directory's name (from, old_name) is now (to, new_name): in the record or in its link rows. The caller puts the record.
void move_name(OpContext& ctx, schema::InodeRecordT& record, Ino from, std::string_view old_name, Ino to, std::string_view new_name);
/// Deletes a nameless inode with all its rows, owes its objects' destruction, uncharges it. Also for the service's orphans
/// (whose OrphanRecord it deletes). The caller holds the lock.
Result<void> destroy_inode(OpContext& ctx, const schema::InodeRecordT& record);
/// Of the objects that the file gets next: above all that ever had any, also after the backup from which this was restored.
inline uint32_t next_generation(const Store& store, const schema::InodeRecordT& r) { return std::max({r.layout ? r.layout->generation : 0, r.shadow_generation, store.first_generation()}) + 1; }
/// Truncate to 0 by metadata alone: objects owed for destruction, generation + 1, components uninstantiated, size 0.
/// Allowed only if no other session has the file open. The caller puts the record and touches it.
Result<void> drop_data(OpContext& ctx, schema::InodeRecordT& record);

Result<std::optional<class Acl>> read_acl(OpContext& ctx, const schema::InodeRecordT& record, bool default_acl);
/// Stores it, or a mode that says the same, or nothing (null); sets flags and, for an access ACL, the mode's bits in `record`.
void store_acl(OpContext& ctx, schema::InodeRecordT& record, const class Acl* acl, bool default_acl);

inline constexpr uint32_t kMaxLinks = 65'000;       ///< names of one file: bounds what a purge or path query visits
inline constexpr int kMaxDirectoryDepth = 8192;     ///< of a walk up: a damaged chain of parents must end
inline constexpr uint32_t kMaxSubdirs = UINT32_MAX - 16;

}  // namespace nacre::mds
