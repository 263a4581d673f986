// SPDX-License-Identifier: Apache-2.0
// mknod: directories, symbolic links, fifos, sockets, devices, and plain files without an open. Rules: mknod(2), mkdir(2), symlink(2).
#include <sys/stat.h>

#include "common/base/units.h"
#include "metadata/ops/common.h"
#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {

Result<uint32_t> checked_mode(OpContext& ctx, const wire::MknodRequestT& q) {
  switch (q.mode & S_IFMT) {
    case S_IFDIR: return S_IFDIR | (q.mode & 01777);
    case S_IFLNK:
      if (q.symlink.empty()) return Err(Errc::kNoEnt);
      if (q.symlink.size() > kMaxSymlink) return Err(Errc::kNameTooLong);
      if (std::find(q.symlink.begin(), q.symlink.end(), 0) != q.symlink.end()) return Err(Errc::kInval);
      return S_IFLNK | 0777;
    case S_IFCHR:
    case S_IFBLK:
      if (!is_root(ctx.cred())) return Err(Errc::kPerm);
      return q.mode & (S_IFMT | 07777);
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFREG: return q.mode & (S_IFMT | 07777);
    case 0: return S_IFREG | (q.mode & 07777);
    default: return Err(Errc::kInval);
  }
}

}  // namespace

Result<wire::EntryReplyT> mknod(OpContext& ctx, const wire::MknodRequestT& q) {
  Ino parent(q.parent);
  auto name = as_text(q.name);
  NACRE_CHECK_OK(check_name(name));
  NACRE_CHECK_OK(ctx.lock({parent}));
  NACRE_TRY(auto dir, ctx.inode(parent));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayExec));
  NACRE_TRY(auto taken, ctx.dentry(parent, name));
  if (taken) return Err(Errc::kExist);
  NACRE_CHECK_OK(check_creatable(name));
  NACRE_CHECK_OK(check_add(ctx, dir));
  NACRE_TRY(uint32_t mode, checked_mode(ctx, q));
  NACRE_TRY(auto r, new_inode(ctx, dir, mode, q.umask));
  r.parent = parent.v;
  r.name = q.name;
  if (S_ISCHR(mode) || S_ISBLK(mode)) r.rdev = q.rdev;
  if (S_ISLNK(mode)) r.symlink = q.symlink;
  if (S_ISREG(mode)) {
    NACRE_TRY(auto layout, ctx.services().dir_layouts.find(ctx, dir));
    r.layout = std::make_unique<schema::LayoutT>(*layout.layout);
  }
  NACRE_CHECK_OK(add_name(ctx, dir, name, r));
  ctx.put_inode(r);
  ctx.batch().account(nullptr, &r);
  ctx.log(S_ISDIR(mode) ? kLogMkdir : S_ISLNK(mode) ? kLogSymlink : kLogMknod, Ino(r.ino), parent, name);
  wire::EntryReplyT reply;
  reply.attr = std::make_unique<wire::AttrT>(plain_attr(ctx, r));
  return reply;
}

}  // namespace nacre::mds::ops
