// SPDX-License-Identifier: Apache-2.0
// Making an inode: owner, mode, ACLs. See common.h; rules: inode(7), acl(5).
#include <sys/stat.h>

#include "metadata/ops/acl.h"
#include "metadata/ops/common.h"
#include "metadata/ops/permission.h"

namespace nacre::mds {

Result<std::optional<Acl>> read_acl(OpContext& ctx, const schema::InodeRecordT& r, bool default_acl) {
  if (!(r.flags & (default_acl ? wire::kHasDefaultAcl : wire::kHasAcl))) return std::optional<Acl>();
  NACRE_TRY(auto row, ctx.view().xattr(Ino(r.ino), default_acl ? kDefaultAcl : kAccessAcl));
  if (!row) return std::optional<Acl>();
  return Acl::parse(row->value);
}

void store_acl(OpContext& ctx, schema::InodeRecordT& r, const Acl* acl, bool default_acl) {
  uint32_t flag = default_acl ? wire::kHasDefaultAcl : wire::kHasAcl;
  std::string key = xattr_key(Ino(r.ino), default_acl ? kDefaultAcl : kAccessAcl);
  if (acl && !default_acl) r.mode = (r.mode & ~0777u) | acl->mode();
  if (!acl || (!default_acl && acl->minimal())) {
    if (r.flags & flag) ctx.batch().del(Family::kXattr, std::move(key));
    r.flags &= ~flag;
    return;
  }
  schema::XattrRecordT row;
  row.value = acl->serialize();
  ctx.batch().put_record(Family::kXattr, std::move(key), row);
  r.flags |= flag | kHasXattrs;
}

Result<schema::InodeRecordT> new_inode(OpContext& ctx, const schema::InodeRecordT& parent, uint32_t mode, uint32_t umask) {
  schema::InodeRecordT r;
  bool dir = S_ISDIR(mode);
  NACRE_TRY(Ino ino, ctx.new_ino());
  NACRE_TRY(auto fileset, ctx.fileset(parent.fileset));
  r.ino = ino.v;
  r.uid = ctx.cred().uid;
  r.gid = ctx.cred().gid;
  if (parent.mode & S_ISGID) {
    r.gid = parent.gid;
    if (dir) {
      mode |= S_ISGID;
    } else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !is_root(ctx.cred())) {
      NACRE_TRY(bool member, in_group(ctx.cred(), r.gid));
      if (!member) mode &= ~static_cast<uint32_t>(S_ISGID);
    }
  }
  r.nlink = dir ? 2 : 1;
  r.atime = r.mtime = r.ctime = r.btime = r.content_time = r.mtime_base = ctx.now();
  r.fileset = parent.fileset;
  r.birth_epoch = fileset->epoch;
  r.change = 1;
  r.mode = mode;
  if (S_ISLNK(mode)) {
    r.mode = S_IFLNK | 0777;
    return r;
  }
  NACRE_TRY(auto inherited, read_acl(ctx, parent, true));
  if (!inherited) {
    r.mode &= ~(umask & 0777);
    return r;
  }
  if (dir) store_acl(ctx, r, &*inherited, true);
  inherited->inherit(r.mode);
  store_acl(ctx, r, &*inherited, false);
  return r;
}

}  // namespace nacre::mds
