// SPDX-License-Identifier: Apache-2.0
// The rules of one target, each by a test that names it.
#include <gmock/gmock.h>

#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {
using ::testing::HasSubstr;

std::string str(const Buffer& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
#define ASSERT_OK(expr)                                             \
  do {                                                              \
    auto&& ok_value = (expr);                                       \
    ASSERT_TRUE(ok_value) << ok_value.error().message();            \
  } while (0)
#define EXPECT_ERR(expr, errc)                                      \
  do {                                                              \
    auto&& err_value = (expr);                                      \
    EXPECT_FALSE(err_value);                                        \
    if (!err_value) EXPECT_EQ(name_of(err_value.error().code), name_of(errc)) << err_value.error().message(); \
  } while (0)

struct StoreTest : ::testing::Test {
  Rig rig;
  const ObjectId a = Rig::object(100);
  void SetUp() override { ASSERT_OK(rig.open()); }
};

TEST_F(StoreTest, ObjectsComeIntoBeingWithTheirFirstWrite) {
  auto nothing = rig.run(rig.store->read(a, 0, 4096));
  ASSERT_OK(nothing);
  EXPECT_EQ(nothing->size, 0u);
  EXPECT_TRUE(nothing->payload.empty());
  EXPECT_FALSE(rig.stat(a).exists);

  const Buffer data = Rig::bytes(10'000, 1);
  auto w = rig.write(a, 0, data);
  ASSERT_OK(w);
  EXPECT_EQ(w->size, 10'000u);
  EXPECT_EQ(w->allocated, 3 * kBlockSize);
  EXPECT_FALSE(w->is_stable);
  EXPECT_GT(w->wseq.v, 0u);
  EXPECT_EQ(rig.read(a, 0, 20'000).value(), str(data));
  EXPECT_EQ(rig.read(a, 5'000, 100).value(), str(data).substr(5'000, 100));
  EXPECT_TRUE(rig.stat(a).exists);
  EXPECT_EQ(rig.store->usage().objects, 1u);
  EXPECT_EQ(rig.store->usage().used, 3 * kBlockSize);
}

TEST_F(StoreTest, WritesNeverGoInPlace) {
  ASSERT_OK(rig.write(a, 0, Rig::text("first version" + std::string(4083, '.'))));
  const uint64_t at = rig.device->find("first version");
  ASSERT_OK(rig.write(a, 0, Rig::text("second version" + std::string(4082, '.'))));
  EXPECT_EQ(rig.device->find("first version"), at) << "the old block must survive until the txg is synced";
  EXPECT_NE(rig.device->find("second version"), UINT64_MAX);
  EXPECT_EQ(rig.stat(a).allocated, kBlockSize);
}

TEST_F(StoreTest, SumsAreVerifiedOnArrival) {
  WriteArgs bad = Rig::args(a, 0, Rig::bytes(8192, 1));
  bad.sums[1] ^= 1;
  auto w = rig.run(rig.store->write(std::move(bad)));
  EXPECT_ERR(w, Errc::kChecksum);
  EXPECT_THAT(w.error().detail, HasSubstr("offset 4096"));
  EXPECT_FALSE(rig.stat(a).exists);
  EXPECT_EQ(rig.store->status().checksum_errors, 1u);
  WriteArgs elsewhere = Rig::args(a, 0, Rig::bytes(4096, 1));
  elsewhere.offset = 4096;  // sums are seeded with the place
  EXPECT_ERR(rig.run(rig.store->write(std::move(elsewhere))), Errc::kChecksum);
}

TEST_F(StoreTest, BadArgumentsAreRefused) {
  EXPECT_ERR(rig.write(a, 0, Buffer()), Errc::kInval);
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(kMaxIo + 1, 1)), Errc::kInval);
  EXPECT_ERR(rig.write(a, kMaxFileSize, Rig::bytes(1, 1)), Errc::kFBig);
  WriteArgs few = Rig::args(a, 0, Rig::bytes(8192, 1));
  few.sums.pop_back();
  EXPECT_ERR(rig.run(rig.store->write(std::move(few))), Errc::kInval);
  EXPECT_ERR(rig.run(rig.store->read(a, 0, kMaxIo + 1)), Errc::kInval);
  EXPECT_ERR(rig.command(9, a, 1), Errc::kInval);
  EXPECT_ERR(rig.command(wire::kCmdPunch, a, 1, 0, 0), Errc::kInval);
  EXPECT_ERR(rig.command(wire::kCmdTruncate, a, 0), Errc::kInval);
  EXPECT_ERR(rig.command(wire::kCmdPunch, a, 1, kMaxFileSize, 1), Errc::kFBig);
}

TEST_F(StoreTest, PartialBlocksMergeAndAreThenStable) {
  auto first = rig.write(a, 0, Rig::text("hello "));
  ASSERT_OK(first);
  EXPECT_FALSE(first->is_stable) << "a partial block that held nothing is acknowledged like a whole one";
  auto second = rig.write(a, 6, Rig::text("world"));
  ASSERT_OK(second);
  EXPECT_TRUE(second->is_stable);
  EXPECT_GE(rig.store->stable(), second->wseq);
  EXPECT_EQ(rig.read(a, 0, 100).value(), "hello world");
  EXPECT_EQ(rig.stat(a).allocated, kBlockSize);
  // All that lives is replaced: no merge, no wait.
  auto third = rig.write(a, 0, Rig::text("HELLO WORLD!"));
  ASSERT_OK(third);
  EXPECT_FALSE(third->is_stable);
  EXPECT_EQ(rig.read(a, 0, 100).value(), "HELLO WORLD!");
}

TEST_F(StoreTest, AMergeWithADamagedBlockIsRefused) {
  ASSERT_OK(rig.write(a, 8192, Rig::text("damaged" + std::string(4089, 'x'))));
  rig.device->flip(rig.device->find("damaged") + 100, 3);
  auto w = rig.write(a, 8192 + 10, Rig::text("new"));
  EXPECT_ERR(w, Errc::kChecksum);
  EXPECT_THAT(w.error().detail, HasSubstr("offset 8192"));
  EXPECT_ERR(rig.read(a, 8192, 4096), Errc::kChecksum);
  ASSERT_OK(rig.write(a, 8192, Rig::bytes(4096, 3)));  // a whole block heals it
  ASSERT_OK(rig.read(a, 8192, 4096));
}

TEST_F(StoreTest, UnalignedLargeWritesAcrossChunks) {
  const uint64_t offset = kChunkSize - 12'345;
  const Buffer data = Rig::bytes(kMaxIo, 7);
  ASSERT_OK(rig.write(a, offset, data));
  EXPECT_EQ(rig.read(a, offset, kMaxIo).value(), str(data));
  EXPECT_EQ(rig.read(a, 0, 4096).value(), std::string(4096, '\0'));
  EXPECT_EQ(rig.stat(a).size, offset + kMaxIo);
}

TEST_F(StoreTest, AnAlignedMegabyteIsOneDeviceWriteAndOneDeviceRead) {
  const uint64_t writes = rig.device->writes();
  ASSERT_OK(rig.write(a, 0, Rig::bytes(kMaxIo, 7)));
  EXPECT_EQ(rig.device->writes(), writes + 1);
  const uint64_t reads = rig.device->reads();
  ASSERT_OK(rig.read(a, 0, kMaxIo));
  EXPECT_EQ(rig.device->reads(), reads + 1);
}

TEST_F(StoreTest, AReaderInOrderHasTheNextMegabytesFetched) {
  for (uint64_t m = 0; m < 8; ++m) ASSERT_OK(rig.write(a, m * kMaxIo, Rig::bytes(kMaxIo, m)));
  ASSERT_OK(rig.read(a, 0, kMaxIo));
  EXPECT_EQ(rig.device->prefetched(), 2 * MiB);
  for (uint64_t m = 1; m < 8; ++m) ASSERT_OK(rig.read(a, m * kMaxIo, kMaxIo));
  EXPECT_EQ(rig.device->prefetched(), 7 * MiB) << "each byte once, and nothing behind the end";
  for (uint64_t m : {5, 2, 7, 3}) ASSERT_OK(rig.read(a, m * kMaxIo, kMaxIo));
  for (uint64_t block : {100, 101, 102, 103}) ASSERT_OK(rig.read(a, block * kBlockSize, kBlockSize));
  EXPECT_EQ(rig.device->prefetched(), 7 * MiB) << "neither for jumps nor for small reads";
}

TEST_F(StoreTest, SmallAppendsOfTwoWritersLieTogether) {
  const ObjectId b = Rig::object(200);
  for (uint64_t i = 0; i < 256; ++i) {
    ASSERT_OK(rig.write(a, i * kBlockSize, Rig::bytes(kBlockSize, i)));
    ASSERT_OK(rig.write(b, i * kBlockSize, Rig::bytes(kBlockSize, i)));
  }
  for (const ObjectId& o : {a, b}) {
    const uint64_t reads = rig.device->reads();
    ASSERT_OK(rig.read(o, 0, kMaxIo));
    EXPECT_LE(rig.device->reads() - reads, 8u) << "interleaved on disk";
  }
}

TEST_F(StoreTest, ChangedGrowsStrictlyAndFollowsTheMds) {
  rig.store->set_time_offset(5 * kSecond);
  auto first = rig.write(a, 0, Rig::bytes(4096, 1));
  auto second = rig.write(a, 0, Rig::bytes(4096, 2));
  EXPECT_EQ(first->changed, rig.clock.real() + 5 * kSecond);
  EXPECT_GT(second->changed, first->changed);
  EXPECT_EQ(rig.stat(a).changed, second->changed);
  ASSERT_OK(rig.command(wire::kCmdTruncate, a, 1, 100));
  EXPECT_EQ(rig.stat(a).changed, second->changed) << "a command doesn't move it";
}

TEST_F(StoreTest, TheEpochIsStampedHere) {
  WriteArgs w = Rig::args(a, 0, Rig::bytes(4096, 1));
  w.epoch = Epoch(2);
  EXPECT_ERR(rig.run(rig.store->write(w)), Errc::kRetryLater);
  ASSERT_OK(rig.run(rig.store->set_epochs({{kRootFileset, Epoch(2)}})));
  ASSERT_OK(rig.run(rig.store->write(w)));
  w.epoch = Epoch(1);
  EXPECT_ERR(rig.run(rig.store->write(w)), Errc::kStaleEpoch);
  ASSERT_OK(rig.run(rig.store->set_epochs({{kRootFileset, Epoch(1)}})));  // never goes back
  EXPECT_EQ(rig.store->epoch(kRootFileset), Epoch(2));
  SeededRng rng(1);
  rig.power_cut(rng);
  ASSERT_OK(rig.open());
  EXPECT_EQ(rig.store->epoch(kRootFileset), Epoch(2));
}

TEST_F(StoreTest, FencesSurviveAPowerCut) {
  ASSERT_OK(rig.run(rig.store->set_fences({{SessionId(7), rig.clock.real() + 100 * kSecond}, {SessionId(8), rig.clock.real() + 100 * kSecond}})));
  ASSERT_OK(rig.run(rig.store->set_fences({{SessionId(8), 0}})));
  SeededRng rng(1);
  rig.power_cut(rng);
  ASSERT_OK(rig.open());
  EXPECT_TRUE(rig.store->fenced(SessionId(7)));
  EXPECT_FALSE(rig.store->fenced(SessionId(8)));
  rig.pass(200 * kSecond);
  EXPECT_FALSE(rig.store->fenced(SessionId(7))) << "no capability of that session is valid any more";
}

// ---- stability

TEST_F(StoreTest, TheTickMakesWritesStable) {
  auto w = rig.write(a, 0, Rig::bytes(4096, 1));
  EXPECT_LT(rig.store->stable(), w->wseq);
  rig.pass(2 * kSecond);
  EXPECT_GE(rig.store->stable(), w->wseq);
  const uint64_t syncs = rig.device->syncs();
  rig.pass(10 * kSecond);
  EXPECT_EQ(rig.device->syncs(), syncs) << "nothing changed, nothing to sync";
}

TEST_F(StoreTest, CommitMakesStableAndIsShared) {
  auto w = rig.write(a, 0, Rig::bytes(4096, 1));
  const uint64_t syncs = rig.device->syncs();
  std::vector<WSeq> stable;
  auto commit = [](ObjectStore& s, std::vector<WSeq>& out) -> Task<void> { out.push_back((co_await s.commit(WSeq())).value()); };
  for (int i = 0; i < 10; ++i) rig.runtime->loop(0).spawn(commit(*rig.store, stable));
  rig.until([&] { return stable.size() == 10; });
  EXPECT_GE(stable[0], w->wseq);
  EXPECT_LE(rig.device->syncs(), syncs + 2);
  EXPECT_GE(rig.run(rig.store->commit(w->wseq)).value(), w->wseq);
}

TEST_F(StoreTest, SyncWritesAnswerWhenStable) {
  auto w = rig.write(a, 0, Rig::bytes(4096, 1), {}, true);
  EXPECT_TRUE(w->is_stable);
  EXPECT_GE(rig.store->stable(), w->wseq);
}

TEST_F(StoreTest, AFailedSyncIsFatal) {
  ASSERT_OK(rig.write(a, 0, Rig::bytes(4096, 1)));
  rig.device->fail_syncs(true);
  EXPECT_ERR(rig.run(rig.store->commit(WSeq())), Errc::kIo);
  ASSERT_TRUE(rig.fatal);
  rig.device->fail_syncs(false);
  EXPECT_ERR(rig.run(rig.store->commit(WSeq())), Errc::kIo);
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(4096, 1), {}, true), Errc::kIo);
}

TEST_F(StoreTest, AFailedDeviceWriteChangesNothing) {
  const Buffer old = Rig::bytes(4096, 1);
  ASSERT_OK(rig.write(a, 0, old));
  const uint64_t used = rig.store->usage().used;
  rig.device->fail_writes(0, rig.capacity);
  auto w = rig.write(a, 0, Rig::bytes(8192, 2));
  EXPECT_ERR(w, Errc::kIo);
  EXPECT_THAT(w.error().detail, HasSubstr("100.g1.c0.s0"));
  rig.device->heal();
  EXPECT_EQ(rig.read(a, 0, 10'000).value(), str(old));
  EXPECT_EQ(rig.store->usage().used, used);
  EXPECT_FALSE(rig.fatal);
}

TEST_F(StoreTest, AFailedReadNamesTheObject) {
  ASSERT_OK(rig.write(a, 0, Rig::bytes(4096, 1)));
  rig.device->fail_reads(0, rig.capacity);
  auto r = rig.run(rig.store->read(a, 0, 4096));
  EXPECT_ERR(r, Errc::kIo);
  EXPECT_THAT(r.error().detail, HasSubstr("ost3 object 100.g1.c0.s0 offset 0"));
}

// ---- resends

TEST_F(StoreTest, AResendAppliesOnlyWhereTheStoredSequenceIsLower) {
  auto v1 = rig.write(a, 0, Rig::text(std::string(8192, '1')));
  auto v2 = rig.write(a, 4096, Rig::text(std::string(4096, '2')));
  ASSERT_OK(v2);
  auto again = rig.write(a, 0, Rig::text(std::string(8192, '1')), v1->wseq);
  ASSERT_OK(again);
  EXPECT_EQ(again->wseq, v1->wseq);
  EXPECT_TRUE(again->is_stable);
  EXPECT_EQ(again->changed, v2->changed) << "it wasn't lost, so nothing changed";
  EXPECT_EQ(rig.read(a, 0, 8192).value(), std::string(4096, '1') + std::string(4096, '2'));
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(4096, 1), WSeq(v2->wseq.v + 1)), Errc::kInval);
}

TEST_F(StoreTest, AResendDoesntComeBackPastATruncateOrPunch) {
  auto w = rig.write(a, 0, Rig::bytes(16'384, 1));
  ASSERT_OK(rig.command(wire::kCmdTruncate, a, 5, 4096));
  EXPECT_GE(rig.store->stable(), w->wseq) << "a cut makes older writes stable first";
  ASSERT_OK(rig.write(a, 0, Rig::bytes(16'384, 1), w->wseq));
  EXPECT_EQ(rig.stat(a).size, 4096u);
  auto later = rig.write(a, 4096, Rig::bytes(4096, 2));
  ASSERT_OK(rig.command(wire::kCmdPunch, a, 6, 4096, 4096));
  ASSERT_OK(rig.write(a, 4096, Rig::bytes(4096, 2), later->wseq));
  EXPECT_EQ(rig.read(a, 4096, 4096).value(), std::string(4096, '\0'));
  EXPECT_EQ(rig.store->status().resends_refused, 2u);
}

// ---- commands

TEST_F(StoreTest, TruncateCutsInsideABlockForGood) {
  ASSERT_OK(rig.write(a, 0, Rig::text(std::string(10'000, 'x'))));
  auto c = rig.command(wire::kCmdTruncate, a, 1, 5'000);
  ASSERT_OK(c);
  EXPECT_EQ(c->done.at(0), CmdSeq(1));
  EXPECT_EQ(c->infos.at(0).size, 5'000u);
  EXPECT_EQ(c->infos.at(0).allocated, 2 * kBlockSize);
  ASSERT_OK(rig.write(a, 20'000, Rig::text("end")));
  EXPECT_EQ(rig.read(a, 0, 30'000).value(), std::string(5'000, 'x') + std::string(15'000, '\0') + "end");
}

TEST_F(StoreTest, PunchKeepsTheSizeAndZeroesEdges) {
  std::string model(3 * kChunkSize, 'x');
  for (int i = 0; i < 3; ++i) ASSERT_OK(rig.write(a, i * kChunkSize, Rig::text(std::string(kChunkSize, 'x'))));
  ASSERT_OK(rig.command(wire::kCmdPunch, a, 1, 100, 50));                      // inside one block
  ASSERT_OK(rig.command(wire::kCmdPunch, a, 2, 10'000, 2 * kChunkSize));       // over chunks, both edges partial
  ASSERT_OK(rig.command(wire::kCmdPunch, a, 3, model.size() - 10, kChunkSize)); // beyond the end
  std::fill_n(model.begin() + 100, 50, '\0');
  std::fill_n(model.begin() + 10'000, 2 * kChunkSize, '\0');
  std::fill_n(model.end() - 10, 10, '\0');
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.read(a, i * kChunkSize, kChunkSize).value(), model.substr(i * kChunkSize, kChunkSize));
  EXPECT_EQ(rig.stat(a).size, model.size());
  EXPECT_EQ(rig.stat(a).allocated, 3 * kChunkSize - (2 * kChunkSize - kBlockSize));
}

TEST_F(StoreTest, ACommandIsDoneOnceByItsSequence) {
  ASSERT_OK(rig.write(a, 0, Rig::text(std::string(8192, 'x'))));
  ASSERT_OK(rig.command(wire::kCmdTruncate, a, 7, 100));
  ASSERT_OK(rig.write(a, 4096, Rig::text(std::string(4096, 'y'))));
  auto again = rig.command(wire::kCmdTruncate, a, 7, 100);
  ASSERT_OK(again);
  EXPECT_EQ(again->done.size(), 1u) << "reported as done";
  EXPECT_EQ(rig.stat(a).size, 8192u) << "and newer data is left alone";
  EXPECT_EQ(rig.store->registration().max_command, CmdSeq(7));
  // Also for an object that doesn't exist yet.
  const ObjectId b = Rig::object(300);
  ASSERT_OK(rig.command(wire::kCmdTruncate, b, 8, 0));
  ASSERT_OK(rig.write(b, 0, Rig::text("new")));
  ASSERT_OK(rig.command(wire::kCmdTruncate, b, 8, 0));
  EXPECT_EQ(rig.read(b, 0, 100).value(), "new");
}

TEST_F(StoreTest, AllocatedBlocksReadAsZerosAndAreWrittenInPlace) {
  ASSERT_OK(rig.write(a, 4096, Rig::text(std::string(4096, 'x'))));
  ASSERT_OK(rig.command(wire::kCmdAllocate, a, 1, 0, 100'000));
  ObjectInfo info = rig.stat(a);
  EXPECT_EQ(info.allocated, round_up(100'000, kBlockSize));
  EXPECT_EQ(info.size, 8192u) << "the MDS keeps the size of a preallocated file";
  const uint64_t used = rig.store->usage().used;
  ASSERT_OK(rig.write(a, 8192, Rig::text(std::string(50'000, 'z'))));
  EXPECT_EQ(rig.store->usage().used, used) << "no further blocks are needed";
  EXPECT_EQ(rig.read(a, 0, 200'000).value(), std::string(4096, '\0') + std::string(4096, 'x') + std::string(50'000, 'z'));
  EXPECT_EQ(rig.run(rig.store->seek(a, 0, false))->offset, 4096u) << "allocated ahead is a hole to SEEK_DATA";
}

TEST_F(StoreTest, ZeroRangeKeepsBlocksAllocated) {
  ASSERT_OK(rig.write(a, 0, Rig::text(std::string(20'000, 'x'))));
  ASSERT_OK(rig.command(wire::kCmdZero, a, 1, 1'000, 10'000));
  EXPECT_EQ(rig.read(a, 0, 20'000).value(), std::string(1'000, 'x') + std::string(10'000, '\0') + std::string(9'000, 'x'));
  EXPECT_EQ(rig.stat(a).allocated, 5 * kBlockSize);
}

TEST_F(StoreTest, SeekFindsDataAndHolesWithoutReading) {
  ASSERT_OK(rig.write(a, 3 * kChunkSize + 8192, Rig::text(std::string(5'000, 'x'))));
  const uint64_t reads = rig.device->reads();
  auto seek = [&](uint64_t offset, bool hole) { return rig.run(rig.store->seek(a, offset, hole)).value(); };
  EXPECT_EQ(seek(0, false).offset, 3 * kChunkSize + 8192);
  EXPECT_EQ(seek(0, true).offset, 0u);
  EXPECT_EQ(seek(3 * kChunkSize + 9000, false).offset, 3 * kChunkSize + 9000);
  EXPECT_EQ(seek(3 * kChunkSize + 9000, true).offset, 3 * kChunkSize + 16384) << "the end of the last block is a hole";
  EXPECT_EQ(seek(3 * kChunkSize + 8192 + 5'000, false).offset, 3 * kChunkSize + 8192 + 5'000) << "a block is data to its end";
  EXPECT_FALSE(seek(3 * kChunkSize + 16384, false).found);
  EXPECT_FALSE(seek(3 * kChunkSize + 16384, true).found);
  ASSERT_OK(rig.command(wire::kCmdPunch, a, 1, 3 * kChunkSize, kChunkSize));
  EXPECT_FALSE(seek(0, false).found);
  EXPECT_TRUE(seek(0, true).found);
  EXPECT_EQ(rig.device->reads(), reads);
}

// ---- destroy and tombstones

TEST_F(StoreTest, DestroyLeavesATombstone) {
  for (int i = 0; i < 3; ++i) ASSERT_OK(rig.write(a, i * kChunkSize, Rig::bytes(kChunkSize, i)));
  auto c = rig.command(wire::kCmdDestroy, a, 9);
  ASSERT_OK(c);
  EXPECT_FALSE(c->infos.at(0).exists);
  EXPECT_EQ(rig.store->usage().objects, 0u);
  EXPECT_EQ(rig.store->usage().used, 0u) << "destroy was synced, so its blocks are free";
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(4096, 1)), Errc::kStaleGeneration);
  EXPECT_ERR(rig.read(a, 0, 4096), Errc::kStaleGeneration);
  ASSERT_OK(rig.command(wire::kCmdDestroy, a, 9));
  // Of an object that never came: the delayed write must not make it.
  const ObjectId never = Rig::object(500);
  ASSERT_OK(rig.command(wire::kCmdDestroy, never, 10));
  EXPECT_ERR(rig.write(never, 0, Rig::bytes(4096, 1)), Errc::kStaleGeneration);
  rig.kill();
  ASSERT_OK(rig.open());
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(4096, 1)), Errc::kStaleGeneration);
  EXPECT_ERR(rig.write(never, 0, Rig::bytes(4096, 1)), Errc::kStaleGeneration);
}

// A migration that is given up destroys the objects of a newer generation than the file's.
TEST_F(StoreTest, DestroyingOneGenerationLeavesTheOthers) {
  const ObjectId old = Rig::object(100, 1), mid = Rig::object(100, 2), young = Rig::object(100, 3);
  ASSERT_OK(rig.write(old, 0, Rig::bytes(4096, 1)));  // cached
  ASSERT_OK(rig.command(wire::kCmdDestroy, mid, 9));
  ASSERT_OK(rig.write(old, 0, Rig::bytes(4096, 2)));
  ASSERT_OK(rig.write(young, 0, Rig::bytes(4096, 1)));
  rig.kill();
  ASSERT_OK(rig.open());
  EXPECT_ERR(rig.write(mid, 0, Rig::bytes(4096, 1)), Errc::kStaleGeneration);
  ASSERT_OK(rig.write(old, 4096, Rig::bytes(4096, 3)));
  ASSERT_OK(rig.command(wire::kCmdDestroy, old, 10));
  EXPECT_EQ(rig.store->usage().objects, 1u);
}

TEST_F(StoreTest, ASealedObjectIsReadAndNotWritten) {
  const ObjectId never = Rig::object(500);
  ASSERT_OK(rig.write(a, 0, Rig::bytes(4096, 1)));
  auto sealed = rig.command(wire::kCmdSeal, a, 9);
  ASSERT_OK(sealed);
  EXPECT_EQ(sealed->infos.at(0).size, 4096u);
  ASSERT_OK(rig.command(wire::kCmdSeal, never, 9));  // one that isn't there yet
  EXPECT_ERR(rig.write(a, 4096, Rig::bytes(4096, 2)), Errc::kStaleGeneration);
  EXPECT_ERR(rig.write(never, 0, Rig::bytes(4096, 2)), Errc::kStaleGeneration);
  ASSERT_OK(rig.read(a, 0, 4096));
  ASSERT_OK(rig.command(wire::kCmdSeal, a, 9, 1));  // an offset asks whether the seal of that number holds
  EXPECT_ERR(rig.command(wire::kCmdSeal, a, 8, 1), Errc::kStale);
  ASSERT_OK(rig.command(wire::kCmdUnseal, a, 8));  // of an earlier seal: too late
  EXPECT_ERR(rig.write(a, 4096, Rig::bytes(4096, 2)), Errc::kStaleGeneration);
  ASSERT_OK(rig.command(wire::kCmdUnseal, a, 10));
  ASSERT_OK(rig.write(a, 4096, Rig::bytes(4096, 2)));
  EXPECT_ERR(rig.command(wire::kCmdSeal, a, 9, 1), Errc::kStale);
}

TEST_F(StoreTest, ASealEndsWithTheProcessAndWithAResend) {
  auto w = rig.write(a, 0, Rig::bytes(4096, 1));
  ASSERT_OK(w);
  ASSERT_OK(rig.command(wire::kCmdSeal, a, 9));
  rig.kill();
  ASSERT_OK(rig.open());
  EXPECT_ERR(rig.command(wire::kCmdSeal, a, 9, 1), Errc::kStale);
  ASSERT_OK(rig.write(a, 4096, Rig::bytes(4096, 2)));
  ASSERT_OK(rig.command(wire::kCmdSeal, a, 10));
  auto again = Rig::args(a, 0, Rig::bytes(4096, 1));
  again.wseq = w->wseq;
  ASSERT_OK(rig.run(rig.store->write(again)));
  EXPECT_ERR(rig.command(wire::kCmdSeal, a, 10, 1), Errc::kStale);  // what was sent again may not have been there when the seal was made
  ASSERT_OK(rig.command(wire::kCmdDestroy, a, 11));
}

TEST_F(StoreTest, TombstonesGoWhenNoCapabilityCanNameTheObject) {
  ASSERT_OK(rig.command(wire::kCmdDestroy, a, 9));
  rig.pass(kTombstoneTerm + 30 * kSecond);
  ASSERT_OK(rig.close());
  ASSERT_OK(rig.open());
  ASSERT_OK(rig.write(a, 0, Rig::bytes(4096, 1)));
  EXPECT_EQ(rig.store->registration().max_ino, a.ino) << "numbers that were seen are remembered for ever";
}

TEST_F(StoreTest, AThousandDestroysInOneCall) {
  std::vector<Command> list;
  for (uint64_t i = 0; i < kMaxCommands; ++i) {
    if (i % 2) ASSERT_OK(rig.write(Rig::object(1000 + i), 0, Rig::bytes(4096, i)));
    list.push_back({Rig::object(1000 + i), wire::kCmdDestroy, 0, 0, CmdSeq(i + 1), kRootFileset});
  }
  auto done = rig.run(rig.store->commands(list, true));
  ASSERT_OK(done);
  EXPECT_EQ(done->done.size(), kMaxCommands);
  EXPECT_EQ(rig.store->usage().used, 0u);
  list.push_back(list[0]);
  EXPECT_ERR(rig.run(rig.store->commands(list, true)), Errc::kInval);
}

// ---- ordering of writers

TEST_F(StoreTest, OverlappingPartialWritesLoseNothing) {
  rig.device->jitter(5, 4);
  size_t done = 0;
  auto writer = [](ObjectStore& s, ObjectId id, size_t i, size_t& done) -> Task<void> {
    WriteArgs args = Rig::args(id, i * 40, Rig::text(std::string(40, static_cast<char>('a' + i % 26))));
    auto w = co_await s.write(std::move(args));
    EXPECT_TRUE(w) << w.error().message();
    ++done;
  };
  for (size_t i = 0; i < 200; ++i) rig.runtime->loop(0).spawn(writer(*rig.store, a, i, done));
  rig.until([&] { return done == 200; });
  std::string expected;
  for (size_t i = 0; i < 200; ++i) expected += std::string(40, static_cast<char>('a' + i % 26));
  EXPECT_EQ(rig.read(a, 0, 10'000).value(), expected);
}

TEST_F(StoreTest, WritersOfOneChunkDontLoseEachOthersRecords) {
  rig.device->jitter(6, 4);
  size_t done = 0;
  auto writer = [](ObjectStore& s, ObjectId id, uint64_t block, size_t& done) -> Task<void> {
    auto args = Rig::args(id, block * kBlockSize, Rig::bytes(kBlockSize, block));
    auto w = co_await s.write(std::move(args));
    EXPECT_TRUE(w) << w.error().message();
    ++done;
  };
  for (uint64_t block = 0; block < 300; ++block) rig.runtime->loop(0).spawn(writer(*rig.store, a, block * 7 % 300, done));
  rig.until([&] { return done == 300; });
  for (uint64_t block = 0; block < 300; ++block) EXPECT_EQ(rig.read(a, block * kBlockSize, kBlockSize).value(), str(Rig::bytes(kBlockSize, block)));
  EXPECT_EQ(rig.stat(a).allocated, 300 * kBlockSize);
}

// ---- space

TEST_F(StoreTest, NewDataStopsAtTheReserveOverwritesAtHalfCommandsNever) {
  const uint64_t reserve = rig.capacity / 10;
  uint64_t offset = 0;
  for (;; offset += kMaxIo) {
    auto w = rig.write(a, offset, Rig::bytes(kMaxIo, offset));
    if (w) continue;
    EXPECT_ERR(w, Errc::kNoSpc);
    EXPECT_THAT(w.error().detail, HasSubstr("ost3"));
    break;
  }
  EXPECT_GT(offset, rig.capacity - reserve - 2 * kMaxIo);
  EXPECT_LE(offset, rig.capacity - reserve);
  EXPECT_LT(rig.store->usage().available, kMaxIo);
  const uint64_t writes = rig.device->writes();
  EXPECT_ERR(rig.write(a, offset, Rig::bytes(kMaxIo, 1)), Errc::kNoSpc);
  EXPECT_EQ(rig.device->writes(), writes) << "decided before data is taken";
  // Overwriting goes on for ever: the txg brings the replaced blocks back.
  for (uint64_t i = 0; i < offset / kMaxIo + 8; ++i) ASSERT_OK(rig.write(a, i * kMaxIo % offset, Rig::bytes(kMaxIo, i)));
  EXPECT_ERR(rig.command(wire::kCmdAllocate, Rig::object(7), 1, 0, 8 * MiB), Errc::kNoSpc);
  ASSERT_OK(rig.command(wire::kCmdTruncate, a, 2, offset / 2 + 1));
  ASSERT_OK(rig.write(Rig::object(8), 0, Rig::bytes(kMaxIo, 1)));
}

TEST_F(StoreTest, FreedBlocksAreForcedOutBeforeENOSPC) {
  uint64_t offset = 0;
  while (rig.write(a, offset, Rig::bytes(kMaxIo, 1))) offset += kMaxIo;
  std::vector<Command> list(1);
  list[0] = {a, wire::kCmdDestroy, 0, 0, CmdSeq(1), kRootFileset};
  ASSERT_OK(rig.run(rig.store->commands(list, false)));  // not synced: its blocks are pending
  ASSERT_OK(rig.write(Rig::object(2), 0, Rig::bytes(kMaxIo, 1)));
}

TEST_F(StoreTest, ABackingFilesystemThatRunsLowRefusesToo) {
  rig.device->set_backing_free(2 * MiB);
  rig.pass(2 * kSecond);
  EXPECT_ERR(rig.write(a, 0, Rig::bytes(kMaxIo, 1)), Errc::kNoSpc);
  EXPECT_EQ(rig.store->usage().available, 0u);
  rig.device->set_backing_free(100 * MiB);
  rig.pass(2 * kSecond);
  ASSERT_OK(rig.write(a, 0, Rig::bytes(kMaxIo, 1)));
}

TEST_F(StoreTest, LargeFreeRunsGoBackToTheFilesystem) {
  for (int i = 0; i < 8; ++i) ASSERT_OK(rig.write(a, i * kMaxIo, Rig::bytes(kMaxIo, i)));
  ASSERT_OK(rig.write(Rig::object(2), 0, Rig::bytes(kMaxIo, 9)));
  EXPECT_EQ(rig.device->blocks_held(), 9 * 256u);
  ASSERT_OK(rig.command(wire::kCmdDestroy, a, 1));
  rig.pass(5 * kSecond);
  EXPECT_EQ(rig.device->blocks_held(), 256u);
  EXPECT_EQ(rig.read(Rig::object(2), 0, kMaxIo).value(), str(Rig::bytes(kMaxIo, 9)));
}

TEST_F(StoreTest, ABlockIsntReusedWhileAReadHoldsIt) {
  // The read has looked its block up and stands still in the device, while the block is freed, synced, and all others are used.
  ASSERT_OK(rig.write(a, 0, Rig::text("old" + std::string(4093, 'o'))));
  rig.device->hold_reads();
  std::optional<Result<ReadResult>> got;
  auto reader = [](ObjectStore& s, ObjectId id, std::optional<Result<ReadResult>>& out) -> Task<void> { out.emplace(co_await s.read(id, 0, 4096)); };
  rig.runtime->loop(0).spawn(reader(*rig.store, a, got));
  while (rig.runtime->run_ready() != 0) continue;
  ASSERT_OK(rig.command(wire::kCmdDestroy, a, 1));
  for (uint64_t offset = 0; rig.write(Rig::object(2), offset, Rig::bytes(kMaxIo, 1)); offset += kMaxIo) continue;
  for (uint64_t i = 0; rig.write(Rig::object(3), i * kBlockSize, Rig::bytes(kBlockSize, 1)); ++i) continue;
  EXPECT_FALSE(got);
  rig.device->release_reads();
  rig.until([&] { return got.has_value(); });
  ASSERT_TRUE(*got);
  const auto& r = **got;
  EXPECT_EQ(wire::block_sum(a, 0, r.payload.span()), r.sums.at(0)) << "a reader saw a reused block";
  ASSERT_OK(rig.write(Rig::object(3), 0, Rig::bytes(kBlockSize, 2)));
}

}  // namespace
}  // namespace nacre::storage::testing
