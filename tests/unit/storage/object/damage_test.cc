// SPDX-License-Identifier: Apache-2.0
// Damage: what a scrub finds, and that damaged records cost their own object only, at the start, in reads, and in commands.
#include <gmock/gmock.h>

#include "storage/object/chunk.h"
#include "storage/object/index.h"
#include "storage/object/superblock.h"
#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {
using ::testing::HasSubstr;

struct DamageTest : ::testing::Test {
  Rig rig;
  const ObjectId a = Rig::object(100), b = Rig::object(200), c = Rig::object(300);

  void open() {
    auto ok = rig.open();
    ASSERT_TRUE(ok) << ok.error().message();
  }
  /// Changes rows of the closed target's index; with `unclean` as if it had been killed.
  void edit(bool unclean, const std::function<void(Batch&)>& change) {
    auto index = Index::open({.dir = rig.dir + "/ost/index", .env = rig.env.get()});
    ASSERT_TRUE(index) << index.error().message();
    std::string value;
    ASSERT_TRUE((*index)->get(Family::kSuper, kSuperKey, value, Tier::kDisk).value());
    auto super = decode_record<schema::OstSuperT>(value);
    super->clean = super->clean && !unclean;
    ASSERT_TRUE((*index)->commit([&](Batch& batch) -> Result<void> {
      batch.put(Family::kSuper, kSuperKey, encode_super(*super));
      change(batch);
      return {};
    }));
    ASSERT_TRUE((*index)->sync());
  }
  struct Scrubbed {
    std::vector<DamagedRange> damaged;
    uint64_t bytes = 0;
    size_t pages = 0;
  };
  Scrubbed scrub(uint64_t page = kMinScrub) {
    Scrubbed out;
    ObjectId object;
    uint64_t chunk = 0;
    for (bool end = false; !end && out.pages < 100; ++out.pages) {
      auto r = rig.run(rig.store->scrub(object, chunk, page));
      EXPECT_TRUE(r) << r.error().message();
      if (!r) break;
      object = r->object, chunk = r->chunk, end = r->end;
      out.bytes += r->bytes;
      out.damaged.insert(out.damaged.end(), r->damaged.begin(), r->damaged.end());
    }
    return out;
  }
  std::vector<ObjectId> listed(size_t limit) {
    std::vector<ObjectId> out;
    for (std::optional<ObjectId> after; out.size() < 1000;) {
      auto r = rig.run(rig.store->list(after, limit));
      EXPECT_TRUE(r) << r.error().message();
      if (!r) break;
      EXPECT_LE(r->objects.size(), limit);
      for (const ListedObject& o : r->objects) out.push_back(o.object);
      if (r->end) break;
      after = out.back();
    }
    return out;
  }
  /// Offset in the device of the block of `data` at `offset`.
  uint64_t place(const Buffer& data, uint64_t offset) {
    const uint64_t at = rig.device->find({reinterpret_cast<const char*>(data.data()) + offset, kBlockSize});
    EXPECT_NE(at, UINT64_MAX);
    return at;
  }
};

