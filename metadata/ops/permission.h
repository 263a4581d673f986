// SPDX-License-Identifier: Apache-2.0
// Permission as Linux decides it: the first class that matches (owner, ACL users, groups, other) decides, root (uid 0 of a
// trusted session) passes except for executing what nobody may. If the answer depends on supplementary groups that the
// request didn't bring, the error is kNeedGroups.
#pragma once
#include "metadata/ops/op.h"

namespace nacre::mds {

inline constexpr uint32_t kMayExec = 1, kMayWrite = 2, kMayRead = 4;

/// Errors: kAccess, kNeedGroups.
Result<void> check_access(OpContext& ctx, const schema::InodeRecordT& record, uint32_t mask);
/// Owner or root. Error: kPerm.
Result<void> check_owner(OpContext& ctx, const schema::InodeRecordT& record);
/// May an entry of `dir` that names `child` be removed? Write and search on the directory, sticky bit. Errors: kAccess, kPerm, kNeedGroups.
Result<void> check_remove(OpContext& ctx, const schema::InodeRecordT& dir, const schema::InodeRecordT& child);
/// May a name be added to `dir`? Also kNoEnt for a removed directory, kNotDir.
Result<void> check_add(OpContext& ctx, const schema::InodeRecordT& dir);
/// Is `gid` the caller's group or among his supplementary ones? Error: kNeedGroups.
Result<bool> in_group(const wire::CredT& cred, uint32_t gid);
inline bool is_root(const wire::CredT& cred) { return cred.uid == 0; }

}  // namespace nacre::mds
