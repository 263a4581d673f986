// SPDX-License-Identifier: Apache-2.0
// The check's part that asks storage targets: sizes, missing and stray objects, damaged blocks by file.
#include "tests/unit/metadata/check/check_world.h"

namespace nacre::mds::testing {
namespace {

class CheckObjects : public CheckTest {
 protected:
  void SetUp() override {
    CheckTest::SetUp();
    f = file("f", kRootIno, 10'000);
    ost = target_of(f);
    ASSERT_THAT(kinds(everything()), IsEmpty());
  }
  Ino f;
  uint32_t ost = 0;
};

TEST_F(CheckObjects, CountersFollowTheObjects) {
  plant_inode(f, [](auto& r) { r.allocated = 4096, r.size = 5000; });
  auto found = everything();
  ASSERT_THAT(kinds(found), UnorderedElementsAre(one("allocated", f), one("size", f)));
  EXPECT_EQ(found[0].expected, 12'288u);
  EXPECT_EQ(found[0].found, 4096u);
  EXPECT_EQ(path(found[0]), "/f");
  repairs(2);
  EXPECT_EQ(record(f).allocated, 12'288u);
  EXPECT_EQ(record(f).size, 10'000u);
}

TEST_F(CheckObjects, ManyProblemsAreToldInSeveralPagesOnceEach) {
  const std::string deep(200, 'd');
  Ino dir = kRootIno;
  for (int i = 0; i < 10; ++i) dir = mkdir(deep, dir);
  std::vector<std::string> want;
  for (int i = 0; i < 300; ++i) {
    const Ino ino = file(fmt::format("f{}", i), dir, 4096);
    plant_inode(ino, [&](auto& r) {
      r.allocated = 0;
      if (i % 3 == 0) r.nlink = 2;
    });
    want.push_back(one("allocated", ino));
    if (i % 3 == 0) want.push_back(one("link-count", ino));
  }
  EXPECT_THAT(kinds(ask(check::kInodes, false, 0, 10'000)), ::testing::UnorderedElementsAreArray(want));
  const auto repaired = ask(check::kInodes, true, 0, 10'000);
  EXPECT_THAT(kinds(repaired), ::testing::UnorderedElementsAreArray(want));
  for (const Problem& p : repaired) EXPECT_TRUE(p.repaired);
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

TEST_F(CheckObjects, AFileThatIsWrittenIsLeftAlone) {
  ASSERT_TRUE(client.open(f, 50, O_RDWR));
  osts[ost]->write(object_of(f), 50'000);
  EXPECT_THAT(kinds(everything()), IsEmpty());
  ASSERT_TRUE(client.close(f, 50, {osts[ost]->report(object_of(f))}));
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

TEST_F(CheckObjects, LostDataIsToldWithItsPlaceAndStaysTold) {
  osts[ost]->forget(object_of(f));
  auto found = everything();
  ASSERT_THAT(kinds(found), ElementsAre(one("data-lost", f)));
  EXPECT_EQ(found[0].expected, 12'288u);
  EXPECT_EQ(found[0].found, 0u);
  EXPECT_EQ(found[0].ost, static_cast<int32_t>(ost));
  EXPECT_EQ(to_id(*found[0].object), object_of(f));
  EXPECT_EQ(found[0].offset, 0u);
  EXPECT_THAT(found[0].detail, HasSubstr(fmt::format("ost{}", ost)));
  auto mended = everything(/*repair=*/true);
  ASSERT_THAT(kinds(mended), ElementsAre(one("data-lost", f)));
  EXPECT_FALSE(mended[0].repaired) << "the data does not come back";
  EXPECT_EQ(record(f).allocated, 0u);
  EXPECT_EQ(record(f).size, 10'000u);
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

TEST_F(CheckObjects, WhatATargetLostAMomentAgoMayComeAgain) {
  osts[ost]->down();
  osts[ost]->forget(object_of(f));
  osts[ost]->up();  // uncleanly: clients send again what was not stable
  EXPECT_THAT(kinds(ask(check::kInodes)), IsEmpty());
}

TEST_F(CheckObjects, ATargetThatIsAwayHidesNoOtherFile) {
  Ino other;
  for (int i = 0; i < 20 && (!other || target_of(other) == ost); ++i) other = file(fmt::format("g{}", i), kRootIno, 4096);
  ASSERT_NE(target_of(other), ost);
  plant_inode(f, [](auto& r) { r.allocated = 0; });
  plant_inode(other, [](auto& r) { r.allocated = 0; });
  osts[ost]->down();
  EXPECT_TRUE(world.eventually([&] { return !world.core().registry->endpoint(OstId(ost))->up; }));
  EXPECT_THAT(kinds(ask(check::kInodes)), ElementsAre(one("allocated", other)));
  wire::FsckRequestT q;
  q.phase = check::kStrays;
  q.ost = ost;
  q.budget = 10;
  World::Hurry hurry(world);
  EXPECT_EQ(admin.call<rpc::Method::kFsck>(q).error().code, Errc::kOstDown);
  q.ost = 99;
  EXPECT_EQ(admin.call<rpc::Method::kFsck>(q).error().code, Errc::kNoEnt);
}

TEST_F(CheckObjects, FilesOnATargetThatWasGivenUpAreTold) {
  file("empty");
  wire::OstSetStateRequestT state;
  state.ost = ost;
  state.state = wire::kOstInactive;
  ASSERT_TRUE(admin.call<rpc::Method::kOstSetState>(state));
  auto found = ask(check::kInodes, /*repair=*/true);
  ASSERT_THAT(kinds(found), ElementsAre(one("data-unreachable", f)));
  EXPECT_EQ(path(found[0]), "/f");
  EXPECT_EQ(found[0].ost, static_cast<int32_t>(ost));
  EXPECT_FALSE(found[0].repaired);
  EXPECT_EQ(record(f).allocated, 12'288u);
  state.state = wire::kOstActive;
  ASSERT_TRUE(admin.call<rpc::Method::kOstSetState>(state));
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

TEST_F(CheckObjects, ObjectsWithoutAFileAreToldAndDestroyed) {
  const uint32_t other = 1 - ost;
  const ObjectId nobody = object_of(Ino(f.v + 1000)), old = object_of(f, 7), unused = object_of(f, 1, 1, 0);
  const ObjectId elsewhere = object_of(f), future = object_of(Ino(uint64_t{1} << 39));
  world.core().inos->skip_past(f.v + 5000);
  osts[ost]->write(nobody, 8192);
  osts[ost]->write(old, 4096);
  osts[ost]->write(unused, 4096);
  osts[ost]->write(future, 4096);
  osts[other]->write(elsewhere, 4096);
  world.pass(kSecond);  // younger ones are left for the next run
  auto found = everything();
  EXPECT_THAT(kinds(found), UnorderedElementsAre(one("object-without-file", nobody.ino), one("object-without-file", f), one("object-without-file", f), one("object-without-file", f)));
  for (uint64_t budget : {1, 2}) EXPECT_EQ(everything(false, budget).size(), 4u);
  for (const Problem& p : everything(/*repair=*/true)) EXPECT_TRUE(p.repaired);
  for (const ObjectId& o : {nobody, old, unused}) EXPECT_TRUE(world.eventually([&] { return !osts[ost]->exists(o); }));
  EXPECT_TRUE(world.eventually([&] { return !osts[other]->exists(elsewhere); }));
  EXPECT_TRUE(osts[ost]->exists(object_of(f))) << "the file's own object stays";
  EXPECT_TRUE(osts[ost]->exists(future)) << "a number that was never given out here";
  EXPECT_GE(record(f).shadow_generation, 7u) << "the file must not come to use a generation that was destroyed";
  EXPECT_THAT(kinds(everything()), IsEmpty());
}

TEST_F(CheckObjects, WhatIsOwedOrBeingMovedIsNoStray) {
  const ObjectId gone = object_of(Ino(f.v + 100)), shadow = object_of(f, 2);
  world.core().inos->skip_past(f.v + 5000);
  schema::OwedRecordT owed;
  owed.kind = wire::kCmdDestroy;
  owed.ino = gone.ino.v;
  owed.generation = 1;
  owed.stripes = 1;
  schema::MigrationRecordT moving;
  osts[ost]->write(gone, 4096);
  osts[ost]->write(shadow, 4096);
  osts[ost]->down();
  plant([&](Batch& b) {
    b.put_record(Family::kOwed, owed_key(OstId(ost), CmdSeq(1u << 30)), owed);
    b.put_record(Family::kMeta, migration_key(f), moving);
  });
  osts[ost]->refuse_commands(true);
  osts[ost]->up();
  world.pass(kSecond);
  EXPECT_TRUE(world.eventually([&] { return world.core().registry->endpoint(OstId(ost))->up; }));
  EXPECT_THAT(kinds(ask(check::kStrays, false, ost)), IsEmpty());
  EXPECT_THAT(kinds(ask(check::kStrays, true, ost)), IsEmpty());
  EXPECT_TRUE(osts[ost]->exists(gone) && osts[ost]->exists(shadow));
}

TEST_F(CheckObjects, DamagedBlocksAreToldByFileAndOffset) {
  const Ino wide = file("wide", mkdir("d"), 4096);
  plant_inode(wide, [](auto& r) {
    auto& c = *r.layout->components[0];
    c.osts = {0, 1};
    c.stripe_count = 2;
    c.stripes_used = 2;
    c.stripe_size = 1 << 20;
  });
  osts[1]->write(object_of(wide, 1, 0, 1), 4096);
  osts[1]->write(object_of(Ino(99'999)), 4096);
  osts[1]->damage({wire::ScrubBad(to_ref(object_of(Ino(88'888))), 0, 4096),  // gone since
                   wire::ScrubBad(to_ref(object_of(wide, 1, 0, 1)), (1 << 20) + 8192, 4096), wire::ScrubBad(to_ref(object_of(Ino(99'999))), 0, 4096)});
  auto found = ask(check::kChecksums, true, 1);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, "checksum");
  EXPECT_EQ(path(found[0]), "/d/wide");
  EXPECT_EQ(found[0].ost, 1);
  EXPECT_EQ(found[0].offset, uint64_t{3 << 20} + 8192) << "the second row of the second stripe";
  EXPECT_EQ(found[0].length, 4096u);
  EXPECT_FALSE(found[0].repaired || found[0].repairable);
  EXPECT_EQ(path(found[1]), "");
  EXPECT_THAT(found[1].detail, HasSubstr("no file"));
}

TEST_F(CheckObjects, AnObjectWhoseRecordIsDamaged) {
  osts[ost]->break_record(object_of(f));
  auto found = ask(check::kStrays, true, ost);
  ASSERT_THAT(kinds(found), ElementsAre(one("object-damaged", f)));
  EXPECT_EQ(path(found[0]), "/f");
  EXPECT_FALSE(found[0].repaired);
}

}  // namespace
}  // namespace nacre::mds::testing
