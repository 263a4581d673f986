// SPDX-License-Identifier: Apache-2.0
// The server's part of moving data: the test is the mover, stand-ins are the storage targets.
#include <future>

#include "common/base/units.h"
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

enum Step : uint8_t { kBegin = 1, kSeal = 2, kCommit = 3, kGiveUp = 4 };

class MigrateTest : public ::testing::Test {
 protected:
  void SetUp() override { start(); }
  void start() {
    world.start_server();
    for (uint32_t i = 0; i < 2; ++i) osts.push_back(std::make_unique<StandInOst>(world, i, [this] { return world.mds(); }));
    ASSERT_TRUE(mover.mount());
    ASSERT_TRUE(b.mount());
  }
  /// A file of 5,000 bytes on one target; `from` is its number.
  Ino make(std::string_view name = "f", bool open = false) {
    auto made = b.create(name, 1);
    EXPECT_TRUE(made) << made.error().message();
    const Ino ino(made->attr->ino);
    from = made->layout->components[0]->osts[0];
    osts[from]->write(object(ino), 5000);
    if (!open) {
      EXPECT_TRUE(b.close(ino, 1, {osts[from]->report(object(ino))}));
    }
    return ino;
  }
  Result<wire::MigrateReplyT> step(TestClient& who, Ino ino, Step what, uint64_t token = 0, std::vector<uint32_t> avoid = {}) {
    wire::MigrateRequestT q;
    q.ino = ino.v;
    q.step = what;
    q.token = token;
    q.avoid = std::move(avoid);
    return who.call<rpc::Method::kMigrate>(q);
  }
  /// Begun, and filled like the source.
  uint64_t begin(Ino ino) {
    auto begun = step(mover, ino, kBegin, 0, {from});
    EXPECT_TRUE(begun) << begun.error().message();
    if (!begun || !begun->target) return 0;
    EXPECT_EQ(begun->target->components[0]->osts, std::vector<uint32_t>{1 - from});
    generation = begun->target->generation;
    EXPECT_EQ(begun->target_cap->generation, generation);
    osts[1 - from]->write(object(ino, generation), 5000);
    return begun->token;
  }
  Result<wire::LayoutReplyT> grant(TestClient& who, Ino ino, uint64_t handle, uint32_t refused) {
    wire::LayoutRequestT q;
    q.ino = ino.v;
    q.handle = handle;
    q.length = 1;
    q.write = true;
    q.refused_generation = refused;
    return who.call<rpc::Method::kLayoutGrant>(q);
  }
  uint32_t generation_of(Ino ino) {
    wire::LayoutGetRequestT q;
    q.ino = ino.v;
    return b.call<rpc::Method::kLayoutGet>(q)->layout->generation;
  }
  bool gone(Ino ino, uint32_t g) {
    return world.eventually([&] { return !osts[0]->exists(object(ino, g)) && !osts[1]->exists(object(ino, g)); });
  }
  bool unsealed(Ino ino) {
    return world.eventually([&] { return !osts[from]->sealed(object(ino)); });
  }
  static ObjectId object(Ino ino, uint32_t generation = 1) { return {ino, Generation(generation), 0, 0}; }

  World world;
  std::vector<std::unique_ptr<StandInOst>> osts;
  TestClient mover{world}, b{world};
  uint32_t from = 0, generation = 0;
};

TEST_F(MigrateTest, TheDataLiesElsewhereAndNothingElseHasChanged) {
  const Ino ino = make();
  const auto before = b.stat(ino);
  const uint64_t token = begin(ino);
  auto sealed = step(mover, ino, kSeal, token);
  ASSERT_TRUE(sealed) << sealed.error().message();
  EXPECT_TRUE(osts[from]->sealed(object(ino)));
  EXPECT_EQ(sealed->attr->size, 5000u);
  auto done = step(mover, ino, kCommit, token);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(generation_of(ino), generation);
  EXPECT_TRUE(gone(ino, 1));
  EXPECT_TRUE(osts[1 - from]->exists(object(ino, generation)));
  auto after = b.stat(ino);
  EXPECT_EQ(std::tuple(after->size, after->allocated, after->mtime, after->ctime, after->content_time, after->change),
            std::tuple(before->size, before->allocated, before->mtime, before->ctime, before->content_time, before->change));
  // Also when the objects are asked, whose clocks tell of the copying.
  ASSERT_TRUE(b.open(ino, 7, O_RDWR));
  after = b.stat(ino);
  EXPECT_EQ(std::tuple(after->size, after->mtime, after->content_time), std::tuple(before->size, before->mtime, before->content_time));
  osts[1 - from]->write(object(ino, generation), 6000);
  EXPECT_GT(b.stat(ino)->mtime, before->mtime);
  EXPECT_TRUE(world.eventually([&] { return world.core().migrations->size() == 0; }));
}

