// SPDX-License-Identifier: Apache-2.0
// Sizes, truncation, layouts and the life of objects. Storage targets are stand-ins: the tests say what clients have written.
#include <linux/falloc.h>

#include "common/base/units.h"
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    world.start_server();
    for (uint32_t i = 0; i < 2; ++i) osts.push_back(std::make_unique<StandInOst>(world, i, [this] { return world.mds(); }));
    ASSERT_TRUE(a.mount());
    ASSERT_TRUE(b.mount());
  }
  /// A new file, opened by `a` as handle 1.
  Ino make(std::string_view name = "f") {
    auto made = a.create(name, 1);
    EXPECT_TRUE(made) << made.error().message();
    layout = *made->layout;
    return Ino(made->attr->ino);
  }
  StandInOst& ost_of(const schema::LayoutT& l, uint16_t component, uint16_t stripe) { return *osts[l.components[component]->osts[stripe]]; }
  size_t stats() { return osts[0]->stats() + osts[1]->stats(); }
  static ObjectId object(Ino ino, uint16_t component = 0, uint16_t stripe = 0, uint32_t generation = 1) { return {ino, Generation(generation), component, stripe}; }

  World world;
  std::vector<std::unique_ptr<StandInOst>> osts;
  TestClient a{world}, b{world};
  schema::LayoutT layout;
};

TEST_F(FileTest, SizeIsGlimpsedWhileOpenAndSettledAtClose) {
  const Ino ino = make();
  EXPECT_EQ(layout.components[0]->osts.size(), 1u);
  EXPECT_FALSE(layout.components[1]->instantiated);
  StandInOst& ost = ost_of(layout, 0, 0);
  EXPECT_EQ(b.stat(ino)->size, 0u);
  ost.write(object(ino), 5000);
  auto seen = b.stat(ino);
  EXPECT_EQ(seen->size, 5000u);
  EXPECT_EQ(seen->allocated, 8192u);
  EXPECT_EQ(b.lookup("f")->size, 5000u);
  const auto report = ost.report(object(ino));
  EXPECT_EQ(seen->mtime, report.changed());
  const size_t before = stats();
  auto closed = a.close(ino, 1, {report});
  ASSERT_TRUE(closed) << closed.error().message();
  EXPECT_EQ(closed->attr->size, 5000u);
  auto after = b.stat(ino);
  EXPECT_EQ(after->size, 5000u);
  EXPECT_EQ(after->mtime, seen->mtime) << "closing moves no time";
  EXPECT_EQ(stats(), before) << "the closer knew everything, and afterwards the record is the truth";
}

TEST_F(FileTest, ACloseThatAsksTheObjectsDoesNotUndoATruncationOfThatMoment) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 7000);
  ost.hold_stats(true);
  const size_t before = stats();
  wire::CloseRequestT q;
  q.ino = ino.v;
  q.handle = 1;
  q.unsure = true;
  auto closing = std::async(std::launch::async, [&] { return a.call<rpc::Method::kClose>(q, 3, 1); });
  ASSERT_TRUE(world.eventually([&] { return stats() > before; }));
  auto emptied = a.truncate(ino, 0);
  ASSERT_TRUE(emptied) << emptied.error().message();
  ost.hold_stats(false);
  auto closed = closing.get();
  ASSERT_TRUE(closed) << closed.error().message();
  auto seen = b.stat(ino);
  EXPECT_EQ(seen->size, 0u);
  EXPECT_EQ(seen->allocated, 0u);
}

TEST_F(FileTest, TheLastOfSeveralWritersSettles) {
  const Ino ino = make();
  ASSERT_TRUE(b.open(ino, 1, O_WRONLY));
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 1000);
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  ost.write(object(ino), 3000);
  EXPECT_EQ(a.stat(ino)->size, 3000u);
  ASSERT_TRUE(b.close(ino, 1, {ost.report(object(ino))}));
  EXPECT_EQ(a.stat(ino)->size, 3000u);
  EXPECT_FALSE(world.core().opens.is_open(ino));
}

TEST_F(FileTest, AnUnsureCloserHasTheObjectsAsked) {
  const Ino ino = make();
  ost_of(layout, 0, 0).write(object(ino), 4321);
  ASSERT_TRUE(a.close(ino, 1, {}, /*unsure=*/true));
  EXPECT_EQ(b.stat(ino)->size, 4321u);
}

