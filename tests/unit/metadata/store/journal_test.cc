// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <rocksdb/db.h>

#include "metadata/store/rocks.h"
#include "tests/unit/metadata/store/fixture.h"
#include "tests/unit/metadata/store/on_loop.h"

namespace nacre::mds {
namespace {
using test::must;
using Kind = Subject::Kind;

struct JournalTest : testing::Test {
  test::TempDir dir;
  Store::Options options = test::options_for(dir / "mds");
  std::unique_ptr<test::OpenStore> s;
  void SetUp() override {
    must(Store::format(options));
    reopen();
  }
  void reopen(Journal::Options o = {}) {
    s.reset();
    s = std::make_unique<test::OpenStore>(options, std::move(o));
  }
  JournalNo charge(Charge c) {
    Batch b;
    b.charge(c);
    b.put(Family::kMeta, "x", "y");
    return must(s->journal->commit(std::move(b)));
  }
};

TEST_F(JournalTest, NumbersRiseByOneAndAcrossRestarts) {
  auto first = charge({});
  EXPECT_EQ(charge({}).v, first.v + 1);
  EXPECT_EQ(must(s->journal->commit(Batch())).v, first.v + 1) << "an empty batch is no commit";
  EXPECT_LT(s->journal->synced().v, s->journal->committed().v);
  must(s->journal->sync_now());
  EXPECT_EQ(s->journal->synced(), s->journal->committed());
  reopen();
  EXPECT_GT(charge({}).v, first.v + 1);
}

TEST_F(JournalTest, TellsWhatSurvivedOfEachOfTheLastRuns) {
  const uint64_t first = charge({}).v;
  EXPECT_TRUE(s->store->survived(first));
  EXPECT_TRUE(s->store->survived(0)) << "nothing was told";
  reopen();
  EXPECT_TRUE(s->store->survived(first));
  EXPECT_FALSE(s->store->survived(first + 1)) << "told, and gone";
  const uint64_t second = charge({}).v;
  reopen();
  reopen();  // a run that commits nothing
  EXPECT_TRUE(s->store->survived(first));
  EXPECT_FALSE(s->store->survived(first + 1));
  EXPECT_TRUE(s->store->survived(second));
  EXPECT_FALSE(s->store->survived(second + 1));
  EXPECT_FALSE(s->store->survived(uint64_t{999} << kJournalCounterBits)) << "of a run that is not on record nothing is known";
}

TEST_F(JournalTest, CountersAreAbsoluteSurviveRestartsAndSumUpForEverySubject) {
  charge({FilesetId(1), 1000, 100, 4096, 1});
  charge({FilesetId(1), 1000, 200, 8192, 2});
  charge({FilesetId(1), 2000, 100, 0, 3});
  charge({FilesetId(1), 3000, 300, 4096, 1});
  charge({FilesetId(1), 3000, 300, -4096, -1});
  for (int round = 0; round < 2; ++round) {
    auto usage = [&](Kind k, uint32_t fileset, uint32_t id) { return s->journal->usage({k, FilesetId(fileset), "", id}); };
    EXPECT_EQ(usage(Kind::kFileset, 1, 0).bytes, 12288);
    EXPECT_EQ(usage(Kind::kFileset, 1, 0).inodes, 7);
    EXPECT_EQ(usage(Kind::kTierUser, 0, 1000).bytes, 12288);
    EXPECT_EQ(usage(Kind::kTierUser, 0, 1000).inodes, 3);
    EXPECT_EQ(usage(Kind::kTierGroup, 0, 100).inodes, 4);
    EXPECT_EQ(usage(Kind::kFilesetUser, 1, 2000).inodes, 3);
    EXPECT_EQ(usage(Kind::kFilesetUser, 1, 3000).inodes, 0);
    EXPECT_FALSE(must(s->view().get(Family::kUsage, usage_key(FilesetId(1), 3000, 300)))) << "an empty cell has no row";
    reopen();
  }
}

TEST_F(JournalTest, ConcurrentCommitsLoseNoCount) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) charge({FilesetId(1), 42, 42, 4096, 1});
    });
  threads.clear();
  EXPECT_EQ(s->journal->usage({Kind::kFilesetUser, FilesetId(1), "", 42}).inodes, 2000);
  reopen();
  EXPECT_EQ(s->journal->usage({Kind::kFilesetUser, FilesetId(1), "", 42}).bytes, 2000 * 4096);
}

