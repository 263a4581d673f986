// SPDX-License-Identifier: Apache-2.0
// Formatting, starting and stopping: what is refused, with which sentence, and what survives.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>

#include "storage/object/index.h"
#include "storage/object/superblock.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct OpenTest : ::testing::Test {
  Rig rig;
  const ObjectId a = Rig::object(100);
  std::string ost() const { return rig.dir + "/ost"; }

  void refused(Errc code, const std::string& sentence) {
    auto ok = rig.open();
    ASSERT_FALSE(ok) << "it opened";
    EXPECT_EQ(name_of(ok.error().code), name_of(code)) << ok.error().message();
    EXPECT_THAT(ok.error().detail, HasSubstr(sentence));
    EXPECT_THAT(ok.error().detail, HasSubstr(ost()));
  }
  /// Changes the index of the closed target.
  void edit(const std::function<void(Batch&, schema::OstSuperT)>& change) {
    auto index = Index::open({.dir = ost() + "/index", .env = rig.env.get()});
    ASSERT_TRUE(index) << index.error().message();
    std::string value;
    ASSERT_TRUE((*index)->get(Family::kSuper, kSuperKey, value, Tier::kDisk).value());
    auto super = decode_record<schema::OstSuperT>(value);
    ASSERT_TRUE((*index)->commit([&](Batch& b) -> Result<void> {
      change(b, *super);
      return {};
    }));
    ASSERT_TRUE((*index)->sync());
  }
};

TEST_F(OpenTest, FormatRefusesWhatItWouldDestroy) {
  FormatOptions f;
  f.capacity = rig.capacity;
  auto again = ObjectStore::format(ost(), f);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::kExist);
  EXPECT_THAT(again.error().detail, HasSubstr("delete what is in it"));
  const std::string other = rig.dir + "/other";
  fs::create_directory(other);
  std::ofstream(other + "/thesis.tex") << "x";
  auto full = ObjectStore::format(other, f);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Errc::kNotOurs);
  EXPECT_THAT(full.error().detail, HasSubstr("thesis.tex"));
  f.capacity = kMinCapacity - 1;
  auto small = ObjectStore::format(rig.dir + "/small", f);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Errc::kInval);
  f.capacity = kMinCapacity;
  const std::string fresh = rig.dir + "/fresh";
  fs::create_directories(fresh + "/lost+found");
  EXPECT_TRUE(ObjectStore::format(fresh, f));
}

TEST_F(OpenTest, ADirectoryThatIsNoTarget) {
  fs::remove_all(ost());
  refused(Errc::kNotOurs, "format it");
  fs::create_directory(ost());
  refused(Errc::kNotOurs, "no storage target");
}

TEST_F(OpenTest, AFormattingThatWasCutShort) {
  fs::remove_all(ost() + "/index");
  refused(Errc::kNotOurs, "cut short");
  { ASSERT_TRUE(Index::open({.dir = ost() + "/index", .create = true})); }
  refused(Errc::kNotOurs, "never formatted to the end");
}

TEST_F(OpenTest, AnotherClusterOrTarget) {
  rig.options.cluster_id = test_uuid(9);
  refused(Errc::kNotOurs, "belongs to cluster 01010101-0101");
  rig.options.cluster_id = test_uuid(1);
  rig.options.ost = OstId(4);
  refused(Errc::kNotOurs, "is ost3, not ost4");
}

