// SPDX-License-Identifier: Apache-2.0
// Default layouts, the choice of storage targets, and which stripes may hold objects.
#include "metadata/targets/layout_policy.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "common/base/units.h"
#include "common/layout/layout.h"

namespace nacre::mds {
namespace {

std::vector<Candidate> targets(size_t n) {
  std::vector<Candidate> out;
  for (uint32_t i = 0; i < n; ++i) out.push_back({OstId(i), 1000 * GiB, 500 * GiB, true, true, {}});
  return out;
}
std::set<uint32_t> numbers(const std::vector<OstId>& osts) {
  std::set<uint32_t> out;
  for (OstId o : osts) out.insert(o.v);
  return out;
}

TEST(DefaultLayout, SmallFilesOnOneTargetThenWide) {
  config::Settings s;
  auto l = default_layout(s);
  ASSERT_EQ(l.components.size(), 2u);
  EXPECT_EQ(l.components[0]->end, 4 * MiB);
  EXPECT_EQ(l.components[0]->stripe_count, 1);
  EXPECT_EQ(l.components[1]->start, 4 * MiB);
  EXPECT_EQ(l.components[1]->stripe_count, 4);
  EXPECT_TRUE(layout::validate(l));
  s.layout_small = 0;
  s.layout_wide_count = 0;
  l = default_layout(s);
  ASSERT_EQ(l.components.size(), 1u);
  EXPECT_EQ(l.components[0]->stripe_count, 0);
  EXPECT_TRUE(layout::validate(l));
  s.layout_small = 100'000;  // no multiple of 64 KiB
  EXPECT_TRUE(layout::validate(default_layout(s)));
}

TEST(OstChooser, EvenTargetsTakeTurns) {
  OstChooser chooser;
  auto all = targets(4);
  std::map<uint32_t, int> used;
  for (int i = 0; i < 400; ++i) ++used[chooser.choose(all, 1, "", -1)->front().v];
  for (auto& [ost, n] : used) EXPECT_EQ(n, 100) << ost;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(numbers(*chooser.choose(all, 3, "", -1)).size(), 3u) << "different targets";
  EXPECT_EQ(chooser.choose(all, 0, "", -1)->size(), 4u);
  EXPECT_EQ(chooser.choose(all, 9, "", -1)->size(), 4u);
}

TEST(OstChooser, FreeSpaceWeighs) {
  OstChooser chooser;
  auto all = targets(2);
  all[0].available = 100 * GiB;  // of 1000: a fifth of the other's
  std::map<uint32_t, int> used;
  for (int i = 0; i < 600; ++i) ++used[chooser.choose(all, 1, "", -1)->front().v];
  EXPECT_NEAR(used[0], 100, 10);
  EXPECT_NEAR(used[1], 500, 10);
}

TEST(OstChooser, SkipsWhatCannotTakeFiles) {
  OstChooser chooser;
  auto all = targets(5);
  all[0].up = false;
  all[1].active = false;
  all[2].available = 10 * GiB;  // 99 % full
  for (int i = 0; i < 20; ++i) {
    auto got = chooser.choose(all, 2, "", -1);
    ASSERT_TRUE(got);
    EXPECT_EQ(numbers(*got), (std::set<uint32_t>{3, 4}));
  }
  all[3].active = all[4].active = false;
  EXPECT_EQ(numbers(*chooser.choose(all, 3, "", -1)), (std::set<uint32_t>{2})) << "a full one is better than none";
  all[2].up = false;
  EXPECT_EQ(numbers(*chooser.choose(all, 3, "", -1)), (std::set<uint32_t>{0, 2})) << "then those that will come back";
  for (auto& c : all) c.active = false;
  EXPECT_EQ(chooser.choose(all, 1, "", -1).error().code, Errc::kNoSpc);
  EXPECT_EQ(chooser.choose({}, 1, "", -1).error().code, Errc::kRetryLater) << "a new cluster whose targets are still starting isn't full";
}

TEST(OstChooser, PoolsAndTheFirstTarget) {
  OstChooser chooser;
  auto all = targets(4);
  all[1].pools = all[3].pools = {"ssd"};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(numbers(*chooser.choose(all, 0, "ssd", -1)), (std::set<uint32_t>{1, 3}));
  EXPECT_EQ(chooser.choose(all, 1, "hdd", -1).error().code, Errc::kNoSpc);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(chooser.choose(all, 2, "", 2)->front(), OstId(2));
}

TEST(OstChooser, ATargetThatReturnsIsNotFlooded) {
  OstChooser chooser;
  auto all = targets(2);
  auto one = all;
  one[1].up = false;
  for (int i = 0; i < 1000; ++i) (void)chooser.choose(one, 1, "", -1);
  std::map<uint32_t, int> used;
  for (int i = 0; i < 100; ++i) ++used[chooser.choose(all, 1, "", -1)->front().v];
  EXPECT_NEAR(used[0], 50, 2);
}

class Instantiate : public ::testing::Test {
 protected:
  Result<bool> run(uint64_t offset, uint64_t length) {
    return instantiate(layout, offset, length, [this](const schema::ComponentT& c) { return chooser.choose(all, c.stripe_count, c.pool, c.first_ost); });
  }
  OstChooser chooser;
  std::vector<Candidate> all = targets(40);
  schema::LayoutT layout = [] {
    config::Settings s;
    s.layout_wide_count = 32;
    return default_layout(s);
  }();
};

TEST_F(Instantiate, OnlyWhatIsTouched) {
  ASSERT_TRUE(*run(0, 0));
  EXPECT_TRUE(layout.components[0]->instantiated);
  EXPECT_EQ(layout.components[0]->osts.size(), 1u);
  EXPECT_FALSE(layout.components[1]->instantiated);
  EXPECT_EQ(component_bits(layout), 1u);
  EXPECT_FALSE(*run(0, 4 * MiB)) << "nothing new";
  ASSERT_TRUE(*run(4 * MiB - 1, 2));
  EXPECT_TRUE(layout.components[1]->instantiated);
  EXPECT_EQ(component_bits(layout), 3u);
}

TEST_F(Instantiate, StripesUsedDoubleFromEight) {
  ASSERT_TRUE(*run(4 * MiB, 1));
  EXPECT_EQ(layout.components[1]->stripes_used, 8);
  EXPECT_FALSE(*run(4 * MiB, 8 * MiB));
  ASSERT_TRUE(*run(12 * MiB, 1));
  EXPECT_EQ(layout.components[1]->stripes_used, 16);
  ASSERT_TRUE(*run(4 * MiB, 17 * MiB));
  EXPECT_EQ(layout.components[1]->stripes_used, 32);
}

TEST_F(Instantiate, AgreesWithTheLayoutRoom) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 300; ++round) {
    config::Settings s;
    s.layout_wide_count = rng() % 33;
    s.layout_small = rng() % 3 * 256 * KiB;
    s.layout_stripe_size = (1 + rng() % 4) * 64 * KiB;
    layout = default_layout(s);
    for (int step = 0; step < 10; ++step) {
      const uint64_t offset = rng() % (16 * MiB), length = 1 + rng() % (rng() % 2 ? 4096 : 8 * MiB);
      const bool had = layout::is_instantiated(layout, offset, length);
      auto changed = run(offset, length);
      ASSERT_TRUE(changed);
      ASSERT_EQ(*changed, !had) << offset << "+" << length;
      ASSERT_TRUE(layout::is_instantiated(layout, offset, length)) << offset << "+" << length;
    }
  }
}

TEST_F(Instantiate, RefusesWhatLiesBeyondTheLargestFile) {
  EXPECT_EQ(run(kMaxFileSize, 1).error().code, Errc::kFBig);
  EXPECT_EQ(run(UINT64_MAX, 0).error().code, Errc::kFBig);
}

TEST_F(Instantiate, FewerTargetsThanWanted) {
  all = targets(3);
  ASSERT_TRUE(*run(4 * MiB, 1));
  EXPECT_EQ(layout.components[1]->stripe_count, 3);
  EXPECT_EQ(layout.components[1]->osts.size(), 3u);
  EXPECT_EQ(layout.components[1]->stripes_used, 3);
}

}  // namespace
}  // namespace nacre::mds
