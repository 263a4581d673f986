// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/convert.h"

#include <dirent.h>
#include <sys/stat.h>

#include <fmt/format.h>

namespace nacre::fuse {
namespace {

struct Time { int64_t sec; uint32_t nsec; };
Time split(Nanos t) {
  int64_t sec = t / kSecond;
  int64_t nsec = t % kSecond;
  if (nsec < 0) {  // before 1970: the nanoseconds still count upwards
    nsec += kSecond;
    --sec;
  }
  return {sec, static_cast<uint32_t>(nsec)};
}

/// Saturates: seconds that don't fit in 64 bits of nanoseconds (before 1678, after 2261) become the nearest that do.
Nanos join(uint64_t sec, uint32_t nsec) {
  Nanos t = 0;
  const auto s = static_cast<int64_t>(sec);
  if (__builtin_mul_overflow(s, kSecond, &t) || __builtin_add_overflow(t, static_cast<Nanos>(nsec), &t)) return s < 0 ? INT64_MIN : INT64_MAX;
  return t;
}

kernel::SxTime sx(Nanos t) {
  const Time x = split(t);
  return {x.sec, x.nsec, 0};
}
}  // namespace

fuse_attr to_kernel(const client::Attr& a) {
  fuse_attr k{};
  k.ino = a.ino;
  k.size = a.size;
  k.blocks = (a.allocated + 511) / 512;
  const Time at = split(a.atime), mt = split(a.mtime), ct = split(a.ctime);
  k.atime = static_cast<uint64_t>(at.sec);
  k.mtime = static_cast<uint64_t>(mt.sec);
  k.ctime = static_cast<uint64_t>(ct.sec);
  k.atimensec = at.nsec;
  k.mtimensec = mt.nsec;
  k.ctimensec = ct.nsec;
  k.mode = a.mode;
  k.nlink = a.nlink;
  k.uid = a.uid;
  k.gid = a.gid;
  k.rdev = static_cast<uint32_t>(a.rdev);
  k.blksize = kPreferredIo;
  return k;
}

fuse_attr_out attr_out(const client::Attr& a) {
  fuse_attr_out o{};
  o.attr = to_kernel(a);
  return o;
}

fuse_entry_out entry_out(const client::Attr& a, uint64_t nodeid) {
  fuse_entry_out o{};
  o.nodeid = nodeid;
  o.generation = kNodeGeneration;
  o.attr = to_kernel(a);
  return o;
}

kernel::StatxOut statx_out(const client::Attr& a) {
  kernel::StatxOut o{};
  kernel::Statx& s = o.stat;
  s.mask = STATX_BASIC_STATS | STATX_BTIME;
  s.blksize = kPreferredIo;
  s.nlink = a.nlink;
  s.uid = a.uid;
  s.gid = a.gid;
  s.mode = static_cast<uint16_t>(a.mode);
  s.ino = a.ino;
  s.size = a.size;
  s.blocks = (a.allocated + 511) / 512;
  s.atime = sx(a.atime);
  s.btime = sx(a.btime);
  s.ctime = sx(a.ctime);
  s.mtime = sx(a.mtime);
  const auto dev = static_cast<uint32_t>(a.rdev);  // the kernel's 32-bit encoding: 12 bits major, 20 bits minor around them
  s.rdev_major = (dev >> 8) & 0xfff;
  s.rdev_minor = (dev & 0xff) | ((dev >> 12) & 0xfff00);
  return o;
}

client::SetAttr to_set_attr(const fuse_setattr_in& in) {
  client::SetAttr s;
  const uint32_t v = in.valid;
  if (v & FATTR_MODE) s.valid |= wire::kSetMode;
  if (v & FATTR_UID) s.valid |= wire::kSetUid;
  if (v & FATTR_GID) s.valid |= wire::kSetGid;
  if (v & FATTR_SIZE) s.valid |= wire::kSetSize;
  if (v & FATTR_ATIME_NOW) s.valid |= wire::kSetAtimeNow;
  else if (v & FATTR_ATIME) s.valid |= wire::kSetAtime;
  if (v & FATTR_MTIME_NOW) s.valid |= wire::kSetMtimeNow;
  else if (v & FATTR_MTIME) s.valid |= wire::kSetMtime;
  s.mode = in.mode;
  s.uid = in.uid;
  s.gid = in.gid;
  s.size = in.size;
  s.atime = join(in.atime, in.atimensec);
  s.mtime = join(in.mtime, in.mtimensec);
  s.kill_priv = (v & FATTR_KILL_SUIDGID) != 0;
  return s;
}

std::string format_time(Nanos t) {
  const Time x = split(t);
  return fmt::format("{}.{:09}", x.sec, x.nsec);
}

uint32_t dirent_type(schema::FileType t) {
  switch (t) {
    case schema::FileType::Regular: return DT_REG;
    case schema::FileType::Directory: return DT_DIR;
    case schema::FileType::Symlink: return DT_LNK;
    case schema::FileType::Fifo: return DT_FIFO;
    case schema::FileType::Socket: return DT_SOCK;
    case schema::FileType::CharDevice: return DT_CHR;
    case schema::FileType::BlockDevice: return DT_BLK;
    case schema::FileType::Unknown: break;
  }
  return DT_UNKNOWN;
}

}  // namespace nacre::fuse
