// SPDX-License-Identifier: Apache-2.0
// setattr: mode, owner, size, times. Rules: chmod(2), chown(2), truncate(2), utimensat(2) as Linux's notify_change applies
// them. A size below the data that exists on objects parks the operation until the service has cut them.
#include <sys/stat.h>

#include "common/base/units.h"
#include "metadata/ops/acl.h"
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {

using Request = wire::SetattrRequestT;
using Record = schema::InodeRecordT;

Result<void> set_owner(OpContext& ctx, const Request& q, Record& r) {
  if (!(q.valid & (wire::kSetUid | wire::kSetGid))) return {};
  if (q.valid & wire::kSetUid && q.uid != r.uid && !is_root(ctx.cred())) return Err(Errc::kPerm);
  NACRE_CHECK_OK(check_owner(ctx, r));
  if (q.valid & wire::kSetGid && q.gid != r.gid && !is_root(ctx.cred())) {
    NACRE_TRY(bool member, in_group(ctx.cred(), q.gid));
    if (!member) return Err(Errc::kPerm);
  }
  if (!(q.valid & wire::kSetMode)) NACRE_CHECK_OK(kill_privileges(ctx, r));
  if (q.valid & wire::kSetUid) r.uid = q.uid;
  if (q.valid & wire::kSetGid) r.gid = q.gid;
  return {};
}

Result<void> set_mode(OpContext& ctx, const Request& q, Record& r) {
  if (!(q.valid & wire::kSetMode)) return {};
  NACRE_CHECK_OK(check_owner(ctx, r));
  if (is_symlink(r)) return Err(Errc::kOpNotSupp);
  uint32_t mode = q.mode & 07777;
  if (mode & S_ISGID && !is_root(ctx.cred())) {
    NACRE_TRY(bool member, in_group(ctx.cred(), r.gid));
    if (!member) mode &= ~static_cast<uint32_t>(S_ISGID);
  }
  r.mode = (r.mode & S_IFMT) | mode;
  NACRE_TRY(auto acl, read_acl(ctx, r, false));
  if (acl) {
    acl->set_mode(mode);
    store_acl(ctx, r, &*acl, false);
  }
  return {};
}

Result<void> check_times(OpContext& ctx, const Request& q, const Record& r) {
  bool atime = q.valid & (wire::kSetAtime | wire::kSetAtimeNow), mtime = q.valid & (wire::kSetMtime | wire::kSetMtimeNow);
  if (!atime && !mtime) return {};
  if (q.valid & wire::kSetSize) return {};  // truncate's own mtime: its permission is the size's
  if (is_root(ctx.cred()) || ctx.cred().uid == r.uid) return {};
  bool given = (q.valid & wire::kSetAtime && !(q.valid & wire::kSetAtimeNow)) || (q.valid & wire::kSetMtime && !(q.valid & wire::kSetMtimeNow));
  if (given) return Err(Errc::kPerm);
  return check_access(ctx, r, kMayWrite);
}

Result<void> set_times(OpContext& ctx, const Request& q, Record& r, bool dropped) {
  if (q.valid & wire::kSetAtimeNow) r.atime = ctx.now();
  else if (q.valid & wire::kSetAtime) r.atime = q.atime;
  if (!(q.valid & (wire::kSetMtime | wire::kSetMtimeNow))) return {};
  // What the objects' clocks say up to now is superseded; a later write moves mtime again.
  if (is_file(r) && !dropped && ctx.hooks().open_for_write(Ino(r.ino))) {
    const Glimpse* g = ctx.glimpse(Ino(r.ino));
    if (!g) return ctx.park({Park::Kind::kGlimpse, {Ino(r.ino)}, 0});
    r.mtime_base = std::max(r.mtime_base, g->changed);
    r.content_time = std::max(r.content_time, g->changed);
  } else {
    r.mtime_base = std::max(r.mtime_base, r.content_time);
  }
  r.mtime = q.valid & wire::kSetMtimeNow ? ctx.now() : q.mtime;
  return {};
}

bool has_objects(const Record& r) {
  return r.layout && std::any_of(r.layout->components.begin(), r.layout->components.end(), [](const auto& c) { return c->instantiated; });
}

/// True if all objects were dropped: then a glimpse would tell of what is gone.
Result<bool> set_size(OpContext& ctx, const Request& q, Record& r) {
  Ino ino(r.ino);
  if (is_dir(r)) return Err(Errc::kIsDir);
  if (!is_file(r)) return Err(Errc::kInval);
  if (q.size > kMaxFileSize) return Err(Errc::kFBig);
  if (q.handle == 0 || !ctx.hooks().writable_handle(ctx.identity().session, ino, q.handle)) NACRE_CHECK_OK(check_access(ctx, r, kMayWrite));
  if (ctx.hooks().moving(ino)) return ctx.park({Park::Kind::kMoved, {ino}, 0});
  bool drops = q.size == 0 && !ctx.hooks().open_elsewhere(ino, ctx.identity().session);
  if (drops) {
    NACRE_CHECK_OK(drop_data(ctx, r));
  } else if (ctx.truncated(ino) != q.size) {
    uint64_t size = r.size;
    if (ctx.hooks().open_for_write(ino)) {
      const Glimpse* g = ctx.glimpse(ino);
      if (!g) return ctx.park({Park::Kind::kGlimpse, {ino}, 0});
      size = std::max(size, g->size);
    }
    if (q.size < size && has_objects(r)) return ctx.park({Park::Kind::kTruncate, {ino}, q.size});
    r.size = q.size;
  }
  if (is_root(ctx.cred())) drop_file_capability(ctx, r);
  else NACRE_CHECK_OK(kill_privileges(ctx, r));
  touch_data(ctx, r);
  return drops;
}

}  // namespace

Result<wire::SetattrReplyT> setattr(OpContext& ctx, const Request& q) {
  Ino ino(q.ino);
  NACRE_CHECK_OK(ctx.lock({ino}));
  NACRE_TRY(auto r, ctx.settled_inode(ino));
  NACRE_TRY(auto fileset, ctx.fileset(r.fileset));
  Record before = r;
  NACRE_CHECK_OK(check_times(ctx, q, r));
  NACRE_CHECK_OK(set_owner(ctx, q, r));
  if (before.uid != r.uid || before.gid != r.gid) ctx.batch().account(&before, &r);
  NACRE_CHECK_OK(set_mode(ctx, q, r));
  bool dropped = false;
  if (q.valid & wire::kSetSize) {
    NACRE_TRY(dropped, set_size(ctx, q, r));
  }
  NACRE_CHECK_OK(set_times(ctx, q, r, dropped));
  if (q.kill_priv) NACRE_CHECK_OK(kill_privileges(ctx, r));
  if (q.kill_capability) drop_file_capability(ctx, r);
  if (q.valid == 0 && r.mode == before.mode && r.flags == before.flags) {  // a write asked, and there was nothing to clear
    wire::SetattrReplyT reply;
    NACRE_TRY(auto attr, attr_of(ctx, r));
    reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
    return reply;
  }
  touch(ctx, r);
  wire::AttrT attr = plain_attr(ctx, r);
  if (!dropped) {
    NACRE_TRY(attr, attr_of(ctx, r));
  }
  ctx.put_inode(r);
  ctx.log(kLogSetattr, ino, Ino(r.parent), as_text(r.name));
  wire::SetattrReplyT reply;
  reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
  if (q.valid & wire::kSetSize && r.layout) reply.layout = std::make_unique<schema::LayoutT>(*r.layout);
  return reply;
}

}  // namespace nacre::mds::ops
