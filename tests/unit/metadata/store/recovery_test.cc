// SPDX-License-Identifier: Apache-2.0
// Power loss: two logs, the first cut at a batch's end (or emptied, or mid-batch), the second whole. Recovery must give exactly
// the prefix; without the guard RocksDB 7.8 opens with a hole (docs/ondisk.md, "Recovery").
#include <rocksdb/db.h>

#include "metadata/store/rocks.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
namespace fs = std::filesystem;
using test::must;

std::vector<std::pair<uint64_t, fs::path>> logs_of(const std::string& db) {
  std::vector<std::pair<uint64_t, fs::path>> out;
  for (const auto& e : fs::directory_iterator(db))
    if (e.path().extension() == ".log") out.emplace_back(std::stoull(e.path().stem().string()), e.path());
  std::sort(out.begin(), out.end());
  return out;
}

/// Batches 0 … n-1, each with rows in two families; every third one doesn't touch an inode.
struct Image {
  test::TempDir dir;
  std::string live = dir / "mds";
  Store::Options options = test::options_for(live, 64 << 10);
  std::unique_ptr<test::OpenStore> s;
  std::vector<uint64_t> size_after;  ///< of the first log, after batch i
  int batches = 0;
  uint64_t first_log = 0;

  Image() {
    must(Store::format(options));
    s = std::make_unique<test::OpenStore>(options);
    must(s->store->close_clean());  // starts from a flushed state, with an empty log
    s->store->rocks().db->PauseBackgroundWork();  // a flush that is queued and hasn't run
    while (logs_of(live + "/db").size() < 2 || batches == 0) write();
    first_log = logs_of(live + "/db").front().first;
    for (int i = 0; i < 40; ++i) write();
  }
  ~Image() { s->store->rocks().db->ContinueBackgroundWork(); }

  static std::string key(int i) { return fmt::format("k{:06}", i); }
  void write() {
    Batch b;
    b.put(Family::kMeta, key(batches), std::string(300, 'a'));
    if (batches % 3) b.put(Family::kInode, "i" + key(batches), std::string(10, 'b'));
    b.put(Family::kXattr, key(batches), "c");
    must(s->journal->commit(std::move(b)));
    ++batches;
    auto logs = logs_of(live + "/db");
    if (logs.size() == 1) size_after.push_back(fs::file_size(logs[0].second));
  }
  /// Opens a copy whose first log was cut to `size`; returns how many batches are there, -1 if they are no prefix.
  int recovered(uint64_t size, bool expect_gap) {
    std::string copy = dir / "copy";
    fs::remove_all(copy);
    fs::copy(live, copy, fs::copy_options::recursive);
    auto logs = logs_of(copy + "/db");
    EXPECT_GE(logs.size(), 2u);
    EXPECT_EQ(logs.front().first, first_log);
    fs::resize_file(logs.front().second, size);
    auto o = options;
    o.path = copy;
    for (int start = 0, prefix = 0;; ++start) {
      test::OpenStore again(o);
      EXPECT_EQ(again.store->recovered_to_gap(), start == 0 && expect_gap);
      int have = 0;
      for (int i = 0; i < batches; ++i) {
        bool meta = must(again.view().get(Family::kMeta, key(i))).has_value();
        bool xattr = must(again.view().get(Family::kXattr, key(i))).has_value();
        bool inode = must(again.view().get(Family::kInode, "i" + key(i))).has_value();
        if (meta != xattr || (i % 3 && inode != meta)) return -1;
        if (meta && have != i) return -1;
        have += meta;
      }
      if (start == 1) return have == prefix ? have : -1;  // and a second start finds the same
      prefix = have;
    }
  }
};

TEST(Recovery, CutAtAnyBatchEndGivesExactlyThePrefix) {
  Image image;
  ASSERT_GT(image.size_after.size(), 30u);
  for (size_t kept : {size_t{1}, size_t{2}, size_t{7}, image.size_after.size() / 2, image.size_after.size() - 2}) {
    SCOPED_TRACE(kept);
    EXPECT_EQ(image.recovered(image.size_after[kept - 1], true), static_cast<int>(kept));
  }
}

TEST(Recovery, AnEmptiedLogDropsTheNextOneToo) {
  Image image;
  EXPECT_EQ(image.recovered(0, true), 0);
}

TEST(Recovery, CutInsideABatchGivesThePrefixBeforeIt) {
  Image image;
  EXPECT_EQ(image.recovered(image.size_after[10] + 20, false), 11);  // RocksDB sees the torn record and stops there itself
}

TEST(Recovery, WritesAfterATornTailSurviveTheNextStarts) {
  test::TempDir dir;
  auto o = test::options_for(dir / "mds");
  must(Store::format(o));
  auto add = [](test::OpenStore& s, int from, int to) {
    for (int i = from; i < to; ++i) {
      Batch b;
      b.put(Family::kMeta, Image::key(i), std::string(100, 'a'));
      must(s.journal->commit(std::move(b)));
    }
  };
  {
    test::OpenStore s(o);
    add(s, 0, 10);
  }
  auto log = logs_of(dir / "mds/db").back().second;
  fs::resize_file(log, fs::file_size(log) - 30);  // the last batch is torn
  for (int start = 0; start < 3; ++start) {
    test::OpenStore s(o);
    EXPECT_FALSE(s.store->recovered_to_gap());
    for (int i = 0; i < 9 + 5 * start; ++i) EXPECT_TRUE(must(s.view().get(Family::kMeta, Image::key(i)))) << start << " " << i;
    EXPECT_FALSE(must(s.view().get(Family::kMeta, Image::key(9 + 5 * start))));
    add(s, 9 + 5 * start, 14 + 5 * start);
  }
}

TEST(Recovery, NothingLostMeansNothingDropped) {
  Image image;
  auto first = logs_of(image.live + "/db").front().second;
  EXPECT_EQ(image.recovered(fs::file_size(first), false), image.batches);
}

TEST(Recovery, FlushedFamiliesAndOldEmptyLogsAreNoGap) {
  test::TempDir dir;
  auto o = test::options_for(dir / "mds", 64 << 10);
  must(Store::format(o));
  int batches = 0;
  for (int start = 0; start < 4; ++start) {
    test::OpenStore s(o);
    EXPECT_FALSE(s.store->recovered_to_gap());
    for (int i = 0; i < batches; ++i) ASSERT_TRUE(must(s.view().get(Family::kMeta, Image::key(i)))) << i;
    if (start == 2) continue;  // a start that writes nothing but its own batch
    for (int i = 0; i < 700; ++i, ++batches) {
      Batch b;
      b.put(Family::kMeta, Image::key(batches), std::string(300, 'a'));
      if (i % 50 == 0) b.put_inode(test::some_inode(100 + i));
      must(s.journal->commit(std::move(b)));
    }
  }
}

}  // namespace
}  // namespace nacre::mds
