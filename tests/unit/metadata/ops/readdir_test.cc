// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct ReaddirTest : testing::Test {
  World w;
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  /// Names of all pages; each page is asked with the last cookie of the one before.
  std::multiset<std::string> all(bool plus, uint32_t bytes, const std::function<void(int)>& between = nullptr) {
    std::multiset<std::string> out;
    uint64_t cookie = 0;
    for (int page = 0;; ++page) {
      auto r = must(w.readdir(kRoot, d, cookie, plus, bytes));
      for (auto& e : r.entries) {
        EXPECT_GT(e->cookie, cookie);
        EXPECT_GE(e->cookie, kFirstNameHash);
        EXPECT_EQ(e->attr != nullptr, plus);
        out.emplace(as_text(e->name));
        cookie = e->cookie;
      }
      EXPECT_EQ(r.parent, 1u);
      if (r.end) return out;
      EXPECT_FALSE(r.entries.empty());
      if (between) between(page);
    }
  }
};

TEST_F(ReaddirTest, PagesGiveEveryNameOnce) {
  std::multiset<std::string> names;
  EXPECT_TRUE(all(false, 4096).empty());
  for (int i = 0; i < 700; ++i) {
    std::string name = "name" + std::to_string(i) + std::string(i % 100, 'x');
    names.insert(name);
    must(w.create(kRoot, d, name));
  }
  for (bool plus : {false, true})
    for (uint32_t bytes : {0u, 4096u, 50'000u, 1u << 30}) EXPECT_EQ(all(plus, bytes), names);
  EXPECT_GT(must(w.readdir(kRoot, d, 0, true, 1 << 30)).entries.size(), 400u);
}

TEST_F(ReaddirTest, ChangesBetweenPagesNeitherHideNorRepeatTheOthers) {
  for (int i = 0; i < 500; ++i) must(w.create(kRoot, d, "stay" + std::to_string(i)));
  for (int i = 0; i < 200; ++i) must(w.create(kRoot, d, "go" + std::to_string(i)));
  int gone = 0;
  auto seen = all(true, 4096, [&](int page) {
    for (int i = 0; i < 10 && gone < 200; ++i) must(w.unlink(kRoot, d, "go" + std::to_string(gone++)));
    must(w.create(kRoot, d, "new" + std::to_string(page)));
  });
  for (int i = 0; i < 500; ++i) EXPECT_EQ(seen.count("stay" + std::to_string(i)), 1u) << i;
}

TEST_F(ReaddirTest, TypesAndAttributesAreThoseOfLookup) {
  must(w.create(kRoot, d, "f"));
  must(w.mkdir(kRoot, d, "sub"));
  must(w.symlink(kRoot, d, "l", "t"));
  auto page = must(w.readdir(kRoot, d, 0, true));
  ASSERT_EQ(page.entries.size(), 3u);
  for (auto& e : page.entries) {
    EXPECT_EQ(Ino(e->ino), must(w.lookup(kRoot, d, as_text(e->name))));
    EXPECT_EQ(e->type, type_of(e->attr->mode));
    EXPECT_EQ(encode(*e->attr), encode(must(w.getattr(Ino(e->ino)))));
  }
  EXPECT_CODE(w.readdir(kRoot, must(w.lookup(kRoot, d, "f"))), kNotDir);
  EXPECT_TRUE(must(w.readdir(kRoot, d, ~uint64_t{0})).end);
}

}  // namespace
}  // namespace nacre::mds::test
