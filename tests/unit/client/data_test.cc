// SPDX-License-Identifier: Apache-2.0
// The I/O engine: striping, holes, the end-of-file rule, sums, capabilities, truncation, resend after a target's restart.
#include "tests/unit/client/world.h"

namespace nacre::test {

using client::HandlePtr;

class Data : public World {};

TEST_F(Data, WritesOverAllStripesAndReadsBack) {
  auto h = create("f");
  auto b = bytes(3 * MiB + 12345);
  auto w = write(h, 0, b);
  ASSERT_OK(w);
  EXPECT_EQ(w->written, b.size());
  for (uint16_t s = 0; s < 3; ++s) EXPECT_GT(osts[s]->size(ObjectId{h->ino(), Generation(1), 0, s}), 900 * KiB);
  auto r = read(h, 0, 4 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, text(b));
  // unaligned pieces in the middle, over stripe borders
  for (auto [at, n] : {std::pair<uint64_t, size_t>{1, 10}, {64 * KiB - 3, 6}, {100'001, 200'003}, {3 * MiB, 12345}}) {
    auto part = read(h, at, n);
    ASSERT_OK(part);
    EXPECT_EQ(*part, text(b).substr(at, n)) << at;
  }
}

TEST_F(Data, UnalignedWritesOverlap) {
  auto h = create("f");
  std::string model(300'000, '\0');
  uint64_t seed = 5;
  for (auto [at, n] : {std::pair<uint64_t, size_t>{10, 70'000}, {69'990, 100'000}, {5, 3}, {200'000, 100'000}, {65'535, 2}}) {
    auto b = bytes(n, ++seed);
    ASSERT_OK(write(h, at, b));
    model.replace(at, n, text(b));
  }
  auto r = read(h, 0, 400'000);
  ASSERT_OK(r);
  EXPECT_EQ(*r, model);
}

TEST_F(Data, HolesAreZerosAndTheEndIsWhereTheServerSays) {
  auto h = create("f");
  ASSERT_OK(write(h, 500'000, data("tail")));
  auto r = read(h, 0, 1 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(r->size(), 500'004u);
  EXPECT_EQ(r->substr(500'000), "tail");
  EXPECT_EQ(r->find_first_not_of('\0'), 500'000u);
  auto beyond = read(h, 500'004, 10);
  ASSERT_OK(beyond);
  EXPECT_EQ(*beyond, "");
  // a file that was only made longer
  client::SetAttr grow;
  grow.valid = wire::kSetSize;
  grow.size = 2 * MiB;
  ASSERT_OK(run(fs().setattr(h->ino(), grow, {})));
  auto zeros = read(h, 1 * MiB, 2 * MiB);
  ASSERT_OK(zeros);
  EXPECT_EQ(*zeros, std::string(1 * MiB, '\0'));
}

TEST_F(Data, FullReadsAskNobodyForTheSize) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(1 * MiB)));
  int before = mds->received(rpc::Method::kGetattr);
  ASSERT_OK(read(h, 4096, 512 * KiB));
  EXPECT_EQ(mds->received(rpc::Method::kGetattr), before);
  ASSERT_OK(read(h, 1 * MiB - 10, 20));
  EXPECT_EQ(mds->received(rpc::Method::kGetattr), before + 1);
}

TEST_F(Data, DataWrittenBetweenAShortReadAndTheSizeIsNotReadAsZeros) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("old")));
  // The reader sees 3 bytes, then its Getattr waits until another write has made the file longer.
  mds->inject(rpc::Method::kGetattr, {Fault::kHold});
  auto b = Buffer::allocate(100).slice(0, 100);
  auto reading = start(fs().read(h, 0, b, {}));
  mds->wait_received(rpc::Method::kGetattr, 1);
  ASSERT_OK(run(fs().write(h, 3, data("new"), {}, {}), 1));
  mds->release_held();
  auto got = reading.get();
  ASSERT_OK(got);
  EXPECT_EQ(text(b.slice(0, *got)), "oldnew");
}

TEST_F(Data, AReaderFindsComponentsThatAnotherClientInstantiated) {
  mds->small = 128 * KiB;
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("x")));
  auto& other = mount(options());
  auto theirs = run(other.open(h->ino(), O_RDWR, {}));
  ASSERT_OK(theirs);
  auto mine = read(h, 0, 10);  // caches the layout without the second component
  ASSERT_OK(mine);
  auto b = bytes(300 * KiB, 9);
  ASSERT_OK(run(other.write(theirs->handle, 200 * KiB, b, {}, {})));
  auto r = read(h, 200 * KiB, 300 * KiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, text(b));
  ASSERT_OK(run(other.release(theirs->handle, 0)));
}

TEST_F(Data, DamageOnTheWayIsReadAgainAndDamageOnDiskIsAnError) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(16 * KiB)));
  osts[0]->inject(rpc::Method::kObjectRead, {Fault::kCorrupt});
  auto once = read(h, 0, 16 * KiB);
  ASSERT_OK(once);
  EXPECT_EQ(*once, text(bytes(16 * KiB)));
  osts[0]->inject(rpc::Method::kObjectRead, {Fault::kCorrupt}, 2);
  auto twice = read(h, 0, 16 * KiB);
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, Errc::kIo);
  uint64_t counted = 0;
  for (auto& s : fs().status().servers) counted += s.checksum_errors;
  EXPECT_EQ(counted, 3u);
}

