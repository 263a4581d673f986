// SPDX-License-Identifier: Apache-2.0
// xattr_get. Rules: getxattr(2): user attributes need read permission, trusted ones are invisible to all but root.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"
#include "metadata/ops/xattr_name.h"

namespace nacre::mds::ops {

Result<wire::XattrGetReplyT> xattr_get(OpContext& ctx, const wire::XattrGetRequestT& q) {
  NACRE_TRY(auto kind, xattr_kind(q.name));
  NACRE_TRY(auto r, ctx.inode(Ino(q.ino)));
  if (kind == XattrKind::kTrusted && !is_root(ctx.cred())) return Err(Errc::kNoData);
  if (kind == XattrKind::kUser) {
    if (!is_file(r) && !is_dir(r)) return Err(Errc::kNoData);
    NACRE_CHECK_OK(check_access(ctx, r, kMayRead));
  }
  if (is_symlink(r) && (kind == XattrKind::kAccessAcl || kind == XattrKind::kDefaultAcl)) return Err(Errc::kOpNotSupp);
  if (!(r.flags & kHasXattrs)) return Err(Errc::kNoData);
  NACRE_TRY(auto row, ctx.view().xattr(Ino(q.ino), q.name));
  if (!row) return Err(Errc::kNoData);
  wire::XattrGetReplyT reply;
  reply.value = std::move(row->value);
  return reply;
}

}  // namespace nacre::mds::ops
