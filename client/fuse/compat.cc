// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/compat.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace nacre::fuse {
namespace {

constexpr uint32_t kOldestMinor = 31;  // Linux 5.4: everything older lacks what can't be done without (large requests, POSIX ACLs with direct I/O)
constexpr uint16_t kMaxBackground = 256;  // requests nobody waits for, in flight: the kernel's default of 12 starves writeback behind readahead
constexpr uint32_t kPage = 4096;

struct Row {
  Feature feature;
  std::string_view name, what, without, needs;
  uint64_t flag;      // INIT flag that announces it, 0 = none
  uint32_t minor;     // else the protocol's minor
  bool maskable;
};

constexpr Row kRows[] = {
    {Feature::kMmap, "mmap", "shared mappings of files open for writing", "MAP_SHARED on such files fails (ENODEV), read-only files go through the kernel's page cache", "Linux 6.6",
     kernel::kInitDirectIoAllowMmap, 0, true},
    {Feature::kParallel, "parallel", "several writes of one file at a time", "a file has one write in flight per mount", "Linux 6.2", 0, kernel::kMinorParallelWrites, true},
    {Feature::kEpoch, "epoch", "dropping all cached names at once without a lock", "no name is ever cached", "Linux 6.16", 0, kernel::kMinorIncEpoch, true},
    {Feature::kUring, "uring", "requests over io_uring, one queue per CPU", "requests are read from /dev/fuse", "Linux 6.14 with fuse.enable_uring=Y", kernel::kInitOverIoUring, 0, true},
    {Feature::kKillPriv, "killpriv", "clearing suid and sgid on the server", "the kernel clears them with a request of its own", "Linux 5.12", FUSE_HANDLE_KILLPRIV_V2, 0, false},
    {Feature::kAcl, "acl", "POSIX ACLs", "there are no ACLs, and the kernel applies the umask", "Linux 4.9", FUSE_POSIX_ACL, 0, false},
    {Feature::kSetxattrExt, "setxattr_ext", "clearing sgid when an ACL is set", "sgid stays when somebody outside the group sets an ACL", "Linux 5.13", FUSE_SETXATTR_EXT, 0, false},
    {Feature::kLargeIo, "large_io", "reads and writes of 1 MiB", "reads and writes are cut at 128 KiB", "Linux 4.20", FUSE_MAX_PAGES, 0, false},
    {Feature::kTmpfile, "tmpfile", "O_TMPFILE", "O_TMPFILE fails (EOPNOTSUPP)", "Linux 6.1", 0, kernel::kMinorTmpfile, false},
    {Feature::kStatx, "statx", "birth times", "statx shows no birth time", "Linux 6.6", 0, kernel::kMinorStatx, false},
};
static_assert(std::size(kRows) == kFeatures);

}  // namespace

Compat::Compat() {
  for (const Row& r : kRows) state(r.feature) = FeatureState{r.name, r.what, r.without, r.needs};
}

Result<void> Compat::mask(std::string_view names) {
  while (!names.empty()) {
    const size_t end = std::min(names.find_first_of(",:+"), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    if (name.empty()) continue;
    auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.maskable && r.name == name; });
    if (row == std::end(kRows)) return Err(Errc::kInval, fmt::format("mask={}: this can't be hidden; write one or more of mmap, parallel, epoch, uring", name));
    state(row->feature).masked = true;
  }
  return {};
}