TEST_F(Data, AWriteWithoutReplyIsNotAppliedTwice) {
  auto h = create("f");
  osts[0]->inject(rpc::Method::kObjectWrite, {Fault::kDropAfter});
  ASSERT_OK(write(h, 0, data("abc")));
  EXPECT_EQ(osts[0]->received(rpc::Method::kObjectWrite), 2);
  ASSERT_OK(run(fs().release(h, 0)));
  auto closes = mds->closes();
  ASSERT_EQ(closes.size(), 1u);
  ASSERT_EQ(closes[0].objects.size(), 1u);
  EXPECT_EQ(closes[0].objects[0].wseq(), 1u);  // the first and only write of the target
  EXPECT_EQ(closes[0].objects[0].size(), 3u);
  EXPECT_FALSE(closes[0].unsure);
}

TEST_F(Data, UnstableDataIsSentAgainAfterAPowerLoss) {
  auto h = create("f");
  auto b = bytes(1 * MiB, 3);
  ASSERT_OK(write(h, 0, b));
  ASSERT_OK(write(h, 64 * KiB - 7, data("seven!!")));
  for (auto& o : osts) {
    o->stop();
    o->lose_power();
    o->start();
  }
  auto want = text(b).replace(64 * KiB - 7, 7, "seven!!");
  auto r = read(h, 0, 1 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, want);
  EXPECT_GT(osts[0]->resent() + osts[1]->resent() + osts[2]->resent(), 0);
  // what was sent again was committed: another loss costs nothing
  for (auto& o : osts) {
    o->stop();
    o->lose_power();
    o->start();
  }
  r = read(h, 0, 1 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, want);
  uint64_t retained = 0;
  for (auto& s : fs().status().servers) retained += s.retained;
  EXPECT_EQ(retained, 0u);
}

TEST_F(Data, ResendOfAClosedFileWithAnExpiredCapabilityOpensItAgain) {
  mds->capability_life = 400 * kMillisecond;
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("kept")));
  ASSERT_OK(run(fs().release(h, 0)));
  osts[0]->stop();
  osts[0]->lose_power();
  osts[0]->expired_before = system_clock().real() + 600 * kMillisecond;  // what was granted so far is too old
  mds->capability_life = 60 * kSecond;
  osts[0]->start();
  auto again = run(fs().open(h->ino(), O_RDONLY, {}));
  ASSERT_OK(again);
  auto r = read(again->handle, 0, 10);
  ASSERT_OK(r);
  EXPECT_EQ(*r, "kept");
}

TEST_F(Data, AnExpiredCapabilityIsRenewedOnTheWay) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("one")));
  mds->capability_life = 120 * kSecond;
  for (auto& o : osts) o->expired_before = system_clock().real() + 90 * kSecond;
  ASSERT_OK(write(h, 3, data("two")));
  EXPECT_GE(mds->served(rpc::Method::kLayoutGrant), 1);
  auto r = read(h, 0, 10);
  ASSERT_OK(r);
  EXPECT_EQ(*r, "onetwo");
}

