// SPDX-License-Identifier: Apache-2.0
// Readers of the changelog: what they get, what they lose and are told of, what nobody holds back.
#include "metadata/store/changelog.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
using namespace test;

class HandClock final : public Clock {
 public:
  Nanos real() const override { return now; }
  Nanos boot() const override { return now; }
  Nanos now = 1'000'000 * kSecond;
};

class ChangelogTest : public ::testing::Test {
 protected:
  ChangelogTest() { must(Store::format(options_for(dir / "m"))); reopen(); }
  void reopen(uint64_t records = 1'000'000) {
    log.reset();
    open.reset();
    Journal::Options o;
    o.changelog_records = records;
    open = std::make_unique<OpenStore>(options_for(dir / "m"), o);
    log = std::make_unique<Changelog>(*open->journal, Changelog::Options{100 * kSecond, &clock});
  }
  void write(uint64_t n, uint16_t kind = 1) {
    for (uint64_t i = 0; i < n; ++i) {
      schema::ChangelogRecordT e;
      e.time = clock.now;
      e.kind = kind;
      Batch batch;
      batch.log(std::move(e));
      must(open->journal->commit(std::move(batch)));
    }
  }
  TempDir dir;
  HandClock clock;
  std::unique_ptr<OpenStore> open;
  std::unique_ptr<Changelog> log;
};

TEST_F(ChangelogTest, AReaderBeginsNowAndGoesOnAfterWhatItCleared) {
  write(5);
  const uint32_t reader = must(log->add_reader("robinhood"));
  EXPECT_TRUE(must(log->read(reader, 0, 100)).entries.empty());
  write(3);
  auto page = must(log->read(reader, 0, 2));
  ASSERT_EQ(page.entries.size(), 2u);
  EXPECT_EQ(page.entries[0].first, 6u);
  EXPECT_EQ(page.gap_before, 0u);
  EXPECT_FALSE(page.end);
  must(log->clear(reader, 7));
  page = must(log->read(reader, 0, 100));
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_TRUE(page.end);
  EXPECT_EQ(log->clear(reader, 9).error().code, Errc::kInval);
  EXPECT_EQ(log->clear(77, 1).error().code, Errc::kNoEnt);
  EXPECT_EQ(log->read(77, 0, 1).error().code, Errc::kNoEnt);
  EXPECT_EQ(log->add_reader("robinhood").error().code, Errc::kExist);
}

TEST_F(ChangelogTest, TheBoundByAgeLeavesAGapThatIsToldExactly) {
  const uint32_t reader = must(log->add_reader(""));
  write(10);
  clock.now += 101 * kSecond;
  write(4);
  must(log->prune());
  auto page = must(log->read(reader, 0, 100));
  EXPECT_EQ(page.gap_before, 10u);
  ASSERT_EQ(page.entries.size(), 4u);
  EXPECT_EQ(page.entries[0].first, 11u);
  EXPECT_EQ(must(log->read(reader, 12, 100)).gap_before, 0u);
}

TEST_F(ChangelogTest, TheBoundByRecordsHoldsAlthoughAReaderIsSlow) {
  reopen(100);
  const uint32_t reader = must(log->add_reader("slow"));
  write(3000);
  auto page = must(log->read(reader, 0, 1));
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_EQ(page.gap_before, page.entries[0].first - 1);
  EXPECT_GE(page.entries[0].first, 1948u) << "at most the bound, and what comes between two prunings";
}

TEST_F(ChangelogTest, WhatAllReadersHaveClearedGoesButTheNewestStays) {
  const uint32_t a = must(log->add_reader("a")), b = must(log->add_reader("b"));
  write(20);
  must(log->clear(a, 0));
  EXPECT_EQ(must(log->range()).first, 1u) << "b still wants them";
  must(log->clear(b, 15));
  EXPECT_EQ(must(log->range()).first, 16u);
  must(log->drop_reader(b));
  must(log->prune());
  EXPECT_EQ(must(log->range()).first, 20u);
  clock.now += 1000 * kSecond;
  must(log->prune());
  reopen();
  write(1);
  EXPECT_EQ(must(log->range()).last, 21u) << "numbers go on";
  EXPECT_EQ(must(log->add_reader("c")), 3u) << "numbers of readers too";
}

TEST_F(ChangelogTest, ARestoreIsAGap) {
  const uint32_t reader = must(log->add_reader(""));
  write(2);
  must(open->journal->restart_changelog(1000));
  write(1);
  auto page = must(log->read(reader, 0, 100));
  ASSERT_EQ(page.entries.size(), 2u);
  EXPECT_FALSE(page.end);
  page = must(log->read(reader, page.entries.back().first, 100));
  ASSERT_EQ(page.entries.size(), 2u);
  EXPECT_EQ(page.gap_before, 1000u);
  EXPECT_EQ(page.entries[0].second.kind, kChangeRestore);
  clock.now += 50 * kSecond;
  must(log->prune());
  EXPECT_EQ(must(log->range()).first, 1u);
}

}  // namespace
}  // namespace nacre::mds