TEST_F(JournalTest, ChangelogIsNumberedBoundedAndOffByDefault) {
  auto entry = [] {
    Batch b;
    schema::ChangelogRecordT e;
    e.kind = 1;
    b.log(e);
    return b;
  };
  must(s->journal->commit(entry()));
  EXPECT_FALSE(must(s->view().get(Family::kChangelog, changelog_key(1))));
  Journal::Options o;
  o.changelog_records = 1000;
  reopen(o);
  for (int i = 0; i < 1500; ++i) must(s->journal->commit(entry()));
  reopen(o);
  must(s->journal->commit(entry()));
  EXPECT_TRUE(must(s->view().get(Family::kChangelog, changelog_key(1501))));
  for (int i = 0; i < 600; ++i) must(s->journal->commit(entry()));
  uint64_t count = 0, first = 0;
  must(s->view().scan(Family::kChangelog, "", "", [&](std::string_view k, std::string_view) {
    if (count++ == 0) first = *parse_changelog_key(k);
    return true;
  }));
  EXPECT_EQ(first, 2048u - 1000u);
  EXPECT_EQ(count, 2101 - first + 1);
}

TEST_F(JournalTest, ASyncErrorIsFatalOnceAndForEver) {
  std::vector<Error> fatal;
  Journal::Options o;
  o.fatal = [&](Error e) { fatal.push_back(std::move(e)); };
  reopen(o);
  charge({});
  s->store->rocks().report(rocksdb::Status::IOError("fsync", "Input/output error"));
  s->store->rocks().report(rocksdb::Status::IOError("again"));
  ASSERT_EQ(fatal.size(), 1u);
  EXPECT_EQ(fatal[0].code, Errc::kIo);
  Batch b;
  b.put(Family::kMeta, "k", "v");
  EXPECT_FALSE(s->journal->commit(std::move(b)).has_value());
  EXPECT_FALSE(s->journal->sync_now().has_value());
}

// ---- on loops
using JournalLoopTest = JournalTest;
using test::on_loop;

TEST_F(JournalLoopTest, SyncToMakesDurableAndGroupsCallers) {
  Runtime runtime(test::loops(2));
  runtime.start();
  std::atomic<int> ok{0};
  auto one = [this, &ok]() -> Task<void> {
    Batch b;
    b.put(Family::kMeta, "k", "v");
    auto number = s->journal->commit(std::move(b));
    EXPECT_TRUE(number.has_value());
    auto done = co_await s->journal->sync_to(*number);
    EXPECT_TRUE(done.has_value());
    EXPECT_GE(s->journal->synced().v, number->v);
    ++ok;
  };
  for (int round = 0; round < 10; ++round) {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < 8; ++t) threads.emplace_back([&, t] { on_loop(runtime, t % 2, one); });
  }
  EXPECT_EQ(ok, 80);
  runtime.stop();
}

TEST_F(JournalLoopTest, TheBarrierWaitsForSomebodyElsesSync) {
  Runtime runtime(test::loops(2));
  runtime.start();
  auto number = charge({});
  std::atomic<bool> passed{false};
  std::jthread waiter([&] {
    on_loop(runtime, 0, [&]() -> Task<void> {
      auto r = co_await s->journal->wait_synced(number);
      EXPECT_TRUE(r.has_value());
      EXPECT_GE(s->journal->synced().v, number.v);
      passed = true;
    });
  });
  on_loop(runtime, 0, [&]() -> Task<void> { co_await yield_now(); });
  EXPECT_FALSE(passed);
  on_loop(runtime, 1, [&]() -> Task<void> { EXPECT_TRUE((co_await s->journal->sync_to(number)).has_value()); });
  waiter.join();
  EXPECT_TRUE(passed);
  runtime.stop();
}

TEST_F(JournalLoopTest, PeriodicSyncReleasesTheBarrier) {
  Journal::Options o;
  o.commit_interval = 5 * kMillisecond;
  reopen(o);
  Runtime runtime(test::loops(2));
  runtime.start();
  runtime.loop(1).spawn(s->journal->run_periodic());
  auto number = charge({});
  on_loop(runtime, 0, [&]() -> Task<void> { EXPECT_TRUE((co_await s->journal->wait_synced(number)).has_value()); });
  EXPECT_GE(s->journal->synced().v, number.v);
  runtime.stop();
}

TEST_F(JournalLoopTest, RangeRefillIsSyncedBeforeUse) {
  Runtime runtime(test::loops(2));
  runtime.start();
  auto range = must(RangeAllocator::open(*s->journal, "ino", 2, 100));
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] { on_loop(runtime, t % 2, [&]() -> Task<void> { EXPECT_TRUE((co_await range->refill()).has_value()); }); });
  threads.clear();
  EXPECT_EQ(s->journal->synced(), s->journal->committed());
  EXPECT_EQ(range->take(), 2u);
  runtime.stop();
}

}  // namespace
}  // namespace nacre::mds
