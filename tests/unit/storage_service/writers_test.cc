// SPDX-License-Identifier: Apache-2.0
#include "storage/service/writers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/memory_dir.h"
#include "tests/unit/common/runtime/hand.h"

namespace nacre::storage {
namespace {

class WritersTest : public ::testing::Test {
 protected:
  void enter(Writers& w, uint64_t session) {
    hand.runtime.loop(0).spawn(nacre::testing::as_task([&w, session]() -> Task<void> {
      auto done = co_await w.enter(SessionId(session));
      EXPECT_TRUE(done) << done.error().message();
    }));
    hand.settle();
  }
  /// How many sessions the file holds.
  size_t stored() const {
    Writers reader;
    EXPECT_TRUE(reader.load(dir, false));
    return reader.awaited().size();
  }
  void SetUp() override {
    std::string pattern = (test::memory_dir() / "nacre-writers-XXXXXX").string();
    dir = ::mkdtemp(pattern.data());
    hand.runtime.start();
  }
  void TearDown() override {
    hand.runtime.stop(0);
    std::filesystem::remove_all(dir);
  }
  std::string dir;
  nacre::testing::Hand hand;
};

TEST_F(WritersTest, AfterAnUncleanStopAllWhoWroteAreWaitedFor) {
  {
    Writers w;
    ASSERT_TRUE(w.load(dir, false));
    EXPECT_FALSE(w.gathering(0)) << "nobody has written yet";
    enter(w, 4);
    enter(w, 9);
  }
  Writers w;
  ASSERT_TRUE(w.load(dir, false));
  EXPECT_TRUE(w.gathering(101 * kSecond));
  EXPECT_EQ(w.awaited(), (std::vector<SessionId>{SessionId(4), SessionId(9)}));
  w.reported(SessionId(9));
  w.reported(SessionId(77));
  EXPECT_TRUE(w.gathering(101 * kSecond));
  w.reported(SessionId(4));
  EXPECT_FALSE(w.gathering(101 * kSecond));
}

TEST_F(WritersTest, WhoSaysNothingIsWaitedForUntilTheLimit) {
  {
    Writers w;
    ASSERT_TRUE(w.load(dir, true));
    enter(w, 4);
  }
  Writers w;
  ASSERT_TRUE(w.load(dir, false));
  EXPECT_TRUE(w.gathering(3600 * kSecond)) << "nobody can have come before it serves";
  w.serves(0, 10 * kSecond);
  w.serves(9 * kSecond, 10 * kSecond);
  EXPECT_TRUE(w.gathering(10 * kSecond - 1));
  EXPECT_FALSE(w.gathering(10 * kSecond));
  EXPECT_FALSE(w.gathering(0)) << "once over it stays over";
}

TEST_F(WritersTest, AfterACleanStopNobodyIsWaitedFor) {
  {
    Writers w;
    ASSERT_TRUE(w.load(dir, true));
    enter(w, 4);
  }
  Writers clean;
  ASSERT_TRUE(clean.load(dir, true));
  EXPECT_FALSE(clean.gathering(0));
  Writers later;
  ASSERT_TRUE(later.load(dir, false));
  EXPECT_FALSE(later.gathering(0)) << "the set of before the clean stop is gone for good";
}

TEST_F(WritersTest, WhoIsGoneOrQuietAndStableLeaves) {
  {
    Writers w;
    ASSERT_TRUE(w.load(dir, true));
    for (uint64_t s : {1, 2, 3, 4}) {
      w.connected(SessionId(s));
      enter(w, s);
      w.leave(SessionId(s), WSeq(10 * s), 0);
    }
    w.disconnected(SessionId(1));  // gone, and stable below
    w.disconnected(SessionId(3));  // gone, but not stable
    ASSERT_TRUE(w.prune(WSeq(20), kSecond));
  }
  {
    Writers w;
    ASSERT_TRUE(w.load(dir, false));
    EXPECT_EQ(w.awaited(), (std::vector<SessionId>{SessionId(2), SessionId(3), SessionId(4)}));
  }
  Writers w;
  ASSERT_TRUE(w.load(dir, true));
  w.connected(SessionId(2));
  enter(w, 2);
  ASSERT_TRUE(w.prune(WSeq(5), Writers::kQuiet + 1));
  EXPECT_EQ(stored(), 1u) << "its write is under way";
  w.leave(SessionId(2), WSeq(5), 0);
  ASSERT_TRUE(w.prune(WSeq(5), Writers::kQuiet));
  EXPECT_EQ(stored(), 1u);
  ASSERT_TRUE(w.prune(WSeq(5), Writers::kQuiet + 1));
  EXPECT_EQ(stored(), 0u) << "it was quiet";
  enter(w, 2);
  w.leave(SessionId(2), WSeq(9), Writers::kQuiet + 2);
  ASSERT_TRUE(w.prune(WSeq(9), Writers::kQuiet + 3));
  EXPECT_EQ(stored(), 1u) << "it is connected still, and no longer quiet";
}

TEST_F(WritersTest, ADamagedFileIsNamed) {
  std::ofstream(dir + "/writers") << "nacre writers 1\n4\nx\n";
  Writers w;
  auto loaded = w.load(dir, false);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Errc::kCorrupt);
  EXPECT_NE(loaded.error().message().find("/writers"), std::string::npos);
}

}  // namespace
}  // namespace nacre::storage
