// SPDX-License-Identifier: Apache-2.0
// Properties of the allocator against a bitmap: nothing is given out twice, nothing is lost, the limits hold.
#include <gtest/gtest.h>

#include "common/base/rng.h"
#include "storage/object/allocator.h"
#include "storage/object/space.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage {
namespace {

uint64_t total(const std::vector<Extent>& extents) {
  uint64_t n = 0;
  for (const Extent& e : extents) n += e.length;
  return n;
}

TEST(ExtentMap, JoinsAndSplits) {
  ExtentMap m;
  m.add({10, 5});
  m.add({20, 5});
  m.add({15, 5});
  EXPECT_EQ(m.all(), (std::map<uint64_t, uint64_t>{{10, 25}}));
  m.remove(12, 14);
  m.remove(24, 100);
  m.remove(0, 11);
  EXPECT_EQ(m.all(), (std::map<uint64_t, uint64_t>{{11, 12}, {14, 24}}));
}

TEST(Allocator, SequentialRequestsFollowEachOther) {
  Allocator a(1000);
  a.add_clean({0, 1000});
  const ObjectId o{Ino(1), Generation(1), 0, 0};
  auto first = a.allocate(10, 0, {o, kNoGoal, false});
  ASSERT_TRUE(first);
  auto second = a.allocate(10, 0, {o, first->back().at + 10, true});
  ASSERT_EQ(second->size(), 1u);
  EXPECT_EQ(second->front().at, first->back().at + 10);
}

TEST(Allocator, PrefersOneRunAndTheSmallestThatFits) {
  Allocator a(1000);
  a.add_clean({0, 5});
  a.add_clean({100, 50});
  a.add_clean({200, 20});
  const ObjectId o{Ino(1), Generation(1), 0, 0};
  EXPECT_EQ(*a.allocate(18, 0, {o, kNoGoal, false}), (std::vector<Extent>{{200, 18}}));
  EXPECT_EQ(*a.allocate(54, 0, {o, kNoGoal, false}), (std::vector<Extent>{{100, 50}, {0, 4}}));
  EXPECT_FALSE(a.allocate(4, 0, {o, kNoGoal, false}));
  EXPECT_EQ(a.free(), 3u);
}

TEST(Allocator, WindowsAreGivenBackWhenSpaceIsShort) {
  Allocator a(100);
  a.add_clean({0, 100});
  const ObjectId o{Ino(1), Generation(1), 0, 0}, p{Ino(2), Generation(1), 0, 0};
  ASSERT_TRUE(a.allocate(1, 0, {o, 99, true}));  // at the goal
  ASSERT_TRUE(a.allocate(1, 0, {o, 100, true})); // opens a window
  auto rest = a.allocate(98, 0, {p, kNoGoal, false});
  ASSERT_TRUE(rest);
  EXPECT_EQ(total(*rest), 98u);
  EXPECT_EQ(a.free(), 0u);
}

TEST(Allocator, NothingIsGivenTwiceAndNothingIsLost) {
  constexpr uint64_t kBlocks = 20'000;
  for (uint64_t seed = 1; seed <= (testing::long_form() ? 100 : 3); ++seed) {
    SeededRng rng(seed);
    Allocator a(kBlocks);
    a.add_clean({0, kBlocks});
    std::vector<bool> used(kBlocks, false);
    std::vector<Extent> held;
    std::vector<Extent> punching;
    uint64_t in_use = 0;
    for (int step = 0; step < 5'000; ++step) {
      const uint64_t dice = rng.below(100);
      if (dice < 55) {
        const uint64_t count = 1 + rng.below(rng.below(10) == 0 ? 600 : 8), leave = rng.below(3) == 0 ? 100 : 0;
        const uint64_t goal = held.empty() || rng.below(2) ? kNoGoal : held[rng.below(held.size())].at + held[rng.below(held.size())].length;
        auto got = a.allocate(count, leave, {ObjectId{Ino(1 + rng.below(20)), Generation(1), 0, 0}, goal, rng.below(2) == 0});
        const uint64_t out = total(punching);
        ASSERT_EQ(got.has_value(), kBlocks - in_use - out >= count + leave);
        if (!got) continue;
        ASSERT_EQ(total(*got), count);
        for (const Extent& e : *got) {
          for (uint64_t b = e.at; b < e.at + e.length; ++b) {
            ASSERT_LT(b, kBlocks);
            ASSERT_FALSE(used[b]) << "block " << b << " was given out twice";
            used[b] = true;
          }
          held.push_back(e);
        }
        in_use += count;
      } else if (dice < 95) {
        if (held.empty()) continue;
        const size_t i = rng.below(held.size());
        const Extent e = held[i];
        held[i] = held.back();
        held.pop_back();
        a.release(std::vector{e});
        for (uint64_t b = e.at; b < e.at + e.length; ++b) used[b] = false;
        in_use -= e.length;
      } else if (dice < 97) {
        a.age_windows();
      } else if (auto e = a.take_for_punch()) {
        ASSERT_GE(e->length, kMinPunch);
        for (uint64_t b = e->at; b < e->at + e->length; ++b) {
          ASSERT_FALSE(used[b]);
          used[b] = true;
        }
        punching.push_back(*e);
      }
      if (!punching.empty() && rng.below(3) == 0) {
        a.punched(punching.back());
        for (uint64_t b = punching.back().at; b < punching.back().at + punching.back().length; ++b) used[b] = false;
        punching.pop_back();
      }
      ASSERT_EQ(a.free(), kBlocks - in_use - total(punching));
    }
    for (const Extent& e : punching) a.punched(e);
    for (const Extent& e : punching)
      for (uint64_t b = e.at; b < e.at + e.length; ++b) used[b] = false;
    std::vector<bool> free(kBlocks, false);
    for (const Extent& e : a.all_free())
      for (uint64_t b = e.at; b < e.at + e.length; ++b) free[b] = true;
    for (uint64_t b = 0; b < kBlocks; ++b) ASSERT_NE(free[b], used[b]) << "block " << b;
  }
}

TEST(Space, TheReserve) {
  EXPECT_EQ(reserve_of(100 * GiB), 3 * GiB);
  EXPECT_EQ(reserve_of(20 * GiB), 1 * GiB);
  EXPECT_EQ(reserve_of(1 * GiB), 1 * GiB / 10);
}

TEST(ReadEpochs, EndWhenTheReadersOfBeforeHaveLeft) {
  ReadEpochs r;
  EXPECT_TRUE(r.ended(r.advance()));
  const uint64_t a = r.enter(), b = r.enter();
  const uint64_t before = r.advance();
  const uint64_t c = r.enter();
  const uint64_t later = r.advance();
  EXPECT_FALSE(r.ended(before));
  r.leave(a);
  EXPECT_FALSE(r.ended(before));
  r.leave(b);
  EXPECT_TRUE(r.ended(before));
  EXPECT_FALSE(r.ended(later));
  r.leave(c);
  EXPECT_TRUE(r.ended(later));
}

}  // namespace
}  // namespace nacre::storage
