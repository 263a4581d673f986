// SPDX-License-Identifier: Apache-2.0
// Numbers that a transaction group gives out, and who is woken when.
#include "storage/object/txg.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {

struct TxgTest : ::testing::Test {
  std::string dir = temp_dir();
  ManualClock clock;
  std::unique_ptr<Index> index;
  std::shared_ptr<MemoryDevice> device = std::make_shared<MemoryDevice>(64 * MiB);
  std::unique_ptr<Space> space;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Txg> txg;
  std::optional<Error> failed;

  void SetUp() override {
    index = std::move(*Index::open({.dir = dir + "/index", .create = true}));
    space = std::make_unique<Space>(64 * MiB, *device);
    space->allocator().add_clean({0, 16'384});
    RuntimeOptions o;
    o.loops = 1, o.workers = 0, o.threads = false, o.clock = &clock;
    runtime = std::make_unique<Runtime>(o);
    runtime->start();
  }
  void TearDown() override {
    if (runtime) runtime->stop(0);
    txg.reset();
    index.reset();
    std::filesystem::remove_all(dir);
  }
  void make(uint64_t first, uint64_t high) {
    schema::OstSuperT super;
    super.wseq_high = high;
    txg = std::make_unique<Txg>(Txg::Parts{*index, *device, *space, super, first, kSecond, [this](Error e) { failed = e; }, {}});
    txg->start(runtime->loop(0));
  }
  void ready() {
    while (runtime->run_ready() != 0) continue;
  }
  /// A batch that takes a write sequence; 0 if there is none left.
  uint64_t take() {
    uint64_t got = 0;
    (void)index->commit([&](Batch& b) -> Result<void> {
      NACRE_TRY(const WSeq w, txg->next_wseq());
      got = w.v;
      txg->touch();
      b.put(Family::kObject, "x", "y");
      return {};
    });
    return got;
  }
  Result<void> force() {
    std::optional<Result<void>> out;
    auto body = [](Txg& t, std::optional<Result<void>>& o) -> Task<void> { o.emplace(co_await t.force()); };
    runtime->loop(0).spawn(body(*txg, out));
    ready();
    return out ? *out : Result<void>(Err(Errc::kDeadline, "nothing came"));
  }
};

TEST_F(TxgTest, SequencesAreOnlyGivenOutBelowTheDurableMark) {
  make(10, 13);
  EXPECT_EQ(take(), 11u);
  EXPECT_EQ(take(), 12u);
  EXPECT_EQ(take(), 13u);
  EXPECT_EQ(take(), 0u);
  ASSERT_TRUE(force());  // writes the next mark, which isn't synced yet
  EXPECT_EQ(take(), 0u);
  ASSERT_TRUE(force());  // syncs it
  EXPECT_EQ(take(), 14u);
  EXPECT_EQ(txg->stable(), WSeq(13));
  EXPECT_EQ(txg->newest(), WSeq(14));
}

TEST_F(TxgTest, FreedBlocksComeBackAfterTheSyncAndTheReads) {
  make(0, 1000);
  auto got = space->take(10, Purpose::kNew, {Rig::object(1), kNoGoal, false});
  ASSERT_TRUE(got);
  const uint64_t free = space->allocator().free();
  std::optional<ReadGuard> reading(std::in_place, space->reads());
  ASSERT_TRUE(index->commit([&](Batch&) -> Result<void> {
    txg->freed(*got);
    txg->touch();
    return {};
  }));
  EXPECT_TRUE(space->any_pending());
  ASSERT_TRUE(force());
  EXPECT_EQ(space->allocator().free(), free) << "a read that began before still holds them";
  reading.reset();
  space->poll();
  EXPECT_EQ(space->allocator().free(), free + 10);
  EXPECT_FALSE(space->any_pending());
}

TEST_F(TxgTest, AFailureReachesAllWhoWait) {
  make(0, 1000);
  ASSERT_NE(take(), 0u);
  device->fail_syncs(true);
  std::vector<Errc> seen;
  auto body = [](Txg& t, std::vector<Errc>& out) -> Task<void> {
    auto ok = co_await t.force();
    out.push_back(ok ? Errc::kOk : ok.error().code);
  };
  for (int i = 0; i < 3; ++i) runtime->loop(0).spawn(body(*txg, seen));
  ready();
  EXPECT_EQ(seen, (std::vector<Errc>{Errc::kIo, Errc::kIo, Errc::kIo}));
  ASSERT_TRUE(failed);
  device->fail_syncs(false);
  EXPECT_EQ(force().error().code, Errc::kIo) << "a failed sync is never tried again";
  EXPECT_EQ(txg->stable(), WSeq(0));
}

}  // namespace
}  // namespace nacre::storage::testing
