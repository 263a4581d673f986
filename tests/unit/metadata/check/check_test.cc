// SPDX-License-Identifier: Apache-2.0
// The metadata's part of the check: each kind of damage is planted as rows, found exactly, repaired, and gone in the second run.
#include "tests/unit/metadata/check/check_world.h"

namespace nacre::mds::testing {
namespace {

class CheckNames : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    d = mkdir("d");
    e = mkdir("e", d);
    f = file("f", d, 5000);
    g = file("g", e);
    link(g, "g2", d);
    link(g, "g3");
    for (const char* name : {"user.a", "user.b"}) {
      wire::XattrSetRequestT q;
      q.ino = f.v;
      q.name = name;
      q.value = {1, 2, 3};
      ASSERT_TRUE(client.once<rpc::Method::kXattrSet>(q));
    }
    ASSERT_THAT(kinds(everything()), IsEmpty());
  }
  Ino d, e, f, g;
};

TEST_F(CheckNames, APageOfOneRowFindsTheSame) {
  EXPECT_THAT(kinds(everything(false, 1)), IsEmpty());
  plant_inode(g, [](auto& r) { r.nlink = 7; });
  plant_inode(f, [](auto& r) { r.nlink = 2; });
  for (uint64_t budget : {1, 2, 3, 1000}) EXPECT_THAT(kinds(everything(false, budget)), UnorderedElementsAre(one("link-count", g), one("link-count", f)));
  repairs(2);
}

TEST_F(CheckNames, OnlyAdministratorsMayAsk) {
  wire::FsckRequestT q;
  q.phase = check::kInodes;
  auto refused = client.call<rpc::Method::kFsck>(q);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kPerm);
  q.phase = 9;
  EXPECT_EQ(admin.call<rpc::Method::kFsck>(q).error().code, Errc::kInval);
  q.phase = check::kInodes;
  q.cursor = {1, 2, 3};
  EXPECT_EQ(admin.call<rpc::Method::kFsck>(q).error().code, Errc::kInval);
  q.phase = check::kStrays;
  EXPECT_EQ(admin.call<rpc::Method::kFsck>(q).error().code, Errc::kInval);
}

TEST_F(CheckNames, LinkCounts) {
  plant_inode(g, [](auto& r) { r.nlink = 2; });
  auto found = everything();
  ASSERT_THAT(kinds(found), ElementsAre(one("link-count", g)));
  EXPECT_EQ(found[0].expected, 3u);
  EXPECT_EQ(found[0].found, 2u);
  EXPECT_EQ(path(found[0]), "/d/e/g");
  EXPECT_TRUE(found[0].repairable);
  repairs(1);
  EXPECT_EQ(record(g).nlink, 3u);
}

TEST_F(CheckNames, ALinkRowWithoutAName) {
  schema::LinkRecordT row;
  plant([&](Batch& b) { b.put_record(Family::kLink, link_key(f, d, "gone"), row); });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("link-dangling", f)));
  repairs(1);
  EXPECT_FALSE(has(Family::kLink, link_key(f, d, "gone")));
}

TEST_F(CheckNames, TheFirstOfSeveralNamesIsLost) {
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(e, "g")); });
  EXPECT_THAT(kinds(everything()), UnorderedElementsAre(one("name-lost", g), one("directory-entries", e)));
  repairs(2);
  EXPECT_EQ(record(g).nlink, 2u);
}