TEST_F(Data, TruncationToZeroElsewhereMovesWritesToTheNewGeneration) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(200 * KiB)));
  mds->truncate_elsewhere(h->ino());
  ASSERT_OK(write(h, 0, data("fresh")));
  EXPECT_FALSE(osts[0]->exists(ObjectId{h->ino(), Generation(1), 0, 0}));
  EXPECT_TRUE(osts[0]->exists(ObjectId{h->ino(), Generation(2), 0, 0}));
  auto r = read(h, 0, 1 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, "fresh");
}

TEST_F(Data, OwnTruncationReplacesTheLayoutOfAllHandlesAndDropsWhatWasRetained) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(200 * KiB)));
  auto second = run(fs().open(h->ino(), O_RDWR, {}));
  ASSERT_OK(second);
  client::SetAttr cut;
  cut.valid = wire::kSetSize;
  ASSERT_OK(run(fs().setattr(h->ino(), cut, {})));
  uint64_t retained = 0;
  for (auto& s : fs().status().servers) retained += s.retained;
  EXPECT_EQ(retained, 0u);
  int grants = mds->received(rpc::Method::kLayoutGrant);
  ASSERT_OK(write(second->handle, 0, data("z")));
  EXPECT_EQ(mds->received(rpc::Method::kLayoutGrant), grants);
  ASSERT_OK(run(fs().release(second->handle, 0)));
  EXPECT_TRUE(mds->closes().back().unsure);
}

