// SPDX-License-Identifier: Apache-2.0
// The front's pure functions: /proc, attributes, CPU lists.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/fuse/convert.h"
#include "client/fuse/process.h"
#include "client/fuse/ring.h"

namespace nacre::fuse {
namespace {

std::string status(const std::string& state, const std::string& pending, const std::string& shared, const std::string& blocked, const std::string& ignored, const std::string& caught) {
  return "Name:\tSigPnd: x\nState:\t" + state + "\nGroups:\t4 20 30001 \nSigPnd:\t" + pending + "\nShdPnd:\t" + shared + "\nSigBlk:\t" + blocked + "\nSigIgn:\t" + ignored + "\nSigCgt:\t" + caught + "\n";
}
constexpr const char* kNone = "0000000000000000";
constexpr const char* kKill = "0000000000000100";
constexpr const char* kTerm = "0000000000004000";
constexpr const char* kChild = "0000000000010000";

TEST(Process, Groups) {
  auto g = parse_groups(status("S (sleeping)", kNone, kNone, kNone, kNone, kNone));
  ASSERT_TRUE(g);
  EXPECT_EQ(*g, (std::vector<uint32_t>{4, 20, 30001}));
  auto none = parse_groups("Name:\tx\nGroups:\t \nNStgid:\t1\n");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  EXPECT_FALSE(parse_groups(""));
  EXPECT_FALSE(groups_of(0));
}

TEST(Process, GroupsOfThisProcess) {
  gid_t own[256];
  const int n = ::getgroups(256, own);
  auto g = groups_of(::getpid());
  ASSERT_TRUE(g);
  EXPECT_EQ(*g, std::vector<uint32_t>(own, own + n));
}

TEST(Process, SignalsThatEndAWaitForALock) {
  EXPECT_TRUE(parse_signal(status("D (disk sleep)", kTerm, kNone, kNone, kNone, kTerm))) << "handled: it ends a wait for a lock";
  EXPECT_FALSE(parse_signal(status("D (disk sleep)", kTerm, kNone, kTerm, kNone, kNone))) << "blocked";
  EXPECT_FALSE(parse_signal(status("D (disk sleep)", kNone, kNone, kNone, kNone, kNone)));
}

TEST(Process, Dying) {
  EXPECT_TRUE(parse_dying("")) << "gone";
  EXPECT_TRUE(parse_dying(status("Z (zombie)", kNone, kNone, kNone, kNone, kNone)));
  EXPECT_TRUE(parse_dying(status("D (disk sleep)", kKill, kNone, kNone, kNone, kNone)));
  EXPECT_TRUE(parse_dying(status("D (disk sleep)", kNone, kTerm, kNone, kNone, kNone))) << "no handler";
  EXPECT_FALSE(parse_dying(status("S (sleeping)", kNone, kTerm, kNone, kNone, kTerm))) << "a handler will run later";
  EXPECT_FALSE(parse_dying(status("S (sleeping)", kNone, kTerm, kTerm, kNone, kNone))) << "blocked";
  EXPECT_FALSE(parse_dying(status("S (sleeping)", kNone, kTerm, kNone, kTerm, kNone))) << "ignored";
  EXPECT_FALSE(parse_dying(status("S (sleeping)", kNone, kChild, kNone, kNone, kNone))) << "ignored by default";
  EXPECT_TRUE(parse_dying(status("S (sleeping)", kKill, kNone, "ffffffffffffffff", "ffffffffffffffff", "ffffffffffffffff"))) << "nothing holds SIGKILL back";
  EXPECT_FALSE(is_dying(::getpid()));
  EXPECT_TRUE(is_dying(0));
}

TEST(Convert, TimesBefore1970AndAfter2038) {
  client::Attr a;
  a.mtime = -1;
  a.atime = -5 * kSecond;
  a.ctime = 5'000'000'000 * kSecond + 7;
  const fuse_attr k = to_kernel(a);
  EXPECT_EQ(static_cast<int64_t>(k.mtime), -1);
  EXPECT_EQ(k.mtimensec, 999'999'999u);
  EXPECT_EQ(static_cast<int64_t>(k.atime), -5);
  EXPECT_EQ(k.atimensec, 0u);
  EXPECT_EQ(k.ctime, 5'000'000'000u);
  EXPECT_EQ(k.ctimensec, 7u);
  EXPECT_EQ(format_time(-1), "-1.999999999");
  EXPECT_EQ(format_time(1'700'000'000 * kSecond + 5), "1700000000.000000005");
  fuse_setattr_in in{};
  in.valid = FATTR_MTIME;
  in.mtime = static_cast<uint64_t>(int64_t{-1});
  in.mtimensec = 999'999'999;
  EXPECT_EQ(to_set_attr(in).mtime, -1);
  in.mtime = static_cast<uint64_t>(INT64_MAX);
  EXPECT_EQ(to_set_attr(in).mtime, INT64_MAX) << "saturates";
  in.mtime = static_cast<uint64_t>(INT64_MIN);
  EXPECT_EQ(to_set_attr(in).mtime, INT64_MIN);
}

TEST(Convert, SetAttrBits) {
  fuse_setattr_in in{};
  in.valid = FATTR_MODE | FATTR_SIZE | FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME | FATTR_KILL_SUIDGID | FATTR_LOCKOWNER;
  in.mode = 0644;
  in.size = 9;
  const auto s = to_set_attr(in);
  EXPECT_EQ(s.valid, wire::kSetMode | wire::kSetSize | wire::kSetAtimeNow | wire::kSetMtime);
  EXPECT_TRUE(s.kill_priv);
  EXPECT_EQ(s.size, 9u);
}

TEST(Convert, EntryKeepsGenerationAndCountsBlocks) {
  client::Attr a;
  a.ino = 42;
  a.generation = 17;  // of the layout: moves with truncation, while the kernel must go on seeing the same inode
  a.allocated = 4097;
  const auto e = entry_out(a, 42);
  EXPECT_EQ(e.generation, 1u);
  EXPECT_EQ(e.nodeid, 42u);
  EXPECT_EQ(e.entry_valid + e.attr_valid + e.entry_valid_nsec + e.attr_valid_nsec, 0u);
  EXPECT_EQ(e.attr.blocks, 9u);
}

TEST(Convert, DeviceNumbers) {
  client::Attr a;
  a.rdev = (259u & 0xfff) << 8 | (70000u & 0xff) | (70000u & 0xfff00) << 12;
  const auto s = statx_out(a);
  EXPECT_EQ(s.stat.rdev_major, 259u);
  EXPECT_EQ(s.stat.rdev_minor, 70000u);
}

TEST(Ring, PossibleCpus) {
  EXPECT_EQ(parse_possible("0\n"), 1u);
  EXPECT_EQ(parse_possible("0-1\n"), 2u);
  EXPECT_EQ(parse_possible("0-3,8-11\n"), 12u) << "queues are numbered by CPU";
  EXPECT_EQ(parse_possible(""), 0u);
  EXPECT_EQ(parse_possible("3-1"), 0u);
  EXPECT_GE(possible_cpus(), 1u);
}

}  // namespace
}  // namespace nacre::fuse
