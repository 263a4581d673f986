// SPDX-License-Identifier: Apache-2.0
// The index recovers exactly a prefix of its batches, also from the image that RocksDB alone opens with a hole in the middle.
#include <unistd.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include "common/base/rng.h"
#include "storage/object/index.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage {
namespace {
namespace fs = std::filesystem;
using nacre::testing::Power;
using nacre::testing::PowerEnv;

struct TempDir {
  std::string path = storage::testing::temp_dir();
  ~TempDir() { fs::remove_all(path); }
};

std::string name_of_number(uint64_t n) { return std::string(Key<8>().add(n).view()); }

Result<void> put(Index& index, uint64_t n, size_t size = 300) {
  auto r = index.commit([&](Batch& b) -> Result<void> {
    b.put(Family::kObject, name_of_number(n), std::string(size, 'o'));
    b.put(Family::kChunk, name_of_number(n), std::string(10, 'c'));
    return {};
  });
  if (!r) return std::unexpected(r.error());
  return {};
}

/// How many of 1, 2, 3 … are there; fails if one is there behind a missing one, or in one family alone.
uint64_t prefix(const Index& index, uint64_t up_to) {
  uint64_t have = 0;
  bool missing = false;
  std::string value;
  for (uint64_t n = 1; n <= up_to; ++n) {
    const bool object = *index.get(Family::kObject, name_of_number(n), value, Tier::kDisk);
    const bool chunk = *index.get(Family::kChunk, name_of_number(n), value, Tier::kDisk);
    EXPECT_EQ(object, chunk) << "half of batch " << n;
    if (!object) missing = true;
    else EXPECT_FALSE(missing) << "batch " << n << " lies behind a gap";
    have += object && !missing;
  }
  return have;
}

TEST(Index, CommitsGetsScans) {
  TempDir t;
  auto index = Index::open({.dir = t.path + "/i", .create = true});
  ASSERT_TRUE(index) << index.error().message();
  for (uint64_t n = 1; n <= 5; ++n) ASSERT_TRUE(put(**index, n));
  EXPECT_EQ((*index)->last(), JournalNo(5));
  auto refused = (*index)->commit([](Batch& b) -> Result<void> {
    b.put(Family::kObject, "x", "y");
    return Err(Errc::kRetryLater);
  });
  EXPECT_FALSE(refused);
  EXPECT_EQ((*index)->last(), JournalNo(5)) << "a refused batch has no number";
  std::string value;
  EXPECT_FALSE((*index)->get(Family::kObject, "x", value, Tier::kDisk).value());
  std::vector<uint64_t> seen;
  ASSERT_TRUE((*index)->scan(Family::kObject, name_of_number(2), name_of_number(4), [&](std::string_view key, std::string_view) {
    seen.push_back(read_number<uint64_t>(key, 0));
    return true;
  }));
  EXPECT_EQ(seen, (std::vector<uint64_t>{2, 3}));
  ASSERT_TRUE((*index)->commit([](Batch& b) -> Result<void> {
    b.erase_range(Family::kObject, name_of_number(1), name_of_number(4));
    b.erase(Family::kObject, name_of_number(5));
    return {};
  }));
  EXPECT_FALSE((*index)->get(Family::kObject, name_of_number(3), value, Tier::kDisk).value());
  EXPECT_TRUE((*index)->get(Family::kObject, name_of_number(4), value, Tier::kDisk).value());
}

TEST(Index, RefusesWhatIsNoIndexAndWhatIsOpen) {
  TempDir t;
  auto none = Index::open({.dir = t.path + "/i"});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::kNotOurs);
  auto index = Index::open({.dir = t.path + "/i", .create = true});
  ASSERT_TRUE(index);
  auto second = Index::open({.dir = t.path + "/i"});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kInUse);
}

TEST(Index, NumbersGoOnAfterARestart) {
  TempDir t;
  PowerEnv env(std::make_shared<Power>());
  {
    auto index = Index::open({.dir = t.path + "/i", .env = &env, .create = true});
    for (uint64_t n = 1; n <= 3; ++n) ASSERT_TRUE(put(**index, n));
  }
  for (uint64_t n = 4; n <= 20; ++n) {
    auto index = Index::open({.dir = t.path + "/i", .env = &env});
    ASSERT_TRUE(index) << index.error().message();
    EXPECT_EQ(prefix(**index, 25), n - 1);
    ASSERT_TRUE(put(**index, n));
    if (n % 5 == 0) ASSERT_TRUE((*index)->rotate());
  }
}