TEST_F(DamageTest, ListsObjectsInPages) {
  open();
  std::vector<ObjectId> made;
  for (uint64_t i = 1; i <= 7; ++i) {
    made.push_back(Rig::object(i * 3, static_cast<uint32_t>(i)));
    ASSERT_TRUE(rig.write(made.back(), 0, Rig::bytes(5000 * i, i)));
  }
  EXPECT_EQ(listed(3), made);
  EXPECT_EQ(listed(7), made);
  EXPECT_EQ(listed(100), made);
  auto page = rig.run(rig.store->list(made[2], 2));
  ASSERT_TRUE(page);
  EXPECT_EQ(page->total, 7u);
  EXPECT_FALSE(page->end);
  EXPECT_EQ(page->objects.at(0).object, made[3]);
  EXPECT_EQ(page->objects.at(0).info.size, 20'000u);
  EXPECT_EQ(page->objects.at(0).fileset, kRootFileset);
  EXPECT_FALSE(rig.run(rig.store->list(std::nullopt, 0)));
  EXPECT_FALSE(rig.run(rig.store->list(std::nullopt, kMaxListed + 1)));
}

TEST_F(DamageTest, AScrubFindsExactlyTheFlippedBlocks) {
  open();
  const Buffer x = Rig::bytes(1 * MiB, 1), y = Rig::bytes(1 * MiB, 2), z = Rig::bytes(9'000, 3);
  ASSERT_TRUE(rig.write(a, 0, x));
  ASSERT_TRUE(rig.write(a, 5 * MiB, y));
  ASSERT_TRUE(rig.write(b, 0, z));
  ASSERT_TRUE(rig.command(wire::kCmdAllocate, c, 1, 0, 3 * MiB));  // holds nothing: nothing to verify
  auto whole = scrub();
  EXPECT_TRUE(whole.damaged.empty());
  EXPECT_EQ(whole.bytes, 2 * MiB + 3 * kBlockSize);
  EXPECT_GT(whole.pages, 1u);
  rig.device->flip(place(x, 8 * kBlockSize) + 17, 3);
  rig.device->flip(place(x, 9 * kBlockSize), 0);
  rig.device->flip(place(y, 0) + 4095, 7);
  for (uint64_t page : {kMinScrub, kMaxScrub}) {
    auto found = scrub(page);
    ASSERT_EQ(found.damaged.size(), 2u);
    EXPECT_EQ(found.damaged[0].object, a);
    EXPECT_EQ(found.damaged[0].offset, 8 * kBlockSize);
    EXPECT_EQ(found.damaged[0].length, 2 * kBlockSize);
    EXPECT_EQ(found.damaged[1].object, a);
    EXPECT_EQ(found.damaged[1].offset, 5 * MiB);
    EXPECT_EQ(found.damaged[1].length, kBlockSize);
  }
  EXPECT_EQ(rig.store->status().checksum_errors, 6u);
  // What is overwritten or deleted is damaged no more.
  ASSERT_TRUE(rig.write(a, 8 * kBlockSize, Rig::bytes(2 * kBlockSize, 5)));
  EXPECT_EQ(scrub().damaged.size(), 1u);
  ASSERT_TRUE(rig.command(wire::kCmdDestroy, a, 2));
  EXPECT_TRUE(scrub().damaged.empty());
}

TEST_F(DamageTest, AnUnreadableBlockIsOneBlock) {
  open();
  const Buffer x = Rig::bytes(256 * KiB, 1);
  ASSERT_TRUE(rig.write(a, 0, x));
  rig.device->fail_reads(place(x, 4 * kBlockSize), kBlockSize);
  auto found = scrub();
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_EQ(found.damaged[0].offset, 4 * kBlockSize);
  EXPECT_EQ(found.damaged[0].length, kBlockSize);
}

TEST_F(DamageTest, ADamagedChunkRecordCostsOnlyItsChunk) {
  for (bool unclean : {false, true}) {
    SCOPED_TRACE(unclean ? "after a kill" : "after a clean stop");
    open();
    const uint64_t empty = rig.store->usage().used;
    ASSERT_TRUE(rig.write(a, 0, Rig::bytes(1 * MiB, 1)));
    ASSERT_TRUE(rig.write(a, 1 * MiB, Rig::bytes(1 * MiB, 2)));
    ASSERT_TRUE(rig.write(b, 0, Rig::bytes(64 * KiB, 3)));
    ASSERT_TRUE(rig.close());
    edit(unclean, [&](Batch& batch) { batch.put(Family::kChunk, chunk_key(a, 1), "rubbish"); });
    open();
    EXPECT_TRUE(rig.read(a, 0, 1 * MiB));
    EXPECT_TRUE(rig.read(b, 0, 64 * KiB));
    auto lost = rig.read(a, 1 * MiB, 4096);
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code, Errc::kCorrupt);
    EXPECT_THAT(lost.error().detail, HasSubstr(fmt::format("ost3 object {} offset {}", a, 1 * MiB)));
    auto refused = rig.write(a, 1 * MiB + 4096, Rig::bytes(4096, 4));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kCorrupt);
    auto found = scrub();
    ASSERT_EQ(found.damaged.size(), 1u);
    EXPECT_EQ(found.damaged[0].object, a);
    EXPECT_EQ(found.damaged[0].offset, 1 * MiB);
    EXPECT_EQ(found.damaged[0].length, 1 * MiB);
    // A cut through it leaves the rest of it as it is; one in front of it takes it away.
    ASSERT_TRUE(rig.command(wire::kCmdTruncate, a, unclean ? 20 : 10, 1 * MiB + 100));
    EXPECT_EQ(scrub().damaged.size(), 1u);
    if (!unclean) {
      ASSERT_TRUE(rig.command(wire::kCmdTruncate, a, 11, 1 * MiB));
      EXPECT_TRUE(scrub().damaged.empty());
      EXPECT_TRUE(rig.write(a, 1 * MiB, Rig::bytes(4096, 5)));
    }
    ASSERT_TRUE(rig.command(wire::kCmdDestroy, a, unclean ? 22 : 12));
    ASSERT_TRUE(rig.command(wire::kCmdDestroy, b, unclean ? 23 : 13));
    EXPECT_TRUE(scrub().damaged.empty());
    // The blocks that nobody could name any more are free again after the next start, also after a clean stop.
    ASSERT_TRUE(rig.close());
    open();
    EXPECT_EQ(rig.store->usage().used, empty);
    EXPECT_EQ(rig.store->usage().objects, 0u);
    rig.pass(kTombstoneTerm + 2 * 10 * kSecond + kSecond);  // so that the numbers can be used again
    ASSERT_TRUE(rig.close());
  }
}

