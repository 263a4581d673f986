// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
using test::must;

struct RangeTest : testing::Test {
  test::TempDir dir;
  Store::Options options = test::options_for(dir / "mds");
  std::unique_ptr<test::OpenStore> s;
  std::unique_ptr<RangeAllocator> range;
  void SetUp() override {
    must(Store::format(options));
    restart();
  }
  void restart() {
    range.reset();
    s.reset();
    s = std::make_unique<test::OpenStore>(options);
    range = must(RangeAllocator::open(*s->journal, "ino", 2, 10));
  }
};

TEST_F(RangeTest, NothingIsHandedOutBeforeTheMarkIsSynced) {
  EXPECT_FALSE(range->take());
  EXPECT_TRUE(range->low());
  must(range->refill_now());
  EXPECT_EQ(s->journal->synced(), s->journal->committed());
  for (uint64_t i = 2; i < 12; ++i) EXPECT_EQ(range->take(), i);
  EXPECT_FALSE(range->take());
  must(range->refill_now());
  EXPECT_EQ(range->take(4), 12u);
  EXPECT_EQ(range->take(4), 16u);
  EXPECT_FALSE(range->take(4));
  EXPECT_EQ(range->take(2), 20u);
}

TEST_F(RangeTest, UncleanStartSkipsToTheMarkCleanStopSkipsNothing) {
  must(range->refill_now());
  EXPECT_EQ(range->take(), 2u);
  restart();
  must(range->refill_now());
  EXPECT_EQ(range->take(), 12u);
  must(range->give_back());
  EXPECT_FALSE(range->take());
  restart();
  must(range->refill_now());
  EXPECT_EQ(range->take(), 13u);
}

TEST_F(RangeTest, SkipPastAnswersAHigherNumberSeenElsewhere) {
  must(range->refill_now());
  range->skip_past(5);
  EXPECT_EQ(range->take(), 6u);
  range->skip_past(1000);
  EXPECT_FALSE(range->take()) << "the stored mark is below";
  must(range->refill_now());
  EXPECT_EQ(range->take(), 1001u);
}

}  // namespace
}  // namespace nacre::mds