TEST(Index, RotationStartsANewLogAndLosesNothing) {
  TempDir t;
  uint64_t n = 0;
  {
    auto index = Index::open({.dir = t.path + "/i", .create = true});
    while (!(*index)->rotation_due()) ASSERT_TRUE(put(**index, ++n, 100'000));
    ASSERT_TRUE((*index)->rotate());
    EXPECT_FALSE((*index)->rotation_due());
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(**index, ++n, 100'000));
  }
  auto index = Index::open({.dir = t.path + "/i"});
  ASSERT_TRUE(index);
  EXPECT_EQ(prefix(**index, n + 5), n);
}

// Two logs, the older one cut at a record boundary (a lost tail looks so on ext4): RocksDB 7.8 alone replays both.
TEST(Index, AGapInTheMiddleEndsTheReplay) {
  TempDir t;
  const std::string dir = t.path + "/i", image = t.path + "/image";
  { ASSERT_TRUE(Index::open({.dir = dir, .create = true})); }
  constexpr uint64_t kFirst = 40, kSecond = 30;
  uint64_t kept_bytes = 0;
  {
    // The same families and numbers, but with a flush that stays queued.
    rocksdb::Options o;
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const char* name : {"default", "object", "chunk", "undo", "tombstone", "fence", "epoch"}) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(o, dir, families, &handles, &db).ok());
    db->PauseBackgroundWork();
    auto logs = [&] {
      std::vector<fs::path> out;
      for (auto& e : fs::directory_iterator(dir))
        if (e.path().extension() == ".log") out.push_back(e.path());
      std::sort(out.begin(), out.end());
      return out;
    };
    auto add = [&](uint64_t n) {
      rocksdb::WriteBatch b;
      b.PutLogData(name_of_number(n));
      b.Put(handles[1], name_of_number(n), std::string(300, 'o'));
      b.Put(handles[2], name_of_number(n), std::string(10, 'c'));
      ASSERT_TRUE(db->Write({}, &b).ok());
    };
    uint64_t n = 0;
    fs::path first = logs().back();
    for (uint64_t i = 0; i < kFirst; ++i) {
      if (i == kFirst / 2) kept_bytes = fs::file_size(first);
      add(++n);
    }
    rocksdb::FlushOptions flush;
    flush.wait = false;
    flush.allow_write_stall = true;
    ASSERT_TRUE(db->Flush(flush, handles).ok());
    for (uint64_t i = 0; i < kSecond; ++i) add(++n);
    ASSERT_NE(logs().back(), first);
    fs::copy(dir, image, fs::copy_options::recursive);
    ASSERT_EQ(::truncate((image / first.filename()).c_str(), static_cast<off_t>(kept_bytes)), 0);
    db->ContinueBackgroundWork();
    for (auto* h : handles) db->DestroyColumnFamilyHandle(h);
    delete db;
  }
  for (int round = 0; round < 2; ++round) {  // the dropped batches don't come back with the next start
    auto index = Index::open({.dir = image});
    ASSERT_TRUE(index) << index.error().message();
    EXPECT_EQ(prefix(**index, kFirst + kSecond), kFirst / 2);
    EXPECT_EQ((*index)->last().v, round == 0 ? kFirst / 2 : 0);
  }
}

TEST(Index, APowerCutLeavesAPrefixThatHoldsAllThatWasSynced) {
  SeededRng rng(11);
  for (int round = 0; round < (storage::testing::long_form() ? 100 : 4); ++round) {
    TempDir t;
    auto power = std::make_shared<Power>();
    PowerEnv env(power);
    { ASSERT_TRUE(Index::open({.dir = t.path + "/i", .env = &env, .create = true})); }
    uint64_t n = 0, synced = 0;
    for (int boot = 0; boot < 3; ++boot) {
      auto index = Index::open({.dir = t.path + "/i", .env = &env});
      ASSERT_TRUE(index) << index.error().message();
      const uint64_t have = prefix(**index, n + 5);
      EXPECT_GE(have, synced);
      EXPECT_LE(have, n);
      n = have;
      power->cut_after(static_cast<int64_t>(rng.below(150)));
      while (!power->off()) {
        if (!put(**index, n + 1, 1 + rng.below(5'000))) break;
        ++n;
        const uint64_t before = n;
        if (rng.below(10) == 0 && (*index)->sync()) synced = before;
        if (rng.below(40) == 0 && (*index)->rotate()) synced = before;
      }
      ++n;  // the one under way may be there
      index->reset();
      env.restore_files(rng);
      power->restore();
    }
  }
}

}  // namespace
}  // namespace nacre::storage
