// SPDX-License-Identifier: Apache-2.0
// access: may the caller read, write, execute? Rules: access(2) with the effective ids of the request.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {

Result<wire::EmptyT> access(OpContext& ctx, const wire::AccessRequestT& q) {
  if (q.mask & ~7u) return Err(Errc::kInval);
  NACRE_TRY(auto r, ctx.inode(Ino(q.ino)));
  NACRE_CHECK_OK(check_access(ctx, r, q.mask));
  return wire::EmptyT{};
}

}  // namespace nacre::mds::ops
