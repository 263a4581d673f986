// SPDX-License-Identifier: Apache-2.0
// getattr: attributes of an inode, glimpsed while somebody writes it. No permission is needed beyond having found it.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"

namespace nacre::mds::ops {

Result<wire::AttrReplyT> getattr(OpContext& ctx, const wire::GetattrRequestT& request) {
  NACRE_TRY(auto record, ctx.settled_inode(Ino(request.ino)));
  const bool settled = request.unwritten && ctx.services().hooks.sole_quiet_writer(Ino(request.ino), ctx.identity().session);
  NACRE_TRY(auto attr, settled ? Result<wire::AttrT>(plain_attr(ctx, record)) : attr_of(ctx, record));
  wire::AttrReplyT reply;
  reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
  return reply;
}

}  // namespace nacre::mds::ops
