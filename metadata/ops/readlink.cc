// SPDX-License-Identifier: Apache-2.0
// readlink: the target of a symbolic link.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"

namespace nacre::mds::ops {

Result<wire::ReadlinkReplyT> readlink(OpContext& ctx, const wire::ReadlinkRequestT& q) {
  NACRE_TRY(auto r, ctx.inode(Ino(q.ino)));
  if (!is_symlink(r)) return Err(Errc::kInval);
  wire::ReadlinkReplyT reply;
  reply.target = std::move(r.symlink);
  return reply;
}

}  // namespace nacre::mds::ops