TEST_F(MigrateTest, WritersWaitFromTheSealUntilNobodyCanReadTheOldObjects) {
  const Ino ino = make("f", /*open=*/true);
  const uint64_t token = begin(ino);
  EXPECT_EQ(grant(b, ino, 1, 0)->layout->generation, 1u) << "while the copy is made writing goes on";
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  auto waiting = std::async(std::launch::async, [&] { return grant(b, ino, 1, 1); });
  for (int i = 0; i < 20; ++i) world.round();
  EXPECT_NE(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::ready);
  ASSERT_TRUE(step(mover, ino, kCommit, token));
  auto granted = waiting.get();
  ASSERT_TRUE(granted) << granted.error().message();
  EXPECT_EQ(granted->layout->generation, generation);
  EXPECT_FALSE(osts[from]->exists(object(ino)));
  EXPECT_EQ(b.stat(ino)->size, 5000u);
  ASSERT_TRUE(b.close(ino, 1));
  EXPECT_EQ(b.stat(ino)->size, 5000u);
}

TEST_F(MigrateTest, GivenUpNothingIsLeftOfIt) {
  const Ino ino = make("f", true);
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  ASSERT_TRUE(step(mover, ino, kGiveUp, token));
  EXPECT_FALSE(osts[from]->sealed(object(ino)));
  EXPECT_TRUE(gone(ino, generation));
  EXPECT_EQ(step(mover, ino, kCommit, token).error().code, Errc::kStale);
  auto granted = grant(b, ino, 1, 1);
  ASSERT_TRUE(granted) << granted.error().message();
  EXPECT_EQ(granted->layout->generation, 1u);
  const uint32_t first = generation;
  begin(ino);
  EXPECT_GT(generation, first) << "no generation is used twice";
}

TEST_F(MigrateTest, ASealThatWasLeftBehindIsTakenOffForTheWriterWhoMeetsIt) {
  const Ino ino = make("f", true);
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  osts[from]->down();
  {
    World::Hurry hurry(world);
    ASSERT_TRUE(step(mover, ino, kGiveUp, token));
  }
  osts[from]->up();
  ASSERT_TRUE(step(mover, ino, kGiveUp, token));
  EXPECT_TRUE(world.eventually([&] { return grant(b, ino, 1, 1).has_value(); }));
  EXPECT_FALSE(osts[from]->sealed(object(ino)));
}

TEST_F(MigrateTest, EndsWithItsMover) {
  const Ino ino = make();
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  EXPECT_EQ(step(b, ino, kBegin).error().code, Errc::kBusy);
  ASSERT_TRUE(mover.call<rpc::Method::kSessionClose>({}));
  EXPECT_TRUE(gone(ino, generation));
  EXPECT_TRUE(unsealed(ino));
  EXPECT_EQ(generation_of(ino), 1u);
}

TEST_F(MigrateTest, ACutEndsIt) {
  const Ino ino = make("f", true);
  uint64_t token = begin(ino);
  ASSERT_TRUE(b.truncate(ino, 100, 1));
  EXPECT_EQ(step(mover, ino, kSeal, token).error().code, Errc::kStale);
  EXPECT_TRUE(gone(ino, generation));
  token = begin(ino);
  const uint32_t shadow = generation;
  ASSERT_TRUE(b.close(ino, 1, {}, true));
  ASSERT_TRUE(b.open(ino, 2, O_RDWR | O_TRUNC));  // nobody else has it open: by a new generation
  EXPECT_EQ(step(mover, ino, kSeal, token).error().code, Errc::kStale);
  EXPECT_TRUE(gone(ino, shadow));
  EXPECT_TRUE(gone(ino, 1));
  EXPECT_GT(generation_of(ino), shadow);
}

TEST_F(MigrateTest, UnlinkingEndsIt) {
  const Ino ino = make();
  const uint64_t token = begin(ino);
  ASSERT_TRUE(b.unlink("f"));
  EXPECT_EQ(step(mover, ino, kSeal, token).error().code, Errc::kStale);
  EXPECT_TRUE(gone(ino, generation));
  EXPECT_TRUE(gone(ino, 1));
}

TEST_F(MigrateTest, ASealThatIsGoneMakesNoCommit) {
  const Ino ino = make();
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  osts[from]->break_seals();
  EXPECT_EQ(step(mover, ino, kCommit, token).error().code, Errc::kStale);
  EXPECT_TRUE(gone(ino, generation));
  EXPECT_EQ(b.stat(ino)->size, 5000u);
}

