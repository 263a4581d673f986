// SPDX-License-Identifier: Apache-2.0
// xattr_list: the names; trusted ones for root only. Rules: listxattr(2).
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {

Result<wire::XattrListReplyT> xattr_list(OpContext& ctx, const wire::XattrListRequestT& q) {
  NACRE_TRY(auto r, ctx.inode(Ino(q.ino)));
  wire::XattrListReplyT reply;
  if (!(r.flags & kHasXattrs)) return reply;
  auto prefix = xattr_prefix(Ino(q.ino));
  NACRE_CHECK_OK(ctx.view().scan(Family::kXattr, prefix, prefix_end(prefix), [&](std::string_view key, std::string_view) {
    auto parsed = parse_xattr_key(key);
    if (parsed && (is_root(ctx.cred()) || !parsed->name.starts_with("trusted."))) reply.names.emplace_back(parsed->name);
    return true;
  }));
  return reply;
}

}  // namespace nacre::mds::ops