TEST_F(Data, PartialTruncationAndRegrowthReadAsZeros) {
  mds->other_session_open = true;
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(300 * KiB)));
  client::SetAttr cut;
  cut.valid = wire::kSetSize;
  cut.size = 100'000;
  ASSERT_OK(run(fs().setattr(h->ino(), cut, {})));
  ASSERT_OK(write(h, 250'000, data("end")));
  auto r = read(h, 0, 1 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, text(bytes(300 * KiB)).substr(0, 100'000) + std::string(150'000, '\0') + "end");
}

TEST_F(Data, SeekFindsDataAndHolesOverStripes) {
  auto h = create("f");
  ASSERT_OK(write(h, 256 * KiB, bytes(8 * KiB)));    // stripe 1, second row
  ASSERT_OK(write(h, 640 * KiB, bytes(64 * KiB)));   // stripe 1
  ASSERT_OK(write(h, 704 * KiB, bytes(4 * KiB)));    // stripe 2
  auto at = [&](uint64_t from, client::Seek what) { return run(fs().lseek(h, from, what, {})); };
  EXPECT_EQ(at(0, client::Seek::kData).value(), 256 * KiB);
  EXPECT_EQ(at(256 * KiB + 5, client::Seek::kData).value(), 256 * KiB + 5);
  EXPECT_EQ(at(264 * KiB, client::Seek::kData).value(), 640 * KiB);
  EXPECT_EQ(at(0, client::Seek::kHole).value(), 0u);
  EXPECT_EQ(at(256 * KiB, client::Seek::kHole).value(), 264 * KiB);
  EXPECT_EQ(at(640 * KiB, client::Seek::kHole).value(), 708 * KiB);
  EXPECT_EQ(at(708 * KiB, client::Seek::kHole).error().code, Errc::kNxio);
  EXPECT_EQ(at(708 * KiB, client::Seek::kData).error().code, Errc::kNxio);
  auto empty = create("hole");
  client::SetAttr grow;
  grow.valid = wire::kSetSize;
  grow.size = 1 * MiB;
  ASSERT_OK(run(fs().setattr(empty->ino(), grow, {})));
  EXPECT_EQ(run(fs().lseek(empty, 0, client::Seek::kData, {})).error().code, Errc::kNxio);
  EXPECT_EQ(run(fs().lseek(empty, 5000, client::Seek::kHole, {})).value(), 5000u);
}

TEST_F(Data, CopiesRangesAndRefusesOverlap) {
  auto a = create("a"), b = create("b");
  auto content = bytes(2 * MiB + 777);
  ASSERT_OK(write(a, 0, content));
  auto copied = run(fs().copy_file_range(a, b, {100, 5, 10 * MiB}, {}));
  ASSERT_OK(copied);
  EXPECT_EQ(*copied, content.size() - 100);
  auto r = read(b, 5, 3 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, text(content).substr(100));
  EXPECT_EQ(run(fs().copy_file_range(a, a, {0, 50, 100}, {})).error().code, Errc::kInval);
  EXPECT_EQ(run(fs().copy_file_range(a, a, {0, 100, 100}, {})).value(), 100u);
}

TEST_F(Data, AppendsOfTwoClientsNeverOverlap) {
  auto h = create("log", O_WRONLY | O_APPEND);
  auto& other = mount(options());
  auto theirs = run(other.open(h->ino(), O_WRONLY | O_APPEND, {}));
  ASSERT_OK(theirs);
  auto burst = [](client::Filesystem& fs, HandlePtr handle, char c) -> Task<int> {
    int good = 0;
    for (int i = 0; i < 100; ++i) {
      std::string line(17, c);
      line.back() = '\n';
      auto w = co_await fs.write(handle, 0, Buffer::copy_of(std::as_bytes(std::span(line))), {}, {});
      good += w && w->written == line.size();
    }
    co_return good;
  };
  auto a = start(burst(fs(), h, 'a'), 0), b = start(burst(other, theirs->handle, 'b'), 1), c = start(burst(fs(), h, 'c'), 1);
  EXPECT_EQ(a.get() + b.get() + c.get(), 300);
  auto reader = run(fs().open(h->ino(), O_RDONLY, {}));
  ASSERT_OK(reader);
  auto r = read(reader->handle, 0, 10'000);
  ASSERT_OK(r);
  ASSERT_EQ(r->size(), 300u * 17);
  std::map<char, int> lines;
  for (size_t i = 0; i < r->size(); i += 17) {
    EXPECT_EQ(r->substr(i, 17), std::string(16, (*r)[i]) + "\n");
    ++lines[(*r)[i]];
  }
  EXPECT_EQ(lines, (std::map<char, int>{{'a', 100}, {'b', 100}, {'c', 100}}));
  ASSERT_OK(run(other.release(theirs->handle, 0)));
}

TEST_F(Data, WhatIsRetainedStaysWithinItsLimit) {
  auto o = options();
  o.retained = 1 * MiB;
  auto& f = mount(o);
  auto h = create("f");
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK(write(h, static_cast<uint64_t>(i) * 512 * KiB, bytes(512 * KiB)));
    uint64_t retained = 0;
    for (auto& s : f.status().servers) retained += s.retained;
    EXPECT_LE(retained, 1 * MiB + 16 * KiB);
  }
}

TEST_F(Data, FsyncCommitsOnEveryTargetOfTheFile) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(200 * KiB)));
  ASSERT_OK(run(fs().fsync(h, false, {})));
  for (auto& o : osts) EXPECT_EQ(o->served(rpc::Method::kObjectCommit), 1);
  EXPECT_EQ(mds->served(rpc::Method::kSync), 1);
  ASSERT_OK(run(fs().fsync(h, false, {})));  // nothing new: no target is asked
  for (auto& o : osts) EXPECT_EQ(o->served(rpc::Method::kObjectCommit), 1);
}

TEST_F(Data, RenameOverATargetCommitsTheSourceFirst) {
  auto a = create("tmp");
  ASSERT_OK(write(a, 0, data("new content")));
  ASSERT_OK(run(fs().rename({kRootIno, "tmp", kRootIno, "fresh", 0}, {})));
  EXPECT_EQ(osts[0]->served(rpc::Method::kObjectCommit), 0);
  create("target");
  ASSERT_OK(run(fs().rename({kRootIno, "fresh", kRootIno, "target", 0}, {})));
  EXPECT_EQ(osts[0]->served(rpc::Method::kObjectCommit), 1);
}

TEST_F(Data, MappedPagesNeverExtendTheFile) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, data("12345")));
  client::WriteOptions page;
  page.from_page_cache = true;
  auto w = run(fs().write(h, 0, bytes(4096), page, {}));
  ASSERT_OK(w);
  EXPECT_EQ(w->written, 4096u);
  auto r = read(h, 0, 8192);
  ASSERT_OK(r);
  EXPECT_EQ(*r, text(bytes(4096)).substr(0, 5));
}

}  // namespace nacre::test