TEST_F(OpenTest, ASecondProcess) {
  const int fd = ::open((ost() + "/lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  refused(Errc::kInUse, "another process");
  ::close(fd);
  EXPECT_TRUE(rig.open());
}

TEST_F(OpenTest, ANewerFormat) {
  edit([](Batch& b, schema::OstSuperT s) {
    s.incompat = 1;
    b.put(Family::kSuper, kSuperKey, encode_super(s));
  });
  refused(Errc::kVersion, "bits 0x1");
  edit([](Batch& b, schema::OstSuperT s) {
    s.incompat = 0;
    s.compat = 1;  // this one may be ignored
    b.put(Family::kSuper, kSuperKey, encode_super(s));
  });
  ASSERT_TRUE(rig.open());
  ASSERT_TRUE(rig.close());
  edit([](Batch& b, schema::OstSuperT s) {
    std::string value = encode_super(s);
    value[0] = kRecordFormat + 1;
    b.put(Family::kSuper, kSuperKey, value);
  });
  refused(Errc::kVersion, "newer version of Nacre");
}

TEST_F(OpenTest, ADamagedSuperblock) {
  edit([](Batch& b, schema::OstSuperT s) { b.put(Family::kSuper, kSuperKey, encode_super(s).substr(0, 20)); });
  refused(Errc::kCorrupt, "nacre fsck");
}

TEST_F(OpenTest, ADamagedIndexFile) {
  ASSERT_TRUE(rig.open());
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(rig.write(Rig::object(i + 1), 0, Rig::bytes(4096, i)));
  ASSERT_TRUE(rig.close());
  { ASSERT_TRUE(Index::open({.dir = ost() + "/index", .env = rig.env.get()})); }  // flushes the log into tables
  bool damaged = false;
  for (auto& e : fs::directory_iterator(ost() + "/index")) {
    if (e.path().extension() != ".sst") continue;
    fs::resize_file(e.path(), fs::file_size(e.path()) / 2);
    damaged = true;
  }
  ASSERT_TRUE(damaged);
  refused(Errc::kCorrupt, "nacre fsck");
}

TEST_F(OpenTest, BlocksCutShort) {
  rig.options.device = std::make_shared<MemoryDevice>(rig.capacity / 2);
  refused(Errc::kCorrupt, "cut short");
}

TEST_F(OpenTest, ACleanStopKeepsTheAllocator) {
  ASSERT_TRUE(rig.open());
  EXPECT_TRUE(rig.store->registration().incarnation == 1 && !rig.store->registration().clean);
  ASSERT_TRUE(rig.write(a, 0, Rig::bytes(100'000, 1)));
  const Usage before = rig.store->usage();
  ASSERT_TRUE(rig.close());
  const uint64_t reads = rig.device->reads();
  ASSERT_TRUE(rig.open());
  EXPECT_TRUE(rig.store->registration().clean);
  EXPECT_EQ(rig.store->registration().incarnation, 2u);
  EXPECT_EQ(rig.device->reads(), reads) << "nothing has to be verified";
  const Usage after = rig.store->usage();
  EXPECT_EQ(after.used, before.used);
  EXPECT_EQ(after.objects, before.objects);
  // The record is used once: a kill after this start means a scan.
  rig.kill();
  ASSERT_TRUE(rig.open());
  EXPECT_FALSE(rig.store->registration().clean);
  EXPECT_EQ(rig.store->usage().used, before.used);
}

TEST_F(OpenTest, WriteSequencesAreNeverReused) {
  ASSERT_TRUE(rig.open());
  auto first = rig.write(a, 0, Rig::bytes(4096, 1));
  SeededRng rng(1);
  rig.power_cut(rng);
  ASSERT_TRUE(rig.open());
  EXPECT_GE(rig.store->registration().wseq, first->wseq);
  auto second = rig.write(a, 0, Rig::bytes(4096, 1));
  EXPECT_GT(second->wseq, rig.store->registration().wseq);
}

TEST_F(OpenTest, AnUnsyncedOverwriteFallsBackToTheSyncedVersion) {
  // Seeds until the cut loses the data of the second version but keeps its record.
  size_t restored = 0;
  for (uint64_t seed = 1; seed < 40 && restored == 0; ++seed) {
    Rig r;
    SeededRng rng(seed);
    ASSERT_TRUE(r.open());
    const Buffer one = Rig::bytes(64 * 1024, 1), two = Rig::bytes(64 * 1024, 2);
    ASSERT_TRUE(r.write(a, 0, one, {}, true));
    auto w = r.write(a, 0, two);
    ASSERT_TRUE(w);
    r.power_cut(rng);
    ASSERT_TRUE(r.open());
    restored = r.store->status().undo_restored;
    auto got = r.read(a, 0, 64 * 1024);
    ASSERT_TRUE(got) << got.error().message();
    for (uint64_t b = 0; b < 16; ++b) {
      const auto have = got->substr(b * kBlockSize, kBlockSize);
      const bool is_one = std::memcmp(have.data(), one.data() + b * kBlockSize, kBlockSize) == 0;
      const bool is_two = std::memcmp(have.data(), two.data() + b * kBlockSize, kBlockSize) == 0;
      EXPECT_TRUE(is_one || is_two) << "fsynced data is gone";
    }
    // The client still has it.
    ASSERT_TRUE(r.write(a, 0, two, w->wseq));
    EXPECT_EQ(std::memcmp(r.read(a, 0, 64 * 1024)->data(), two.data(), two.size()), 0);
  }
  EXPECT_GT(restored, 0u);
}

}  // namespace
}  // namespace nacre::storage::testing
