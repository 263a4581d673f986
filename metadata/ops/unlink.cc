// SPDX-License-Identifier: Apache-2.0
// unlink: a name of anything but a directory goes. Rules: unlink(2).
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {

Result<wire::EmptyT> unlink(OpContext& ctx, const wire::UnlinkRequestT& q) {
  Ino parent(q.parent);
  auto name = as_text(q.name);
  NACRE_CHECK_OK(check_name(name));
  NACRE_CHECK_OK(ctx.lock({parent}));
  NACRE_TRY(auto dir, ctx.inode(parent));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayExec));
  NACRE_TRY(auto entry, ctx.dentry(parent, name));
  if (!entry) return Err(Errc::kNoEnt);
  Ino ino(entry->ino);
  NACRE_CHECK_OK(ctx.lock({ino}));
  NACRE_TRY(auto r, ctx.inode(ino, Errc::kCorrupt));
  NACRE_TRY(auto fileset, ctx.fileset(dir.fileset));
  NACRE_CHECK_OK(check_remove(ctx, dir, r));
  if (is_dir(r)) return Err(Errc::kIsDir);
  ctx.del_dentry(parent, name);
  dir.entries -= 1;
  touch_entries(ctx, dir);
  ctx.put_inode(dir);
  NACRE_CHECK_OK(drop_name(ctx, r, parent, name, false));
  ctx.log(kLogUnlink, ino, parent, name);
  return wire::EmptyT{};
}

}  // namespace nacre::mds::ops