class ShortPause : public MigrateTest {
 protected:
  void SetUp() override {
    world.settings().mds_migrate_pause = 1000;
    start();
  }
};

class ShortLease : public MigrateTest {
 protected:
  void SetUp() override {
    world.settings().lease_term = 10'000;
    world.settings().lease_skew = 1000;
    start();
  }
  /// Longer than a session lives without a word, with one in between.
  void outlast_a_lease() {
    for (int i = 0; i < 2; ++i) {
      world.pass(8 * kSecond);
      (void)mover.stat(kRootIno);
      (void)b.stat(kRootIno);
    }
  }
};

TEST_F(ShortLease, AKilledServerHasForgottenItAndItsObjects) {
  const Ino ino = make();
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  const uint32_t shadow = generation;
  mover.disconnect();
  b.disconnect();
  world.kill_and_restart();
  ASSERT_TRUE(mover.mount());
  ASSERT_TRUE(b.mount());
  for (TestClient* c : {&mover, &b}) {
    wire::ReclaimRequestT done;
    done.done = true;
    ASSERT_TRUE(c->call<rpc::Method::kReclaim>(done));
  }
  EXPECT_TRUE(gone(ino, shadow));
  EXPECT_TRUE(unsealed(ino));
  EXPECT_EQ(step(mover, ino, kCommit, token).error().code, Errc::kStale);
  EXPECT_EQ(generation_of(ino), 1u);
  EXPECT_TRUE(osts[from]->exists(object(ino)));
  outlast_a_lease();
  begin(ino);
  EXPECT_GT(generation, shadow);
}

TEST_F(ShortLease, ATargetThatCameBackGivesClientsTheTimeToSendAgain) {
  const Ino ino = make();
  osts[from]->down();
  osts[from]->up();
  EXPECT_EQ(step(mover, ino, kBegin, 0, {from}).error().code, Errc::kRetryLater);
  outlast_a_lease();
  begin(ino);
}

TEST_F(ShortPause, WritersWaitNoLongerThanTheLimit) {
  const Ino ino = make("f", true);
  const uint64_t token = begin(ino);
  ASSERT_TRUE(step(mover, ino, kSeal, token));
  {
    World::Hurry hurry(world);
    auto granted = grant(b, ino, 1, 1);
    ASSERT_TRUE(granted) << granted.error().message();
    EXPECT_EQ(granted->layout->generation, 1u);
  }
  EXPECT_FALSE(osts[from]->sealed(object(ino)));
  EXPECT_EQ(step(mover, ino, kCommit, token).error().code, Errc::kStale);
  EXPECT_TRUE(gone(ino, generation));
}

TEST_F(MigrateTest, OnlyTheOwnerMovesAndOnlyWhatIsThere) {
  const Ino ino = make();
  TestClient other(world, 1234);
  ASSERT_TRUE(other.mount());
  EXPECT_EQ(step(other, ino, kBegin).error().code, Errc::kPerm);
  EXPECT_EQ(step(mover, kRootIno, kBegin).error().code, Errc::kInval);
  EXPECT_EQ(step(mover, ino, kBegin, 0, {1 - from})->token, 0u) << "it has nothing there";
  EXPECT_EQ(step(mover, ino, static_cast<Step>(9)).error().code, Errc::kInval);
  EXPECT_EQ(step(mover, ino, kCommit, 3).error().code, Errc::kStale);
}

TEST_F(MigrateTest, FilesOfATargetAreListed) {
  std::vector<uint64_t> on[2];
  for (int i = 0; i < 6; ++i) {
    const Ino ino = make(fmt::format("f{}", i));
    on[from].push_back(ino.v);
  }
  TestClient tool(world);
  ASSERT_TRUE(tool.connect(wire::kRoleAdmin));
  wire::OstFilesRequestT q;
  q.ost = from;
  q.limit = 2;
  std::vector<uint64_t> seen;
  for (int page = 0; page < 10; ++page) {
    auto reply = tool.call<rpc::Method::kOstFiles>(q);
    ASSERT_TRUE(reply) << reply.error().message();
    EXPECT_EQ(reply->objects, on[from].size());
    seen.insert(seen.end(), reply->inos.begin(), reply->inos.end());
    if (reply->end) break;
    q.after = reply->inos.back();
  }
  std::erase_if(seen, [&](uint64_t i) { return std::find(on[from].begin(), on[from].end(), i) == on[from].end(); });
  EXPECT_EQ(seen, on[from]);
}

}  // namespace
}  // namespace nacre::mds::testing