TEST_F(DamageTest, ADamagedObjectRecordCostsOnlyItsObject) {
  for (bool unclean : {false, true}) {
    SCOPED_TRACE(unclean ? "after a kill" : "after a clean stop");
    const ObjectId x = Rig::object(unclean ? 500 : 400);
    open();
    ASSERT_TRUE(rig.write(x, 0, Rig::bytes(64 * KiB, 1)));
    ASSERT_TRUE(rig.write(b, 0, Rig::bytes(64 * KiB, 2)));
    ASSERT_TRUE(rig.close());
    edit(unclean, [&](Batch& batch) { batch.put(Family::kObject, object_key(x), "rubbish"); });
    open();
    EXPECT_TRUE(rig.read(b, 0, 64 * KiB));
    auto infos = rig.run(rig.store->stat({b, x}));
    ASSERT_TRUE(infos) << "one damaged object must not hide the others";
    EXPECT_TRUE(infos->at(0).exists);
    EXPECT_FALSE(infos->at(1).exists);
    auto list = rig.run(rig.store->list(std::nullopt, 10));
    ASSERT_TRUE(list);
    ASSERT_EQ(list->objects.size(), 2u);
    EXPECT_TRUE(list->objects[0].info.exists);
    EXPECT_EQ(list->objects[1].object, x);
    EXPECT_FALSE(list->objects[1].info.exists);
    for (auto error : {rig.read(x, 0, 4096).error(), rig.write(x, 0, Rig::bytes(4096, 3)).error(), rig.command(wire::kCmdTruncate, x, 5, 0).error()}) {
      EXPECT_EQ(error.code, Errc::kCorrupt);
      EXPECT_THAT(error.detail, HasSubstr(fmt::format("ost3 object {}", x)));
    }
    EXPECT_FALSE(rig.stat(x).exists);
    ASSERT_TRUE(rig.command(wire::kCmdDestroy, x, unclean ? 7 : 6));
    rig.pass(3 * kSecond);
    EXPECT_EQ(rig.store->usage().used, 64 * KiB) << "its chunks are gone with it";
    EXPECT_EQ(listed(10), std::vector{b});
    ASSERT_TRUE(rig.close());
  }
}

TEST_F(DamageTest, ABlockOfTwoObjectsIsFreedOnce) {
  open();
  ASSERT_TRUE(rig.write(a, 0, Rig::bytes(kBlockSize, 1)));
  ASSERT_TRUE(rig.write(b, 0, Rig::bytes(kBlockSize, 2)));
  ASSERT_TRUE(rig.close());
  std::string stolen;
  {
    auto index = Index::open({.dir = rig.dir + "/ost/index", .env = rig.env.get()});
    ASSERT_TRUE(index);
    ASSERT_TRUE((*index)->get(Family::kChunk, chunk_key(a, 0), stolen, Tier::kDisk).value());
  }
  edit(true, [&](Batch& batch) { batch.put(Family::kChunk, chunk_key(b, 0), stolen); });
  open();
  EXPECT_TRUE(rig.read(a, 0, kBlockSize));
  auto other = rig.read(b, 0, kBlockSize);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::kChecksum);
  auto found = scrub();
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_EQ(found.damaged[0].object, b);
  ASSERT_TRUE(rig.command(wire::kCmdDestroy, b, 1));
  rig.pass(3 * kSecond);
  ASSERT_TRUE(rig.write(c, 0, Rig::bytes(4 * MiB / 4, 3)));
  EXPECT_TRUE(rig.read(a, 0, kBlockSize)) << "its block was given away";
  EXPECT_TRUE(scrub().damaged.empty());
}

