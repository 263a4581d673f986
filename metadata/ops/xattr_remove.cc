// SPDX-License-Identifier: Apache-2.0
// xattr_remove. Rules: removexattr(2). Without its access ACL a file keeps the mode that the ACL showed.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/xattr_name.h"

namespace nacre::mds::ops {

Result<wire::EmptyT> xattr_remove(OpContext& ctx, const wire::XattrRemoveRequestT& q) {
  Ino ino(q.ino);
  NACRE_TRY(auto kind, xattr_kind(q.name));
  NACRE_CHECK_OK(ctx.lock({ino}));
  NACRE_TRY(auto r, ctx.inode(ino));
  NACRE_TRY(auto fileset, ctx.fileset(r.fileset));
  NACRE_CHECK_OK(check_xattr_write(ctx, r, kind, q.name));
  bool acl = kind == XattrKind::kAccessAcl || kind == XattrKind::kDefaultAcl;
  if (acl) {
    uint32_t flag = kind == XattrKind::kDefaultAcl ? wire::kHasDefaultAcl : wire::kHasAcl;
    if (!(r.flags & flag)) return wire::EmptyT{};  // removing the ACL that a mode is removes nothing: Linux says success
    store_acl(ctx, r, nullptr, kind == XattrKind::kDefaultAcl);
  } else {
    NACRE_TRY(auto row, ctx.view().xattr(ino, q.name));
    if (!row) return Err(Errc::kNoData);
    ctx.batch().del(Family::kXattr, xattr_key(ino, q.name));
    if (q.name == kCapabilityXattr) r.flags &= ~wire::kHasCapability;
  }
  touch(ctx, r);
  ctx.put_inode(r);
  ctx.log(kLogXattr, ino, Ino(r.parent), as_text(r.name));
  return wire::EmptyT{};
}

}  // namespace nacre::mds::ops
