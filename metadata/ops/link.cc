// SPDX-License-Identifier: Apache-2.0
// link: a further name for anything but a directory. Rules: link(2); an inode without names gets one only if O_TMPFILE made it.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {

Result<wire::EntryReplyT> link(OpContext& ctx, const wire::LinkRequestT& q) {
  Ino parent(q.new_parent), ino(q.ino);
  auto name = as_text(q.new_name);
  NACRE_CHECK_OK(check_name(name));
  NACRE_CHECK_OK(ctx.lock({parent, ino}));
  NACRE_TRY(auto dir, ctx.inode(parent));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_TRY(auto r, ctx.settled_inode(ino, Errc::kNoEnt));
  NACRE_CHECK_OK(check_access(ctx, dir, kMayExec));
  NACRE_TRY(auto taken, ctx.dentry(parent, name));
  if (taken) return Err(Errc::kExist);
  NACRE_CHECK_OK(check_creatable(name));
  NACRE_CHECK_OK(check_add(ctx, dir));
  if (is_dir(r)) return Err(Errc::kPerm);
  if (r.fileset != dir.fileset) return Err(Errc::kXDev, "the file lies in another fileset");
  NACRE_TRY(auto fileset, ctx.fileset(dir.fileset));
  if (r.nlink == 0 && !(r.flags & kLinkable)) return Err(Errc::kNoEnt);
  if (r.nlink >= kMaxLinks) return Err(Errc::kMLink);
  if (r.nlink == 0) {
    r.parent = parent.v;
    r.name = q.new_name;
    r.flags &= ~kLinkable;
    ctx.batch().del(Family::kOrphan, orphan_key(ino));
  } else {
    schema::LinkRecordT row;
    row.birth_epoch = fileset->epoch;
    ctx.batch().put_record(Family::kLink, link_key(ino, parent, name), row);
  }
  r.nlink += 1;
  touch(ctx, r);
  NACRE_TRY(auto attr, attr_of(ctx, r));
  NACRE_CHECK_OK(add_name(ctx, dir, name, r));
  ctx.put_inode(r);
  ctx.log(kLogLink, ino, parent, name);
  wire::EntryReplyT reply;
  reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
  return reply;
}

}  // namespace nacre::mds::ops
