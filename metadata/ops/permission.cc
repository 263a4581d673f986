// SPDX-License-Identifier: Apache-2.0
// See permission.h. The order of checks is that of Linux (fs/namei.c describes it): mode bits for the owner, then the ACL if
// the group bits leave anything, then group and other.
#include "metadata/ops/permission.h"

#include <sys/stat.h>

#include "metadata/ops/acl.h"
#include "metadata/ops/common.h"

namespace nacre::mds {

Result<bool> in_group(const wire::CredT& cred, uint32_t gid) {
  if (gid == cred.gid) return true;
  if (std::find(cred.groups.begin(), cred.groups.end(), gid) != cred.groups.end()) return true;
  if (!cred.groups_known) return Err(Errc::kNeedGroups);
  return false;
}

namespace {

bool grants(uint32_t perm, uint32_t mask) { return (perm & mask) == mask; }

Result<bool> acl_allows(OpContext& ctx, const schema::InodeRecordT& r, const Acl& acl, uint32_t mask) {
  uint32_t limit = 7;
  for (const auto& e : acl.entries())
    if (e.tag == kAclMask) limit = e.perm;
  bool group_matched = false;
  for (const auto& e : acl.entries()) {
    switch (e.tag) {
      case kAclUser:
        if (e.id == ctx.cred().uid) return grants(e.perm & limit, mask);
        break;
      case kAclGroupObj:
      case kAclGroup: {
        NACRE_TRY(bool member, in_group(ctx.cred(), e.tag == kAclGroupObj ? r.gid : e.id));
        if (!member) break;
        group_matched = true;
        if (grants(e.perm, mask)) return grants(e.perm & limit, mask);
        break;
      }
      case kAclOther: return !group_matched && grants(e.perm, mask);
      default: break;
    }
  }
  return false;
}

Result<bool> allows(OpContext& ctx, const schema::InodeRecordT& r, uint32_t mask) {
  uint32_t owner = r.mode >> 6 & 7, group = r.mode >> 3 & 7, other = r.mode & 7;
  if (ctx.cred().uid == r.uid) return grants(owner, mask);
  if (r.flags & wire::kHasAcl && group != 0) {
    NACRE_TRY(auto row, ctx.view().xattr(Ino(r.ino), kAccessAcl));
    if (row) {
      NACRE_TRY(auto acl, Acl::parse(row->value));
      if (acl) return acl_allows(ctx, r, *acl, mask);
    }
  }
  if (grants(group, mask) == grants(other, mask)) return grants(other, mask);
  NACRE_TRY(bool member, in_group(ctx.cred(), r.gid));
  return grants(member ? group : other, mask);
}

}  // namespace

Result<void> check_access(OpContext& ctx, const schema::InodeRecordT& r, uint32_t mask) {
  mask &= 7;
  if (is_root(ctx.cred())) {
    if (!(mask & kMayExec) || is_dir(r) || r.mode & 0111) return {};
    return Err(Errc::kAccess);
  }
  NACRE_TRY(bool ok, allows(ctx, r, mask));
  if (!ok) return Err(Errc::kAccess);
  return {};
}

Result<void> check_owner(OpContext& ctx, const schema::InodeRecordT& r) {
  if (is_root(ctx.cred()) || ctx.cred().uid == r.uid) return {};
  return Err(Errc::kPerm);
}

Result<void> check_add(OpContext& ctx, const schema::InodeRecordT& dir) {
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  if (dir.nlink == 0) return Err(Errc::kNoEnt);
  return check_access(ctx, dir, kMayWrite | kMayExec);
}

Result<void> check_remove(OpContext& ctx, const schema::InodeRecordT& dir, const schema::InodeRecordT& child) {
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayWrite | kMayExec));
  uint32_t uid = ctx.cred().uid;
  if (dir.mode & S_ISVTX && uid != 0 && uid != child.uid && uid != dir.uid) return Err(Errc::kPerm);
  return {};
}

}  // namespace nacre::mds
