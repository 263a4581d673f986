// SPDX-License-Identifier: Apache-2.0
// What is under way, seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/runtime/watch.h"

namespace nacre {
namespace {

TEST(Watch, ListsTheOldestFirstAndForgetsWhatEnded) {
  Watch watch(2);
  Watched a(watch, 10, [] { return std::string("a"); });
  {
    Watched b(watch, 5, [] { return std::string("b"); });
    EXPECT_EQ(watch.count(), 2u);
    auto rows = watch.list(20, 0, 10);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].text, "b");
    EXPECT_EQ(rows[0].age, 15);
    EXPECT_EQ(watch.list(20, 0, 1).size(), 1u);
    EXPECT_EQ(watch.list(20, 12, 10).size(), 1u) << "a is younger";
  }
  EXPECT_EQ(watch.count(), 1u);
}

TEST(Watch, TellsOfEachOnceUntilItIsTimeAgain) {
  Watch watch(1);
  int asked = 0;
  Watched a(watch, 0, [&asked] { return std::to_string(++asked); });
  EXPECT_TRUE(watch.news(4, 5, 50, 10).empty());
  EXPECT_EQ(watch.news(5, 5, 50, 10).size(), 1u);
  EXPECT_TRUE(watch.news(20, 5, 50, 10).empty());
  EXPECT_EQ(watch.news(55, 5, 50, 10).size(), 1u);
  EXPECT_EQ(asked, 2) << "nothing is formatted for nobody";
}

}  // namespace
}  // namespace nacre