TEST_F(CheckNames, WhatHasLostItsNameIsFoundInLostAndFound) {
  plant([&](Batch& b) {
    b.del(Family::kDentry, entry_key(kRootIno, "d"));
    b.del(Family::kDentry, entry_key(d, "f"));
  });
  auto found = everything();
  EXPECT_THAT(kinds(found), UnorderedElementsAre(one("unreachable", d), one("unreachable", f), one("directory-entries", kRootIno), one("directory-subdirs", kRootIno), one("directory-entries", d)));
  repairs(5);
  auto home = entry(kRootIno, "lost+found");
  ASSERT_TRUE(home);
  EXPECT_EQ(record(Ino(home->ino)).mode, uint32_t{S_IFDIR | 0700});
  auto dir = entry(Ino(home->ino), fmt::format("#{}", d.v)), plain = entry(Ino(home->ino), fmt::format("#{}", f.v));
  ASSERT_TRUE(dir && plain);
  EXPECT_EQ(dir->ino, d.v);
  EXPECT_EQ(plain->ino, f.v);
  EXPECT_TRUE(entry(d, "e")) << "what is in it stays in it";
  EXPECT_EQ(client.stat(f)->size, 5000u);
  // A second one of that name gets another.
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(d, "e")); });
  plant_inode(d, [](auto& r) { r.entries -= 1, r.subdirs -= 1, r.nlink -= 1; });
  plant_entry(Ino(home->ino), fmt::format("#{}", e.v), f, schema::FileType::Regular);
  (void)everything(/*repair=*/true);
  EXPECT_THAT(kinds(everything()), IsEmpty());
  EXPECT_TRUE(entry(Ino(home->ino), fmt::format("#{}.1", e.v)));
}

TEST_F(CheckNames, LostAndFoundIsSomethingElse) {
  file("lost+found");
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(d, "f")); });
  plant_inode(d, [](auto& r) { r.entries -= 1; });
  auto found = ask(check::kInodes, /*repair=*/true);
  ASSERT_THAT(kinds(found), ElementsAre(one("unreachable", f)));
  EXPECT_FALSE(found[0].repaired);
  EXPECT_THAT(found[0].detail, HasSubstr("rename it"));
}

TEST_F(CheckNames, DirectoriesThatLieInEachOther) {
  // d goes into its own e: the root no longer has it.
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(kRootIno, "d")); });
  plant_inode(kRootIno, [](auto& r) { r.entries -= 1, r.subdirs -= 1, r.nlink -= 1; });
  plant_entry(e, "x", d, schema::FileType::Directory);
  plant_inode(e, [](auto& r) { r.entries += 1, r.subdirs += 1, r.nlink += 1; });
  plant_inode(d, [&](auto& r) { r.parent = e.v, r.name = as_bytes("x"); });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("cycle", d)));
  EXPECT_THAT(kinds(everything(false, 1)), ElementsAre(one("cycle", d)));
  repairs(1);
  EXPECT_FALSE(entry(e, "x"));
}

TEST_F(CheckNames, ADirectoryThatLiesInItself) {
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(d, "e")); });
  plant_inode(d, [](auto& r) { r.entries -= 1, r.subdirs -= 1, r.nlink -= 1; });
  plant_entry(e, "me", e, schema::FileType::Directory);
  plant_inode(e, [&](auto& r) { r.entries += 1, r.subdirs += 1, r.nlink += 1, r.parent = e.v, r.name = as_bytes("me"); });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("cycle", e)));
  repairs(1);
}

TEST_F(CheckNames, CountsOfDirectories) {
  plant_inode(d, [](auto& r) { r.entries = 9; });
  plant_inode(e, [](auto& r) { r.subdirs = 4; });
  plant_inode(kRootIno, [](auto& r) { r.nlink = 1; });
  auto found = everything();
  EXPECT_THAT(kinds(found), UnorderedElementsAre(one("directory-entries", d), one("directory-subdirs", e), one("link-count", kRootIno)));
  for (const Problem& p : found)
    if (p.ino == d.v) EXPECT_EQ(p.expected, 3u);
  repairs(3);
}

TEST_F(CheckNames, OrphanRecords) {
  schema::OrphanRecordT row;
  plant([&](Batch& b) { b.put_record(Family::kOrphan, orphan_key(f), row); });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("orphan-named", f)));
  repairs(1);
  // Without a name and without an orphan record nobody would ever destroy it.
  plant([&](Batch& b) { b.del(Family::kDentry, entry_key(d, "f")); });
  plant_inode(d, [](auto& r) { r.entries -= 1; });
  plant_inode(f, [](auto& r) { r.nlink = 0; });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("orphan-unlisted", f)));
  EXPECT_TRUE(ask(check::kInodes, true).at(0).repaired);
  EXPECT_TRUE(world.eventually([&] { return !has(Family::kInode, inode_key(f)); })) << "it is destroyed now";
  EXPECT_TRUE(world.eventually([&] { return everything().empty(); }));
}

