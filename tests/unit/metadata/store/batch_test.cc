// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "metadata/store/batch.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {

TEST(Batch, LastValueOfARowWinsBelowAndAboveTheIndex) {
  for (int rows : {5, 11, 12, 13, 200}) {
    Batch b;
    for (int round = 0; round < 2; ++round)
      for (int i = 0; i < rows; ++i) b.put(Family::kMeta, "k" + std::to_string(i), std::to_string(i + 1000 * round));
    b.del(Family::kMeta, "k0");
    b.put(Family::kInode, "k1", "other family");
    ASSERT_EQ(b.rows().size(), static_cast<size_t>(rows) + 1);
    EXPECT_FALSE(b.find(Family::kMeta, "k0")->value);
    EXPECT_EQ(*b.find(Family::kMeta, "k1")->value, "1001");
    EXPECT_EQ(*b.find(Family::kInode, "k1")->value, "other family");
    EXPECT_EQ(b.find(Family::kMeta, "k" + std::to_string(rows)), nullptr);
  }
}

TEST(Batch, AppendKeepsTheLaterOperationsRows) {
  Batch a, b;
  a.put(Family::kReply, "r1", "x");
  a.put(Family::kReply, "s1", "x");
  a.charge({FilesetId(1), 1, 1, 10, 1});
  b.put(Family::kReply, "s1", "y");
  b.del_range(Family::kReply, "r", "s");
  b.charge({FilesetId(1), 1, 1, -10, 1});
  b.log({});
  a.append(std::move(b));
  EXPECT_TRUE(b.empty());
  EXPECT_FALSE(a.find(Family::kReply, "r1")->value) << "the later range deletion covers it";
  EXPECT_EQ(*a.find(Family::kReply, "s1")->value, "y");
  ASSERT_EQ(a.charges().size(), 1u);
  EXPECT_EQ(a.charges()[0].bytes, 0);
  EXPECT_EQ(a.charges()[0].inodes, 2);
  EXPECT_EQ(a.changelog().size(), 1u);
  EXPECT_EQ(a.ranges().size(), 1u);
}

TEST(Batch, AccountChargesTheDifference) {
  auto before = test::some_inode(5, 1000, 4096), after = test::some_inode(5, 1000, 8192);
  Batch b;
  b.account(&before, &before);
  EXPECT_TRUE(b.empty());
  b.account(&before, &after);
  ASSERT_EQ(b.charges().size(), 1u);
  EXPECT_EQ(b.charges()[0].bytes, 4096);
  EXPECT_EQ(b.charges()[0].inodes, 0);
  b.clear();
  after.uid = 7;
  b.account(&before, &after);
  ASSERT_EQ(b.charges().size(), 2u);
  EXPECT_EQ(b.charges()[0].inodes, -1);
  EXPECT_EQ(b.charges()[1].bytes, 8192);
}

}  // namespace
}  // namespace nacre::mds
