// SPDX-License-Identifier: Apache-2.0
#include <rocksdb/db.h>

#include "metadata/store/rocks.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
using test::must;

struct ViewTest : testing::Test {
  test::TempDir dir;
  Store::Options options = test::options_for(dir / "mds");
  std::unique_ptr<test::OpenStore> s;
  void SetUp() override {
    must(Store::format(options));
    s = std::make_unique<test::OpenStore>(options);
  }
  std::string rows(const View& view, std::string_view begin, std::string_view end, size_t most = 100) {
    std::string out;
    must(view.scan(Family::kMeta, begin, end, [&](std::string_view k, std::string_view v) {
      out += std::string(k) + "=" + std::string(v) + " ";
      return --most > 0;
    }));
    return out;
  }
};

TEST_F(ViewTest, ScanAndGetSeeOwnRowsAboveTheTurnsAboveTheStored) {
  Batch stored, turn, own;
  for (const char* k : {"a", "b", "c", "d"}) stored.put(Family::kMeta, k, "0");
  must(s->journal->commit(std::move(stored)));
  turn.put(Family::kMeta, "b", "1");
  turn.del(Family::kMeta, "c");
  turn.put(Family::kMeta, "cc", "1");
  turn.put(Family::kMeta, "e", "1");
  own.put(Family::kMeta, "c", "2");
  own.del(Family::kMeta, "e");
  own.put(Family::kMeta, "aa", "2");
  own.put(Family::kInode, "aaa", "another family");
  View all(*s->store, Tier::kFull, &own, &turn);
  EXPECT_EQ(rows(all, "a", "l"), "a=0 aa=2 b=1 c=2 cc=1 d=0 ") << "the server's own rows follow";
  EXPECT_EQ(rows(all, "super", "z"), "super=" + *must(s->view().get(Family::kMeta, "super")) + " ");
  EXPECT_EQ(rows(all, "a", "z", 3), "a=0 aa=2 b=1 ");
  EXPECT_EQ(rows(all, "aa", "cc"), "aa=2 b=1 c=2 ");
  EXPECT_EQ(rows(View(*s->store, Tier::kFull, nullptr, &turn), "a", "f"), "a=0 b=1 cc=1 d=0 e=1 ");
  EXPECT_EQ(*must(all.get(Family::kMeta, "c")), "2");
  EXPECT_FALSE(must(all.get(Family::kMeta, "e")));
  EXPECT_EQ(*must(all.get(Family::kMeta, "d")), "0");
  auto many = must(all.multi_get(Family::kMeta, {"e", "aa", "b", "d", "nothing"}));
  EXPECT_FALSE(many[0]);
  EXPECT_EQ(*many[1], "2");
  EXPECT_EQ(*many[2], "1");
  EXPECT_EQ(*many[3], "0");
  EXPECT_FALSE(many[4]);
}

TEST_F(ViewTest, CachedTierSaysIncompleteUntilTheBlockWasRead) {
  Batch b;
  b.put(Family::kXattr, "cold", "value");
  must(s->journal->commit(std::move(b)));
  must(s->store->close_clean());
  s.reset();
  s = std::make_unique<test::OpenStore>(options);
  auto cold = s->view(Tier::kCached).get(Family::kXattr, "cold");
  ASSERT_FALSE(cold.has_value());
  EXPECT_EQ(cold.error().code, Errc::kIncomplete);
  auto scan = s->view(Tier::kCached).scan(Family::kXattr, "cold", "d", [](auto, auto) { return true; });
  ASSERT_FALSE(scan.has_value());
  EXPECT_EQ(scan.error().code, Errc::kIncomplete);
  EXPECT_EQ(*must(s->view(Tier::kFull).get(Family::kXattr, "cold")), "value");
  EXPECT_EQ(*must(s->view(Tier::kCached).get(Family::kXattr, "cold")), "value");
}

TEST_F(ViewTest, NumberZeroIsNoInode) {
  Batch b;
  b.put(Family::kXattr, "no inode among the rows", "");  // such a batch gets the gap check's marker, under inode number 0
  must(s->journal->commit(std::move(b)));
  EXPECT_FALSE(must(s->view().inode(Ino(0))));
}

TEST_F(ViewTest, DamagedRecordNamesItsKey) {
  Batch b;
  b.put(Family::kInode, inode_key(Ino(0xab)), "\1garbage");
  must(s->journal->commit(std::move(b)));
  auto r = s->view().inode(Ino(0xab));
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code, Errc::kCorrupt);
  EXPECT_NE(r.error().detail.find("family inode, key 00000000000000ab"), std::string::npos) << r.error().detail;
}

}  // namespace
}  // namespace nacre::mds