TEST_F(CheckNames, ADeletedFileThatHasAName) {
  schema::OrphanRecordT row;
  plant([&](Batch& b) { b.put_record(Family::kOrphan, orphan_key(g), row); });
  plant_inode(g, [](auto& r) { r.nlink = 0; });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("link-count", g)));
  (void)everything(/*repair=*/true);
  EXPECT_THAT(kinds(everything()), IsEmpty());
  EXPECT_EQ(record(g).nlink, 3u);
}

TEST_F(CheckNames, RowsWithoutAnInode) {
  const Ino none(5000);
  schema::OrphanRecordT orphan;
  schema::LinkRecordT row;
  schema::XattrRecordT xattr;
  plant([&](Batch& b) {
    b.put_record(Family::kOrphan, orphan_key(none), orphan);
    b.put_record(Family::kLink, link_key(none, d, "x"), row);
    b.put_record(Family::kXattr, xattr_key(none, "user.x"), xattr);
    b.put_record(Family::kXattr, xattr_key(none, "user.y"), xattr);
    b.put_record(Family::kXattr, xattr_key(Ino(6000), "user.y"), xattr);
  });
  const auto told = std::vector{one("rows-without-inode", none), one("rows-without-inode", none), one("rows-without-inode", none), one("rows-without-inode", Ino(6000))};
  EXPECT_THAT(kinds(everything()), UnorderedElementsAreArray(told));
  EXPECT_THAT(kinds(everything(false, 1)), UnorderedElementsAreArray(told));
  repairs(4);
}

TEST_F(CheckNames, AttributesThatTheInodeDoesNotKnowOf) {
  plant_inode(f, [](auto& r) { r.flags &= ~kHasXattrs; });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("xattr-unlisted", f)));
  repairs(1);
}

TEST_F(CheckNames, RecordsThatCantBeRead) {
  plant([&](Batch& b) { b.put(Family::kInode, inode_key(f), "rubbish"); });
  auto found = ask(check::kInodes, /*repair=*/true);
  ASSERT_THAT(kinds(found), ElementsAre(one("inode-damaged", f)));
  EXPECT_FALSE(found[0].repaired || found[0].repairable);
  EXPECT_THAT(kinds(ask(check::kEntryRows)), IsEmpty()) << "its name is not the fault";
  for (uint32_t ost : {0, 1}) EXPECT_THAT(kinds(ask(check::kStrays, true, ost)), IsEmpty()) << "its data must stay";
}

TEST_F(CheckNames, DamagedLayouts) {
  plant_inode(g, [](auto& r) { r.layout->components[0]->stripes_used = 9; });
  auto found = ask(check::kInodes, /*repair=*/true);
  ASSERT_THAT(kinds(found), ElementsAre(one("layout-damaged", g)));
  EXPECT_FALSE(found[0].repaired);
}

// ---- names

TEST_F(CheckNames, NamesThatLeadNowhere) {
  plant_entry(d, "ghost", Ino(7777), schema::FileType::Regular);
  auto found = everything();
  EXPECT_THAT(kinds(found), UnorderedElementsAre(one("name-without-inode", Ino(7777)), one("directory-entries", d)));
  EXPECT_EQ(path(found[0]), "/d/ghost");
  repairs(1);  // the count is right as soon as the name is gone
  EXPECT_FALSE(entry(d, "ghost"));
  // The other way round: it was counted, and goes.
  plant_entry(d, "ghost", Ino(7777), schema::FileType::Directory);
  plant_inode(d, [](auto& r) { r.entries += 1, r.subdirs += 1, r.nlink += 1; });
  EXPECT_THAT(kinds(everything()), ElementsAre(one("name-without-inode", Ino(7777))));
  repairs(1);
}

TEST_F(CheckNames, NamesInNoDirectory) {
  plant_entry(Ino(8888), "lost", f, schema::FileType::Regular);
  plant_entry(f, "child", f, schema::FileType::Regular);
  EXPECT_THAT(kinds(everything()), UnorderedElementsAre(one("name-without-directory", f), one("name-without-directory", f)));
  repairs(2);
  EXPECT_TRUE(entry(d, "f"));
}