TEST_F(FileTest, TheOnlyWriterThatHasWrittenNothingNeedsNoGlimpse) {
  const Ino ino = make();
  wire::GetattrRequestT quiet;
  quiet.ino = ino.v;
  quiet.unwritten = true;
  auto asked = [&](TestClient& who) {
    const size_t before = stats();
    auto reply = who.call<rpc::Method::kGetattr>(quiet);
    EXPECT_TRUE(reply);
    return std::pair(stats() - before, reply->attr->size);
  };
  EXPECT_EQ(asked(a), (std::pair<size_t, uint64_t>(0, 0)));
  EXPECT_EQ(asked(b).first, 1u) << "it has no handle for writing";
  ASSERT_TRUE(b.open(ino, 1, O_WRONLY));
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 700);
  EXPECT_EQ(asked(a), (std::pair<size_t, uint64_t>(1, 700))) << "another may write";
  ASSERT_TRUE(b.close(ino, 1, {ost.report(object(ino))}));
  EXPECT_EQ(asked(a), (std::pair<size_t, uint64_t>(1, 700))) << "another has written, and nobody has settled it";
}

TEST_F(FileTest, CloseIsExactlyOnce) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 100);
  wire::CloseRequestT q;
  q.ino = ino.v;
  q.handle = 1;
  q.objects = {ost.report(object(ino))};
  ASSERT_TRUE(a.call<rpc::Method::kClose>(q, 5, 1));
  ASSERT_TRUE(a.open(ino, 2, O_WRONLY));
  ASSERT_TRUE(a.call<rpc::Method::kClose>(q, 5, 1));
  EXPECT_TRUE(world.core().opens.open_for_write(ino)) << "the repeat closed nothing";
}

TEST_F(FileTest, SettlingWaitsForATargetThatIsDown) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 999);
  ost.down();
  World::Hurry hurry(world);
  ASSERT_TRUE(a.close(ino, 1, {}, /*unsure=*/true)) << "a close never waits for a target for long";
  EXPECT_EQ(b.stat(ino).error().code, Errc::kOstDown);
  ost.up();
  EXPECT_TRUE(world.eventually([&] { return !world.core().opens.is_open(ino); }));
  EXPECT_EQ(b.stat(ino)->size, 999u);
}

TEST_F(FileTest, ExplicitTimesHoldUntilTheNextWrite) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 10);
  wire::SetattrRequestT q;
  q.ino = ino.v;
  q.valid = wire::kSetMtime;
  q.mtime = 1'000'000'000;
  ASSERT_TRUE(a.once<rpc::Method::kSetattr>(q));
  EXPECT_EQ(b.stat(ino)->mtime, 1'000'000'000);
  ost.write(object(ino), 20);
  EXPECT_GT(b.stat(ino)->mtime, 1'000'000'000);
  ASSERT_TRUE(a.once<rpc::Method::kSetattr>(q));
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  EXPECT_EQ(b.stat(ino)->mtime, 1'000'000'000) << "kept over close";
}

TEST_F(FileTest, TruncatingToZeroAloneIsMetadataOnly) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 5000);
  auto cut = a.truncate(ino, 0, 1);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->attr->size, 0u);
  EXPECT_EQ(cut->layout->generation, 2u);
  EXPECT_TRUE(cut->layout->components[0]->instantiated) << "who has emptied it is about to write it";
  ASSERT_TRUE(cut->cap);
  EXPECT_EQ(cut->cap->generation, 2u);
  EXPECT_TRUE(world.eventually([&] { return !ost.exists(object(ino)); })) << "the old object is destroyed";
  EXPECT_EQ(b.stat(ino)->size, 0u);
  StandInOst& next = ost_of(*cut->layout, 0, 0);
  next.write(object(ino, 0, 0, 2), 70);
  EXPECT_EQ(b.stat(ino)->size, 70u);
  ASSERT_TRUE(a.close(ino, 1, {next.report(object(ino, 0, 0, 2))}));
  EXPECT_EQ(b.stat(ino)->size, 70u);
}

TEST_F(FileTest, TruncatingToZeroUnderOthersCutsTheObjects) {
  const Ino ino = make();
  ASSERT_TRUE(b.open(ino, 1, O_RDONLY));
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 5000);
  auto cut = a.truncate(ino, 0, 1);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->attr->size, 0u);
  EXPECT_EQ(cut->layout->generation, 1u) << "b goes on reading the same objects";
  EXPECT_EQ(ost.kinds(), (std::vector<uint8_t>{wire::kCmdTruncate}));
  EXPECT_EQ(ost.size(object(ino)), 0u);
  EXPECT_EQ(b.stat(ino)->size, 0u);
}

