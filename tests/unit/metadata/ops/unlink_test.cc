// SPDX-License-Identifier: Apache-2.0
// unlink, rmdir, and what becomes of the inode.
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct UnlinkTest : testing::Test {
  World w;
  void TearDown() override { check_namespace(*w.store, *w.journal); }
};

TEST_F(UnlinkTest, LastNameOfAClosedFileTakesEverythingAway) {
  Ino f = must(w.create(kRoot, kRootIno, "f", 0644, 0, O_EXCL, 1));
  must(w.xattr_set(kRoot, f, "user.a", {1}));
  w.change(f, [](auto& r) { r.allocated = 8192; });
  must(w.unlink(kRoot, kRootIno, "f"));
  EXPECT_FALSE(w.exists(f));
  EXPECT_EQ(w.hooks.destroyed, std::vector<Ino>{f});
  EXPECT_FALSE(must(w.view().get(Family::kXattr, xattr_key(f, "user.a"))));
  EXPECT_EQ(w.journal->usage_total().inodes, 1);
  EXPECT_EQ(w.journal->usage_total().bytes, 0);
  EXPECT_CODE(w.unlink(kRoot, kRootIno, "f"), kNoEnt);
  EXPECT_CODE(w.getattr(f), kStale);
}

TEST_F(UnlinkTest, AnOpenFileBecomesAnOrphanAndStaysCharged) {
  Ino f = must(w.create(kRoot, kRootIno, "f", 0644, 0, O_EXCL, 1));
  w.hooks.kept.insert(f);
  must(w.unlink(kRoot, kRootIno, "f"));
  EXPECT_EQ(must(w.getattr(f)).nlink, 0u);
  EXPECT_TRUE(w.hooks.destroyed.empty());
  EXPECT_EQ(w.hooks.orphans, std::vector<Ino>{f});
  EXPECT_TRUE(must(w.view().get(Family::kOrphan, orphan_key(f))));
  EXPECT_EQ(w.journal->usage_total().inodes, 2);
  EXPECT_CODE(w.link(kRoot, f, kRootIno, "again"), kNoEnt);
  check_namespace(*w.store, *w.journal);
  auto r = w.record(f);
  must(w.run(kRoot, [&](OpContext& c) { return destroy_inode(c, r); }));
  EXPECT_FALSE(w.exists(f));
  EXPECT_EQ(w.hooks.destroyed, std::vector<Ino>{f});
}

TEST_F(UnlinkTest, ErrnosOfLinux) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  must(w.create(kRoot, kRootIno, "f"));
  must(w.create(kRoot, d, "inside"));
  EXPECT_CODE(w.unlink(kRoot, kRootIno, "d"), kIsDir);
  EXPECT_CODE(w.rmdir(kRoot, kRootIno, "f"), kNotDir);
  EXPECT_CODE(w.rmdir(kRoot, kRootIno, "d"), kNotEmpty);
  EXPECT_CODE(w.rmdir(kRoot, kRootIno, "none"), kNoEnt);
  EXPECT_CODE(w.rmdir(kRoot, kRootIno, "."), kInval);
  EXPECT_CODE(w.unlink(kAlice, kRootIno, "f"), kAccess);
  EXPECT_CODE(w.unlink(kAlice, kRootIno, "d"), kAccess) << "the directory's permission is asked before the type";
  must(w.unlink(kRoot, d, "inside"));
  must(w.rmdir(kRoot, kRootIno, "d"));
  EXPECT_FALSE(w.exists(d));
  EXPECT_EQ(w.record(kRootIno).nlink, 2u);
}

TEST_F(UnlinkTest, TheFirstNameOfSeveralMayGoFirst) {
  Ino f = must(w.create(kRoot, kRootIno, "a"));
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  must(w.link(kRoot, f, d, "b"));
  must(w.link(kRoot, f, kRootIno, "c"));
  auto before = w.record(f);
  must(w.unlink(kRoot, kRootIno, "a"));
  check_namespace(*w.store, *w.journal);
  auto r = w.record(f);
  EXPECT_EQ(r.nlink, 2u);
  EXPECT_GT(r.ctime, before.ctime);
  EXPECT_EQ(r.mtime, before.mtime);
  must(w.unlink(kRoot, d, "b"));
  must(w.unlink(kRoot, kRootIno, "c"));
  EXPECT_FALSE(w.exists(f));
}

TEST_F(UnlinkTest, AFilesetsRootStays) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  w.add_fileset(2, d);
  EXPECT_CODE(w.rmdir(kRoot, kRootIno, "d"), kBusy);
}

}  // namespace
}  // namespace nacre::mds::test
