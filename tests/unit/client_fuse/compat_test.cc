// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/compat.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace nacre::fuse {
namespace {

struct InitMessage {
  fuse_in_header header{};
  fuse_init_in in{};
  explicit InitMessage(uint32_t minor, uint64_t flags) {
    header.len = sizeof(InitMessage);
    header.opcode = FUSE_INIT;
    in.major = 7;
    in.minor = minor;
    in.flags = static_cast<uint32_t>(flags);
    in.flags2 = static_cast<uint32_t>(flags >> 32);
  }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(this, 1)); }
};
constexpr uint64_t kModern = FUSE_INIT_EXT | FUSE_HANDLE_KILLPRIV_V2 | FUSE_POSIX_ACL | FUSE_SETXATTR_EXT | FUSE_MAX_PAGES | kernel::kInitDirectIoAllowMmap | kernel::kInitOverIoUring;

uint64_t flags_of(const fuse_init_out& o) { return o.flags | static_cast<uint64_t>(o.flags2) << 32; }

TEST(Compat, ModernKernelHasAll) {
  Compat c;
  InitMessage m(45, kModern);
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  for (const auto& s : c.states()) EXPECT_TRUE(s.active) << s.name;
  EXPECT_EQ(c.open_flags(O_RDWR), uint32_t{FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES});
  EXPECT_EQ(c.open_flags(O_RDONLY), uint32_t{FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES});
  fuse_init_out out{};
  out.max_write = 4096;
  c.patch_init_reply(out);
  const uint64_t want = FUSE_INIT_EXT | FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT | kernel::kInitDirectIoAllowMmap | kernel::kInitOverIoUring;
  EXPECT_EQ(flags_of(out) & want, want);
}

TEST(Compat, Debian12KernelHasWhatItHas) {
  Compat c;
  InitMessage m(37, FUSE_INIT_EXT | FUSE_HANDLE_KILLPRIV_V2 | FUSE_POSIX_ACL | FUSE_SETXATTR_EXT | FUSE_MAX_PAGES);  // Linux 6.1
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  EXPECT_FALSE(c.has(Feature::kMmap));
  EXPECT_FALSE(c.has(Feature::kParallel));
  EXPECT_FALSE(c.has(Feature::kEpoch));
  EXPECT_FALSE(c.has(Feature::kUring));
  EXPECT_FALSE(c.has(Feature::kStatx));
  EXPECT_TRUE(c.has(Feature::kTmpfile));
  EXPECT_EQ(c.open_flags(O_RDWR), uint32_t{FOPEN_DIRECT_IO});
  EXPECT_EQ(c.open_flags(O_RDONLY), 0u);  // so that it can be mapped shared
  fuse_init_out out{};
  c.patch_init_reply(out);
  EXPECT_EQ(flags_of(out) & (kernel::kInitDirectIoAllowMmap | kernel::kInitOverIoUring), 0u);
}

TEST(Compat, WithoutExtendedFlagsNoneIsSet) {
  Compat c;
  InitMessage m(36, FUSE_MAX_PAGES);
  m.in.flags2 = 0xffffffff;  // rubbish: not announced by INIT_EXT
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  fuse_init_out out{};
  c.patch_init_reply(out);
  EXPECT_EQ(out.flags2, 0u);
  EXPECT_EQ(out.flags & FUSE_INIT_EXT, 0u);
}

TEST(Compat, MaskHidesInTheRequestItself) {
  Compat c;
  ASSERT_TRUE(c.mask("mmap,parallel,epoch,uring"));
  InitMessage m(45, kModern);
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  EXPECT_EQ(m.in.flags2 & static_cast<uint32_t>((kernel::kInitDirectIoAllowMmap | kernel::kInitOverIoUring) >> 32), 0u);
  for (Feature f : {Feature::kMmap, Feature::kParallel, Feature::kEpoch, Feature::kUring}) EXPECT_FALSE(c.has(f));
  EXPECT_TRUE(c.has(Feature::kAcl));
  for (const auto& s : c.states()) EXPECT_TRUE(s.offered) << s.name;
}

TEST(Compat, MaskNamesWhatCanBeMasked) {
  Compat c;
  auto r = c.mask("mmap,acl");
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message().find("mmap, parallel, epoch, uring"), std::string::npos) << r.error().message();
}

TEST(Compat, RefusesAncientKernels) {
  Compat c;
  InitMessage m(26, 0);
  auto r = c.on_init_request(m.bytes());
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::kVersion);
  InitMessage shortened(45, kModern);
  EXPECT_FALSE(c.on_init_request(shortened.bytes().first(44)));
}

TEST(Compat, WritebackCacheAndSpliceAreNeverAsked) {
  Compat c;
  InitMessage m(45, kModern);
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  fuse_conn_info conn{};
  conn.capable = 0xffffffff;
  conn.want = 0xffffffff;
  c.on_init(conn, false);
  EXPECT_EQ(conn.want & (FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_READDIRPLUS), 0u);
  const uint32_t wanted = FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_ATOMIC_O_TRUNC;
  EXPECT_EQ(conn.want & wanted, wanted);
  EXPECT_EQ(conn.max_write, 1024u * 1024);
  EXPECT_EQ(conn.max_background, 256u);
}

TEST(Compat, ExtendedSetxattrBecomesThePlainOne) {
  Compat c;
  InitMessage m(45, kModern);
  ASSERT_TRUE(c.on_init_request(m.bytes()));
  struct { fuse_in_header h; fuse_setxattr_in in; char rest[8]; } msg{};
  msg.h.len = sizeof msg;
  msg.h.unique = 77;
  msg.in.size = 2;
  msg.in.flags = 1;
  msg.in.setxattr_flags = FUSE_SETXATTR_ACL_KILL_SGID;
  std::memcpy(msg.rest, "user.x\0v", 8);
  bool kill = false;
  auto out = c.plain_setxattr(std::as_writable_bytes(std::span(&msg, 1)), kill);
  EXPECT_TRUE(kill);
  ASSERT_EQ(out.size(), sizeof msg - 8);
  fuse_in_header h;
  uint32_t fixed[2];
  std::memcpy(&h, out.data(), sizeof h);
  std::memcpy(fixed, out.data() + sizeof h, sizeof fixed);
  EXPECT_EQ(h.unique, 77u);
  EXPECT_EQ(h.len, out.size());
  EXPECT_EQ(fixed[0], 2u);
  EXPECT_EQ(fixed[1], 1u);
  EXPECT_EQ(std::memcmp(out.data() + sizeof h + 8, "user.x\0v", 8), 0);
}

}  // namespace
}  // namespace nacre::fuse