TEST_F(FileTest, PartialTruncateGoesThroughAnIntent) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 5000);
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  auto cut = b.truncate(ino, 1234);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->attr->size, 1234u);
  EXPECT_EQ(ost.size(object(ino)), 1234u);
  auto seen = a.stat(ino);
  EXPECT_EQ(seen->size, 1234u);
  EXPECT_EQ(seen->allocated, 4096u);
  ASSERT_TRUE(b.truncate(ino, 1 << 20)) << "growing needs no object";
  EXPECT_EQ(a.stat(ino)->size, 1u << 20);
  EXPECT_EQ(ost.kinds().size(), 1u);
}

TEST_F(FileTest, AnIntentOutlivesAKillAndATargetThatIsDown) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 5000);
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  ost.down();
  World::Hurry hurry(world);
  wire::SetattrRequestT q;
  q.ino = ino.v;
  q.valid = wire::kSetSize;
  q.size = 100;
  auto refused = a.call<rpc::Method::kSetattr>(q, 9, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOstDown) << refused.error().message();
  EXPECT_EQ(b.stat(ino).error().code, Errc::kOstDown) << "half cut is no state to be seen";
  world.kill_and_restart();
  ost.up();
  EXPECT_TRUE(world.eventually([&] { return ost.size(object(ino)) == 100; })) << "completed without being asked";
  ASSERT_TRUE(b.mount());
  wire::ReclaimRequestT done;
  done.done = true;
  ASSERT_TRUE(b.call<rpc::Method::kReclaim>(done));
  EXPECT_TRUE(world.eventually([&] { auto s = b.stat(ino); return s && s->size == 100; }));
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(a.call<rpc::Method::kReclaim>(done));
  auto again = a.call<rpc::Method::kSetattr>(q, 9, 1);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->attr->size, 100u);
}

TEST_F(FileTest, OpenTruncates) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 5000);
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  auto opened = b.open(ino, 1, O_WRONLY | O_TRUNC);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->attr->size, 0u);
  EXPECT_EQ(opened->layout->generation, 2u);
  EXPECT_EQ(a.stat(ino)->size, 0u);
  ASSERT_TRUE(a.open(ino, 2, O_RDONLY));
  StandInOst& next = ost_of(*opened->layout, 0, 0);
  next.write(object(ino, 0, 0, 2), 60);
  opened = b.open(ino, 2, O_WRONLY | O_TRUNC);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ(opened->attr->size, 0u);
  EXPECT_EQ(opened->layout->generation, 2u) << "a has it open";
  EXPECT_EQ(next.size(object(ino, 0, 0, 2)), 0u);
}

TEST_F(FileTest, PermissionsAreCheckedAtOpen) {
  const Ino ino = make();  // root's, 0644
  TestClient user(world, 20001);
  ASSERT_TRUE(user.mount());
  EXPECT_EQ(user.open(ino, 1, O_WRONLY).error().code, Errc::kAccess);
  EXPECT_EQ(user.open(ino, 1, O_RDONLY | O_TRUNC).error().code, Errc::kAccess);
  auto opened = user.open(ino, 1, O_RDONLY);
  ASSERT_TRUE(opened);
  ASSERT_TRUE(opened->cap);
  EXPECT_EQ(opened->cap->mode, wire::kCapRead);
  wire::LayoutRequestT q;
  q.ino = ino.v;
  q.handle = 1;
  q.write = true;
  EXPECT_EQ(user.call<rpc::Method::kLayoutGrant>(q).error().code, Errc::kBadF);
  q.handle = 77;
  EXPECT_EQ(user.call<rpc::Method::kLayoutGrant>(q).error().code, Errc::kStale);
  EXPECT_EQ(user.open(kRootIno, 2, O_WRONLY).error().code, Errc::kIsDir);
}