TEST_F(CheckNames, NamesOfAnotherType) {
  plant_entry(d, "f", f, schema::FileType::Directory);
  auto found = everything();
  EXPECT_THAT(kinds(found), UnorderedElementsAre(one("name-type", f), one("directory-subdirs", d)));
  repairs(1);
  EXPECT_EQ(entry(d, "f")->type, schema::FileType::Regular);
}

TEST_F(CheckNames, NamesThatTheInodeDoesNotKnow) {
  plant_entry(d, "alias", f, schema::FileType::Regular);
  plant_entry(kRootIno, "twin", e, schema::FileType::Directory);
  EXPECT_THAT(kinds(ask(check::kEntryRows)), UnorderedElementsAre(one("name-unlisted", f), one("name-unlisted", e)));
  repairs(2);
  EXPECT_TRUE(entry(d, "alias")) << "a file may have it";
  EXPECT_EQ(record(f).nlink, 2u);
  EXPECT_FALSE(entry(kRootIno, "twin")) << "a directory has one name";
}

TEST_F(CheckNames, NamesThatNobodyFinds) {
  schema::DentryRecordT row = *entry(d, "f");
  plant([&](Batch& b) {
    b.del(Family::kDentry, entry_key(d, "f"));
    b.put_record(Family::kDentry, dentry_key(d, 12345, "f"), row);
  });
  EXPECT_THAT(kinds(ask(check::kEntryRows)), ElementsAre(one("name-hash", f)));
  repairs(1);
  EXPECT_EQ(client.stat(f)->size, 5000u);
  EXPECT_TRUE(entry(d, "f"));
}

TEST_F(CheckNames, DamagedNames) {
  plant([&](Batch& b) {
    b.put(Family::kDentry, entry_key(d, "f"), "rubbish");
    b.put(Family::kDentry, "short", "key");
  });
  EXPECT_THAT(kinds(ask(check::kEntryRows)), ElementsAre(one("name-damaged", Ino()), one("name-damaged", Ino())));
  (void)everything(/*repair=*/true);
  EXPECT_THAT(kinds(everything()), IsEmpty());
  EXPECT_TRUE(entry(Ino(entry(kRootIno, "lost+found")->ino), fmt::format("#{}", f.v))) << "the file itself is not lost";
}

// ---- usage

TEST_F(CheckNames, UsageCounters) {
  plant([](Batch& b) {
    b.charge({kRootFileset, 0, 0, 4096, -1});
    b.charge({kRootFileset, 77, 0, -100, 0});
  });
  auto found = ask(check::kUsage, false, 0, 2);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].kind, "usage-bytes");
  EXPECT_EQ(found[0].found - found[0].expected, 4096u);
  EXPECT_EQ(found[1].kind, "usage-inodes");
  EXPECT_EQ(found[1].expected - found[1].found, 1u);
  EXPECT_THAT(found[2].detail, HasSubstr("uid 77"));
  repairs(3);
}

TEST_F(CheckNames, ARecountIsExactWhileFilesComeAndGo) {
  wire::FsckRequestT q;
  q.phase = check::kUsage;
  q.budget = 1;
  q.repair = true;
  auto first = admin.call<rpc::Method::kFsck>(q);
  ASSERT_TRUE(first);
  EXPECT_FALSE(first->end);
  // A second one has to wait, one that was forgotten begins anew.
  auto other = admin.call<rpc::Method::kFsck>(q);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::kBusy);
  q.cursor = first->cursor;
  for (int i = 0; i < 30; ++i) {
    file(fmt::format("n{}", i), kRootIno, 4096 * static_cast<uint64_t>(i));
    if (i % 3 == 0) ASSERT_TRUE(client.unlink(fmt::format("n{}", i)));
    auto page = admin.call<rpc::Method::kFsck>(q);
    ASSERT_TRUE(page) << page.error().message();
    EXPECT_TRUE(page->problems.empty());
    if (page->end) break;
    q.cursor = page->cursor;
  }
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

}  // namespace
}  // namespace nacre::mds::testing