Result<void> Compat::on_init_request(std::span<std::byte> message) {
  fuse_in_header header;
  fuse_init_in in{};
  if (message.size() < sizeof header + 16) return Err(Errc::kProtocol, "the kernel's INIT request is too short");
  std::memcpy(&header, message.data(), sizeof header);
  const size_t size = std::min(message.size() - sizeof header, sizeof in);
  std::memcpy(&in, message.data() + sizeof header, size);
  if (in.major != FUSE_KERNEL_VERSION || in.minor < kOldestMinor)
    return Err(Errc::kVersion, fmt::format("this kernel speaks FUSE {}.{}; Nacre needs {}.{} (Linux 5.4) or newer", in.major, in.minor, FUSE_KERNEL_VERSION, kOldestMinor));
  minor_ = in.minor;
  uint64_t flags = in.flags;
  if (in.flags & FUSE_INIT_EXT) flags |= static_cast<uint64_t>(in.flags2) << 32;
  for (const Row& r : kRows) {
    FeatureState& s = state(r.feature);
    s.offered = r.flag != 0 ? (flags & r.flag) != 0 : minor_ >= r.minor;
    s.active = s.offered && !s.masked;
    if (s.masked) flags &= ~r.flag;
  }
  init_flags_ = flags;
  in.flags = static_cast<uint32_t>(flags);
  in.flags2 = static_cast<uint32_t>(flags >> 32);
  std::memcpy(message.data() + sizeof header, &in, size);
  return {};
}

void Compat::on_init(fuse_conn_info& c, bool readdirplus) const {
  uint32_t want = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_IOCTL_DIR |
                  FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS;
  // The server applies the umask, unless a default ACL rules; without ACLs the kernel does.
  if (has(Feature::kAcl)) want |= FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK;
  // Attributes that come with a listing are looked up again before anybody sees them as long as nothing may be cached.
  if (readdirplus) want |= FUSE_CAP_READDIRPLUS;
  c.want = want & c.capable;
  c.max_write = has(Feature::kLargeIo) ? kMaxIo : 32 * kPage;
  c.max_background = kMaxBackground;
  c.congestion_threshold = kMaxBackground * 3 / 4;
  c.time_gran = 1;
}

void Compat::patch_init_reply(fuse_init_out& reply) {
  uint64_t add = 0;
  if (has(Feature::kMmap)) add |= kernel::kInitDirectIoAllowMmap;
  if (has(Feature::kKillPriv)) add |= FUSE_HANDLE_KILLPRIV_V2;
  if (has(Feature::kSetxattrExt)) add |= FUSE_SETXATTR_EXT;
  if (has(Feature::kUring)) add |= kernel::kInitOverIoUring;
  if (init_flags_ & FUSE_INIT_EXT) add |= FUSE_INIT_EXT;
  else add &= 0xffffffffu;
  reply.flags |= static_cast<uint32_t>(add);
  reply.flags2 |= static_cast<uint32_t>(add >> 32);
  max_write_ = reply.max_write;
}

uint32_t Compat::open_flags(uint32_t flags) const {
  // A read-only handle that bypasses the page cache can't be mapped shared on such kernels. In the page cache its reads are still
  // coherent: attributes expire at once, so each read() asks for them, and a changed mtime drops the pages.
  if (!has(Feature::kMmap) && (flags & O_ACCMODE) == O_RDONLY) return 0;
  return FOPEN_DIRECT_IO | (has(Feature::kParallel) ? FOPEN_PARALLEL_DIRECT_WRITES : 0u);
}

std::span<std::byte> Compat::plain_setxattr(std::span<std::byte> message, bool& kill_sgid) const {
  constexpr size_t kFixed = sizeof(fuse_in_header) + FUSE_COMPAT_SETXATTR_IN_SIZE;
  constexpr size_t kExtra = sizeof(fuse_setxattr_in) - FUSE_COMPAT_SETXATTR_IN_SIZE;
  kill_sgid = false;
  if (!has(Feature::kSetxattrExt) || message.size() < kFixed + kExtra) return message;
  uint32_t flags = 0;
  std::memcpy(&flags, message.data() + kFixed, sizeof flags);
  kill_sgid = (flags & FUSE_SETXATTR_ACL_KILL_SGID) != 0;
  std::memmove(message.data() + kExtra, message.data(), kFixed);
  message = message.subspan(kExtra);
  const auto length = static_cast<uint32_t>(message.size());
  std::memcpy(message.data(), &length, sizeof length);
  return message;
}

}  // namespace nacre::fuse