TEST_F(FileTest, CreateOfWhatIsThereOpensIt) {
  const Ino ino = make();
  auto again = b.create("f", 9, O_RDWR);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_FALSE(again->created);
  EXPECT_EQ(again->attr->ino, ino.v);
  ASSERT_TRUE(again->cap);
  EXPECT_EQ(b.create("f", 10, O_RDWR | O_EXCL).error().code, Errc::kExist);
  wire::MknodRequestT q;
  q.parent = kRootIno.v;
  q.name = as_bytes("s");
  q.mode = 0120777;
  q.symlink = as_bytes("f");
  ASSERT_TRUE(a.once<rpc::Method::kMknod>(q));
  EXPECT_EQ(b.create("s", 11).error().code, Errc::kStale) << "so the kernel looks again";
}

TEST_F(FileTest, GrantsInstantiateWhatIsWritten) {
  const Ino ino = make();
  wire::LayoutRequestT q;
  q.ino = ino.v;
  q.handle = 1;
  q.write = true;
  q.offset = 4 * MiB;
  q.length = 1;
  auto grant = a.call<rpc::Method::kLayoutGrant>(q);
  ASSERT_TRUE(grant) << grant.error().message();
  EXPECT_TRUE(grant->layout->components[1]->instantiated);
  EXPECT_EQ(grant->layout->components[1]->osts.size(), 2u) << "there are only two";
  EXPECT_EQ(grant->cap->components, 3u);
  q.write = false;
  auto read = b.call<rpc::Method::kLayoutGrant>(q);
  EXPECT_EQ(read.error().code, Errc::kStale) << "b has not opened it";
  // Data in the wide component's second stripe: found by a glimpse of all.
  ost_of(*grant->layout, 1, 1).write(object(ino, 1, 1), 100);
  EXPECT_EQ(b.stat(ino)->size, 4 * MiB + 1 * MiB + 100);
  ASSERT_TRUE(a.close(ino, 1, {ost_of(*grant->layout, 1, 1).report(object(ino, 1, 1))}));
  EXPECT_EQ(b.stat(ino)->size, 5 * MiB + 100);
  ASSERT_TRUE(b.unlink("f"));
  EXPECT_TRUE(world.eventually([&] { return !ost_of(*grant->layout, 1, 1).exists(object(ino, 1, 1)); }));
}

TEST_F(FileTest, LayoutsCanBeAskedFor) {
  wire::LayoutSetRequestT q;
  q.ino = kRootIno.v;
  q.layout = std::make_unique<schema::LayoutT>();
  auto c = std::make_unique<schema::ComponentT>();
  c->stripe_size = 64 * KiB;
  c->stripe_count = 0;
  c->first_ost = 1;
  q.layout->components.push_back(std::move(c));
  ASSERT_TRUE(a.once<rpc::Method::kLayoutSet>(q));
  const Ino ino = make();
  ASSERT_EQ(layout.components.size(), 1u);
  EXPECT_EQ(layout.components[0]->osts, (std::vector<uint32_t>{1, 0}));
  wire::LayoutGetRequestT get;
  get.ino = kRootIno.v;
  auto got = b.call<rpc::Method::kLayoutGet>(get);
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->inherited);
  EXPECT_EQ(got->layout->components[0]->stripe_size, 64 * KiB);
  EXPECT_EQ(got->map->osts.size(), 2u);

  q.layout->components[0]->stripe_size = 65 * KiB;
  EXPECT_EQ(a.once<rpc::Method::kLayoutSet>(q).error().code, Errc::kInval);
  q.layout->components[0]->stripe_size = 64 * KiB;
  q.layout->components[0]->first_ost = 7;
  EXPECT_EQ(a.once<rpc::Method::kLayoutSet>(q).error().code, Errc::kInval);
  q.layout->components[0]->first_ost = -1;
  q.layout->components[0]->pool = "gold";
  EXPECT_EQ(a.once<rpc::Method::kLayoutSet>(q).error().code, Errc::kInval);
  TestClient user(world, 20001);
  ASSERT_TRUE(user.mount());
  q.layout->components[0]->pool.clear();
  EXPECT_EQ(user.once<rpc::Method::kLayoutSet>(q).error().code, Errc::kPerm);

  q.ino = ino.v;
  q.layout->components[0]->stripe_count = 1;
  ASSERT_TRUE(a.once<rpc::Method::kLayoutSet>(q)) << "an empty file";
  ost_of(layout, 0, 0).write(object(ino), 1);
  auto now = a.open(ino, 2, O_WRONLY);
  ASSERT_TRUE(now);
  EXPECT_EQ(now->layout->generation, 2u);
  ost_of(*now->layout, 0, 0).write(object(ino, 0, 0, 2), 1);
  EXPECT_EQ(a.once<rpc::Method::kLayoutSet>(q).error().code, Errc::kExist) << "it has data";

  q.ino = kRootIno.v;
  q.layout->components.clear();
  ASSERT_TRUE(a.once<rpc::Method::kLayoutSet>(q));
  EXPECT_TRUE(b.call<rpc::Method::kLayoutGet>(get)->inherited);
}

