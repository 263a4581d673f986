// SPDX-License-Identifier: Apache-2.0
// lookup: a name in a directory to its inode. Reads committed state without locks, so a name and its inode may be of two
// moments: if the inode is gone by then, the name is looked up again.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {
constexpr int kMaxLooks = 16;  // a name that is replaced so often within one request is being fought over
}

Result<wire::EntryReplyT> lookup(OpContext& ctx, const wire::LookupRequestT& request) {
  Ino parent(request.parent);
  auto name = as_text(request.name);
  bool up = name == "..";
  if (!up) NACRE_CHECK_OK(check_name(name));
  NACRE_TRY(auto dir, ctx.inode(parent));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayExec));
  for (int look = 0; look < kMaxLooks; ++look) {
    Ino child(dir.parent);
    if (!up) {
      NACRE_TRY(auto entry, ctx.dentry(parent, name));
      if (!entry) return Err(Errc::kNoEnt);
      child = Ino(entry->ino);
    }
    auto record = ctx.settled_inode(child, Errc::kNoEnt);
    if (!record && record.error().code == Errc::kNoEnt && !up) continue;
    if (!record) return std::unexpected(std::move(record).error());
    wire::EntryReplyT reply;
    NACRE_TRY(auto attr, attr_of(ctx, *record));
    reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
    return reply;
  }
  return Err(Errc::kRetryLater, "the name is being replaced over and over");
}

}  // namespace nacre::mds::ops