TEST_F(DamageTest, ATruncationIntoADamagedBlockSucceedsAndItStaysDamaged) {
  open();
  const Buffer x = Rig::bytes(4 * kBlockSize, 1);
  ASSERT_TRUE(rig.write(a, 0, x));
  rig.device->flip(place(x, 2 * kBlockSize) + 5, 1);
  ASSERT_TRUE(rig.command(wire::kCmdTruncate, a, 1, 2 * kBlockSize + 100));
  EXPECT_TRUE(rig.read(a, 0, 2 * kBlockSize));
  auto lost = rig.read(a, 2 * kBlockSize, 100);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Errc::kChecksum);
  auto found = scrub();
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_EQ(found.damaged[0].offset, 2 * kBlockSize);
  ASSERT_TRUE(rig.write(a, 2 * kBlockSize, Rig::bytes(kBlockSize, 7)));
  EXPECT_TRUE(scrub().damaged.empty());
}

TEST_F(DamageTest, TheBlocksFileIsLost) {
  open();
  ASSERT_TRUE(rig.write(a, 0, Rig::bytes(100 * KiB, 1)));
  ASSERT_TRUE(rig.write(b, 3 * MiB, Rig::bytes(kBlockSize, 2)));
  ASSERT_TRUE(rig.close());
  rig.options.device = std::make_shared<MemoryDevice>(rig.capacity, rig.power);  // an empty one of the old size
  open();
  auto found = scrub();
  ASSERT_EQ(found.damaged.size(), 2u);
  EXPECT_EQ(found.damaged[0].object, a);
  EXPECT_EQ(found.damaged[0].length, 100 * KiB);
  EXPECT_EQ(found.damaged[1].object, b);
  EXPECT_EQ(found.damaged[1].offset, 3 * MiB);
  EXPECT_TRUE(rig.write(c, 0, Rig::bytes(kBlockSize, 3)));
}

TEST_F(DamageTest, DamagedSmallRecordsStopNothing) {
  open();
  ASSERT_TRUE(rig.write(a, 0, Rig::bytes(kBlockSize, 1)));
  ASSERT_TRUE(rig.command(wire::kCmdTruncate, a, 77, 100));
  ASSERT_TRUE(rig.run(rig.store->set_fences({{SessionId(9), 50 * kSecond}})));
  const Usage before = rig.store->usage();
  ASSERT_TRUE(rig.close());
  edit(false, [&](Batch& batch) {
    batch.put(Family::kSuper, kMaxInoKey, "x");
    batch.put(Family::kSuper, kMaxCommandKey, "y");
    batch.put(Family::kSuper, allocator_key(0), "z");
    batch.put(Family::kEpoch, epoch_key(FilesetId(5)), "u");
    batch.put(Family::kFence, fence_key(SessionId(9)), "v");
    batch.put(Family::kTombstone, object_key(b), "w");
  });
  open();
  EXPECT_EQ(rig.store->registration().max_ino, Ino(100));
  EXPECT_EQ(rig.store->registration().max_command, CmdSeq(77));
  EXPECT_TRUE(rig.store->fenced(SessionId(9)));
  EXPECT_EQ(rig.store->usage().used, before.used);
  EXPECT_EQ(rig.store->usage().objects, 1u);
  EXPECT_TRUE(rig.read(a, 0, 100));
  auto dead = rig.write(b, 0, Rig::bytes(kBlockSize, 2));
  ASSERT_FALSE(dead);
  EXPECT_EQ(dead.error().code, Errc::kStaleGeneration);
}

}  // namespace
}  // namespace nacre::storage::testing