TEST_F(FileTest, UnlinkedFilesLiveUntilTheirLastClose) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 50);
  ASSERT_TRUE(b.unlink("f"));
  EXPECT_EQ(b.lookup("f").error().code, Errc::kNoEnt);
  auto seen = a.stat(ino);
  ASSERT_TRUE(seen) << seen.error().message();
  EXPECT_EQ(seen->nlink, 0u);
  EXPECT_EQ(seen->size, 50u);
  EXPECT_TRUE(ost.exists(object(ino)));
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  EXPECT_TRUE(world.eventually([&] { return !ost.exists(object(ino)); }));
  EXPECT_EQ(a.stat(ino).error().code, Errc::kStale);
  EXPECT_TRUE(world.eventually([&] { return world.core().owed->count() == 0 && world.core().orphans->size() == 0; }));
}

TEST_F(FileTest, AReplacedFileCanStillBeOpenedForAMoment) {
  const Ino old = make("target");
  ASSERT_TRUE(a.close(old, 1));
  const Ino fresh = make("source");
  ASSERT_TRUE(a.close(fresh, 1));
  auto found = b.lookup("target");
  ASSERT_TRUE(found);
  wire::RenameRequestT q;
  q.parent = q.new_parent = kRootIno.v;
  q.name = as_bytes("source");
  q.new_name = as_bytes("target");
  ASSERT_TRUE(a.once<rpc::Method::kRename>(q));
  EXPECT_EQ(b.lookup("target")->ino, fresh.v);
  EXPECT_TRUE(b.open(Ino(found->ino), 1, O_RDONLY)) << "b had just looked it up";
}

TEST_F(FileTest, DestructionsAreOwedWhileATargetIsDown) {
  const Ino ino = make();
  StandInOst& ost = ost_of(layout, 0, 0);
  ost.write(object(ino), 50);
  ASSERT_TRUE(a.close(ino, 1, {ost.report(object(ino))}));
  ost.down();
  ASSERT_TRUE(b.unlink("f")) << "unlink needs no target";
  EXPECT_TRUE(world.eventually([&] { return world.core().owed->count() == 1; }));
  world.kill_and_restart();
  EXPECT_TRUE(world.eventually([&] { return world.core().owed->count() == 1; })) << "owed over restarts";
  ost.up();
  EXPECT_TRUE(world.eventually([&] { return !ost.exists(object(ino)); }));
  EXPECT_TRUE(world.eventually([&] { return world.core().owed->count() == 0; }));
}

TEST_F(FileTest, Fallocate) {
  const Ino ino = make();
  wire::FallocateRequestT q;
  q.ino = ino.v;
  q.handle = 1;
  q.offset = 0;
  q.length = 6 * MiB;
  auto done = a.once<rpc::Method::kFallocate>(q);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->attr->size, 6 * MiB);
  EXPECT_TRUE(done->layout->components[1]->instantiated);
  EXPECT_EQ(b.stat(ino)->size, 6 * MiB);
  q.mode = FALLOC_FL_KEEP_SIZE;
  q.offset = 20 * MiB;
  ASSERT_TRUE(a.once<rpc::Method::kFallocate>(q));
  EXPECT_EQ(b.stat(ino)->size, 6 * MiB);
  q.mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
  q.offset = 1000;
  q.length = 5000;
  ASSERT_TRUE(a.once<rpc::Method::kFallocate>(q));
  EXPECT_EQ(ost_of(*done->layout, 0, 0).kinds().back(), wire::kCmdPunch);
  q.mode = FALLOC_FL_ZERO_RANGE;
  q.offset = 6 * MiB;
  q.length = 100;
  ASSERT_TRUE(a.once<rpc::Method::kFallocate>(q));
  EXPECT_EQ(b.stat(ino)->size, 6 * MiB + 100);
  q.mode = 0x08;  // collapse range
  EXPECT_EQ(a.once<rpc::Method::kFallocate>(q).error().code, Errc::kOpNotSupp);
  q.mode = FALLOC_FL_PUNCH_HOLE;
  EXPECT_EQ(a.once<rpc::Method::kFallocate>(q).error().code, Errc::kOpNotSupp);
  q.mode = 0;
  q.length = 0;
  EXPECT_EQ(a.once<rpc::Method::kFallocate>(q).error().code, Errc::kInval);
  q.length = 1;
  q.offset = kMaxFileSize;
  EXPECT_EQ(a.once<rpc::Method::kFallocate>(q).error().code, Errc::kFBig);
  for (auto& o : osts) o->refuse_space(true);
  q.offset = 0;
  EXPECT_EQ(a.once<rpc::Method::kFallocate>(q).error().code, Errc::kNoSpc);
  ASSERT_TRUE(a.close(ino, 1, {}, true));
  EXPECT_EQ(b.stat(ino)->size, 6 * MiB + 100);
}

