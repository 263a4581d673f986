// SPDX-License-Identifier: Apache-2.0
// From records to what applications see, and the times that changes leave. See common.h.
#include <sys/stat.h>

#include "metadata/ops/common.h"
#include "metadata/ops/permission.h"

namespace nacre::mds {

schema::FileType type_of(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return schema::FileType::Regular;
    case S_IFDIR: return schema::FileType::Directory;
    case S_IFLNK: return schema::FileType::Symlink;
    case S_IFIFO: return schema::FileType::Fifo;
    case S_IFSOCK: return schema::FileType::Socket;
    case S_IFCHR: return schema::FileType::CharDevice;
    case S_IFBLK: return schema::FileType::BlockDevice;
    default: return schema::FileType::Unknown;
  }
}

wire::AttrT plain_attr(OpContext& ctx, const schema::InodeRecordT& r) {
  wire::AttrT a;
  a.ino = r.ino;
  a.mode = r.mode;
  a.nlink = r.nlink;
  a.uid = r.uid;
  a.gid = r.gid;
  a.rdev = r.rdev;
  a.size = is_symlink(r) ? r.symlink.size() : r.size;
  a.allocated = r.allocated;
  a.atime = r.atime;
  a.mtime = r.mtime;
  a.ctime = r.ctime;
  a.btime = r.btime;
  a.content_time = r.content_time;
  a.fileset = r.fileset;
  a.generation = r.generation;
  a.change = r.change;
  a.flags = r.flags & kShownFlags;
  auto fileset = ctx.services().store.fileset(FilesetId(r.fileset));
  a.epoch = fileset ? fileset->epoch : r.birth_epoch;
  if (ctx.was_open(Ino(r.ino))) a.flags |= wire::kOpenForWrite;
  return a;
}

bool apply_glimpse(schema::InodeRecordT& r, const Glimpse& g) {
  auto before = std::tuple(r.size, r.allocated, r.mtime, r.ctime, r.content_time);
  r.size = std::max(r.size, g.size);
  r.allocated = g.allocated;
  if (g.changed > r.mtime_base) {
    r.mtime = g.changed;
    r.ctime = std::max(r.ctime, g.changed);
    r.content_time = std::max(r.content_time, g.changed);  // what lies before mtime_base is in it already
  }
  return before != std::tuple(r.size, r.allocated, r.mtime, r.ctime, r.content_time);
}

Result<wire::AttrT> attr_of(OpContext& ctx, const schema::InodeRecordT& r) {
  if (!is_file(r) || !ctx.was_open(Ino(r.ino))) return plain_attr(ctx, r);
  const Glimpse* g = ctx.glimpse(Ino(r.ino));
  if (!g) return ctx.park({Park::Kind::kGlimpse, {Ino(r.ino)}, 0});
  schema::InodeRecordT shown = r;
  if (g->is_of(r)) apply_glimpse(shown, *g);  // else it was emptied since: the record is true of that moment
  return plain_attr(ctx, shown);
}

void touch(const OpContext& ctx, schema::InodeRecordT& r) {
  r.ctime = ctx.now();
  r.change += 1;
}

void touch_data(const OpContext& ctx, schema::InodeRecordT& r) {
  r.mtime = r.content_time = r.mtime_base = ctx.now();
  touch(ctx, r);
}

void touch_entries(const OpContext& ctx, schema::InodeRecordT& r) {
  r.mtime = r.content_time = ctx.now();
  r.nlink = r.subdirs + 2;
  touch(ctx, r);
}

Result<void> kill_privileges(OpContext& ctx, schema::InodeRecordT& r) {
  if (is_dir(r)) return {};
  r.mode &= ~static_cast<uint32_t>(S_ISUID);
  if (r.mode & S_ISGID) {
    // Without group execute the bit is a mark for mandatory locking, and stays for members of the group.
    bool drop = r.mode & S_IXGRP;
    if (!drop && !is_root(ctx.cred())) {
      NACRE_TRY(bool member, in_group(ctx.cred(), r.gid));
      drop = !member;
    }
    if (drop) r.mode &= ~static_cast<uint32_t>(S_ISGID);
  }
  drop_file_capability(ctx, r);
  return {};
}

void drop_file_capability(OpContext& ctx, schema::InodeRecordT& r) {
  if (!(r.flags & wire::kHasCapability)) return;
  ctx.batch().del(Family::kXattr, xattr_key(Ino(r.ino), "security.capability"));
  r.flags &= ~wire::kHasCapability;
}

}  // namespace nacre::mds
