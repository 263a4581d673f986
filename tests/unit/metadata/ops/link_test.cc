// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct LinkTest : testing::Test {
  World w;
  void TearDown() override { check_namespace(*w.store, *w.journal); }
};

TEST_F(LinkTest, NamesShareOneInodeAndOnlyCtimeMoves) {
  Ino f = must(w.create(kRoot, kRootIno, "a"));
  auto before = w.record(f);
  EXPECT_EQ(must(w.link(kRoot, f, kRootIno, "b")), f);
  EXPECT_EQ(must(w.lookup(kRoot, kRootIno, "b")), f);
  auto after = w.record(f);
  EXPECT_EQ(after.nlink, 2u);
  EXPECT_GT(after.ctime, before.ctime);
  EXPECT_EQ(after.mtime, before.mtime);
  EXPECT_EQ(w.journal->usage_total().inodes, 2) << "charged once";
}

TEST_F(LinkTest, ErrnosOfLinux) {
  Ino f = must(w.create(kRoot, kRootIno, "f"));
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  EXPECT_CODE(w.link(kRoot, d, kRootIno, "x"), kPerm);
  EXPECT_CODE(w.link(kRoot, f, kRootIno, "d"), kExist);
  EXPECT_CODE(w.link(kRoot, f, kRootIno, "f"), kExist);
  EXPECT_CODE(w.link(kRoot, f, f, "x"), kNotDir);
  EXPECT_CODE(w.link(kRoot, Ino(12345), kRootIno, "x"), kNoEnt);
  EXPECT_CODE(w.link(kAlice, f, kRootIno, "x"), kAccess);
  EXPECT_CODE(w.link(kRoot, must(w.symlink(kRoot, kRootIno, "l", "t")), d, "l"), kOk);
  w.add_fileset(2, d);
  EXPECT_CODE(w.link(kRoot, f, d, "x"), kXDev);
}

TEST(LinkLimit, MaxLinksIsEmlink) {
  World w;
  Ino f = must(w.create(kRoot, kRootIno, "f"));
  w.change(f, [](auto& r) { r.nlink = kMaxLinks; });
  EXPECT_CODE(w.link(kRoot, f, kRootIno, "x"), kMLink);
}

}  // namespace
}  // namespace nacre::mds::test