TEST_F(FileTest, NewFilesAvoidTargetsThatAreDownOrInactive) {
  TestClient tool(world);
  ASSERT_TRUE(tool.connect(wire::kRoleAdmin));
  const uint64_t version = tool.call<rpc::Method::kMapGet>({})->version;
  osts[0]->down();
  EXPECT_TRUE(world.eventually([&] { return !tool.call<rpc::Method::kMapGet>({})->osts[0]->up; }));
  EXPECT_GT(tool.call<rpc::Method::kMapGet>({})->version, version);
  for (int i = 0; i < 4; ++i) {
    auto made = a.create(fmt::format("d{}", i), 100 + i);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->layout->components[0]->osts, (std::vector<uint32_t>{1}));
  }
  osts[0]->up();
  EXPECT_TRUE(world.eventually([&] { return tool.call<rpc::Method::kMapGet>({})->osts[0]->up; }));
  wire::OstSetStateRequestT q;
  q.ost = 1;
  q.state = wire::kOstInactive;
  ASSERT_TRUE(tool.call<rpc::Method::kOstSetState>(q));
  for (int i = 0; i < 4; ++i) {
    auto made = a.create(fmt::format("i{}", i), 200 + i);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->layout->components[0]->osts, (std::vector<uint32_t>{0}));
  }
  q.ost = 9;
  EXPECT_EQ(tool.call<rpc::Method::kOstSetState>(q).error().code, Errc::kNoEnt);
  auto statfs = a.call<rpc::Method::kStatfs>({});
  ASSERT_TRUE(statfs);
  EXPECT_EQ(statfs->blocks, (100u << 20) / 4096) << "only the active one counts";
  EXPECT_GT(statfs->files, 8u);
}

TEST_F(FileTest, AppendsTakeTurnsAndTellEachOther) {
  const Ino ino = make();
  ASSERT_TRUE(a.open(ino, 2, O_WRONLY | O_APPEND));
  ASSERT_TRUE(b.open(ino, 2, O_WRONLY | O_APPEND));
  StandInOst& ost = ost_of(layout, 0, 0);
  wire::AppendBeginRequestT q;
  q.ino = ino.v;
  q.handle = 2;
  q.length = 100;
  auto first = a.call<rpc::Method::kAppendBegin>(q);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->size, 0u);
  EXPECT_EQ(a.call<rpc::Method::kAppendBegin>(q)->token, first->token) << "a repeat after a lost answer";
  std::atomic<bool> done{false};
  auto second = std::async(std::launch::async, [&] {
    auto r = b.call<rpc::Method::kAppendBegin>(q);
    done = true;
    return r;
  });
  ost.write(object(ino), 100);
  EXPECT_FALSE(done) << "b waits for a";
  wire::AppendEndRequestT end;
  end.ino = ino.v;
  end.token = first->token;
  end.size = 100;
  ASSERT_TRUE(a.call<rpc::Method::kAppendEnd>(end));
  EXPECT_EQ(b.next_size(), 100u) << "b's kernel must know before a's write returns";
  auto got = second.get();
  ASSERT_TRUE(got) << got.error().message();
  EXPECT_EQ(got->size, 100u);
  ASSERT_TRUE(b.close(ino, 2, {}, true)) << "closing gives the token back";
  auto third = a.call<rpc::Method::kAppendBegin>(q);
  ASSERT_TRUE(third);
  EXPECT_NE(third->token, got->token);
  q.handle = 55;
  EXPECT_EQ(a.call<rpc::Method::kAppendBegin>(q).error().code, Errc::kStale);
}

}  // namespace
}  // namespace nacre::mds::testing
