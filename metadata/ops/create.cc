// SPDX-License-Identifier: Apache-2.0
// create: a regular file and an open of it in one batch; O_TMPFILE makes one without a name, an orphan from the start.
// Rules: open(2). The handle has the access it asked for whatever the mode says.
#include <fcntl.h>
#include <sys/stat.h>

#include "metadata/ops/common.h"
#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {

Result<schema::InodeRecordT> new_file(OpContext& ctx, const schema::InodeRecordT& dir, const wire::CreateRequestT& q) {
  NACRE_TRY(auto r, new_inode(ctx, dir, S_IFREG | (q.mode & 07777), q.umask));
  NACRE_TRY(auto layout, ctx.services().dir_layouts.find(ctx, dir));
  r.layout = std::make_unique<schema::LayoutT>(*layout.layout);
  return r;
}

wire::OpenReplyT opened(OpContext& ctx, const schema::InodeRecordT& r) {
  wire::OpenReplyT reply;
  reply.created = true;
  reply.attr = std::make_unique<wire::AttrT>(plain_attr(ctx, r));  // nothing can have been written yet
  reply.layout = std::make_unique<schema::LayoutT>(*r.layout);
  return reply;
}

Result<wire::OpenReplyT> create_nameless(OpContext& ctx, const wire::CreateRequestT& q) {
  Ino parent(q.parent);
  NACRE_CHECK_OK(ctx.lock({parent}));
  NACRE_TRY(auto dir, ctx.inode(parent));
  NACRE_CHECK_OK(check_add(ctx, dir));
  NACRE_TRY(auto r, new_file(ctx, dir, q));
  r.nlink = 0;
  if (!(q.flags & O_EXCL)) r.flags |= kLinkable;
  NACRE_CHECK_OK(ctx.hooks().created(ctx, r, q));
  ctx.put_inode(r);
  schema::OrphanRecordT orphan;
  orphan.since = ctx.now();
  ctx.batch().put_record(Family::kOrphan, orphan_key(Ino(r.ino)), orphan);
  ctx.hooks().orphaned(ctx, r);
  ctx.batch().account(nullptr, &r);
  return opened(ctx, r);
}

}  // namespace

Result<wire::OpenReplyT> create(OpContext& ctx, const wire::CreateRequestT& q) {
  if (q.name.empty()) return create_nameless(ctx, q);
  Ino parent(q.parent);
  auto name = as_text(q.name);
  NACRE_CHECK_OK(check_name(name));
  NACRE_CHECK_OK(ctx.lock({parent}));
  NACRE_TRY(auto dir, ctx.inode(parent));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayExec));
  NACRE_TRY(auto taken, ctx.dentry(parent, name));
  if (taken) {
    if (q.flags & O_EXCL) return Err(Errc::kExist);
    wire::OpenReplyT reply;
    reply.attr = std::make_unique<wire::AttrT>();
    reply.attr->ino = taken->ino;
    return reply;
  }
  NACRE_CHECK_OK(check_creatable(name));
  NACRE_CHECK_OK(check_add(ctx, dir));
  NACRE_TRY(auto r, new_file(ctx, dir, q));
  r.parent = parent.v;
  r.name = q.name;
  NACRE_CHECK_OK(ctx.hooks().created(ctx, r, q));
  NACRE_CHECK_OK(add_name(ctx, dir, name, r));
  ctx.put_inode(r);
  ctx.batch().account(nullptr, &r);
  ctx.log(kLogCreate, Ino(r.ino), parent, name);
  return opened(ctx, r);
}

}  // namespace nacre::mds::ops
