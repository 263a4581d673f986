// SPDX-License-Identifier: Apache-2.0
// Files that are open for writing: size and times come from the objects, asked after the request arrived.
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct GlimpseTest : testing::Test {
  World w;
  Ino f;
  void SetUp() override {
    f = must(w.create(kRoot, kRootIno, "f", 0644, 0, O_EXCL, 1));
    w.hooks.writers.insert(f);
  }
  void objects(uint64_t size, uint64_t allocated, Nanos changed) { w.hooks.objects[f] = {f, size, allocated, changed}; }
};

TEST_F(GlimpseTest, EveryAnswerAsksAgain) {
  Nanos t = w.clock.real() + kSecond;
  objects(5000, 8192, t);
  for (int i = 1; i <= 2; ++i) {
    auto a = must(w.getattr(f));
    EXPECT_EQ(a.size, 5000u);
    EXPECT_EQ(a.allocated, 8192u);
    EXPECT_EQ(a.mtime, t);
    EXPECT_EQ(a.ctime, t);
    EXPECT_EQ(a.content_time, t);
    EXPECT_TRUE(a.flags & wire::kOpenForWrite);
    EXPECT_EQ(w.hooks.glimpses, i);
  }
  wire::LookupRequestT q;
  q.parent = 1;
  q.name = as_bytes("f");
  EXPECT_EQ(must(w.run(kRoot, [&](OpContext& c) { return ops::lookup(c, q); })).attr->size, 5000u);
  auto page = must(w.readdir(kRoot, kRootIno, 0, true));
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_EQ(page.entries[0]->attr->size, 5000u);
  EXPECT_EQ(must(w.link(kRoot, f, kRootIno, "g")), f);
  EXPECT_EQ(w.hooks.glimpses, 5);
  EXPECT_EQ(w.record(f).size, 0u) << "a look changes nothing";
  w.hooks.writers.clear();
  EXPECT_EQ(must(w.getattr(f)).size, 0u) << "now the record is what counts";
  EXPECT_EQ(w.hooks.glimpses, 5);
}

TEST_F(GlimpseTest, ARecordSizeAboveTheObjectsStands) {
  objects(10, 4096, w.clock.real());
  must(w.truncate(kRoot, f, 1000));
  EXPECT_EQ(must(w.getattr(f)).size, 1000u);
}

TEST_F(GlimpseTest, ExplicitTimesSupersedeEarlierWritesOnly) {
  Nanos written = w.clock.real() + kSecond;
  objects(10, 4096, written);
  auto reply = must(w.setattr(kRoot, f, wire::kSetMtime, [](auto& q) { q.mtime = 12345; }));
  EXPECT_EQ(reply.attr->mtime, 12345);
  EXPECT_EQ(must(w.getattr(f)).mtime, 12345);
  objects(20, 4096, written + 1);
  EXPECT_EQ(must(w.getattr(f)).mtime, written + 1);
  must(w.setattr(kRoot, f, wire::kSetMtime | wire::kSetMtimeNow, [](auto&) {}));
  Nanos now = w.record(f).mtime;
  EXPECT_EQ(must(w.getattr(f)).mtime, now);
}

TEST_F(GlimpseTest, ExplicitTimesOfAClosedFileHoldAtTheNextOpenToo) {
  w.hooks.writers.clear();
  Nanos written = w.clock.real() + kSecond;
  w.change(f, [&](auto& r) { r.mtime = r.content_time = written; });  // settled at its last close
  must(w.setattr(kRoot, f, wire::kSetMtime, [](auto& q) { q.mtime = 12345; }));
  w.hooks.writers.insert(f);
  objects(10, 4096, written);
  EXPECT_EQ(must(w.getattr(f)).mtime, 12345);
}

TEST_F(GlimpseTest, TruncateComparesWithTheObjects) {
  objects(5000, 8192, w.clock.real());
  w.hooks.sessions[f] = {2};
  int calls = 0;
  w.hooks.do_truncate = [&](Ino ino, uint64_t size) -> Result<void> {
    ++calls;
    w.change(ino, [&](auto& r) { r.size = size; });
    objects(size, 4096, w.clock.real());
    return {};
  };
  EXPECT_EQ(must(w.truncate(kRoot, f, 6000)).attr->size, 6000u);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(must(w.truncate(kRoot, f, 4000)).attr->size, 4000u);
  EXPECT_EQ(calls, 1);
}

TEST_F(GlimpseTest, TruncateToNothingDoesNotTellOfWhatIsGone) {
  objects(5000, 8192, w.clock.real());
  auto reply = must(w.setattr(kRoot, f, wire::kSetSize | wire::kSetMtime | wire::kSetMtimeNow, [](auto& q) { q.size = 0; }));
  EXPECT_EQ(reply.attr->size, 0u);
  EXPECT_EQ(reply.attr->allocated, 0u);
  EXPECT_EQ(w.hooks.glimpses, 0);
}

TEST_F(GlimpseTest, AFileOpenedDuringTheRequestIsAnsweredFromItsRecord) {
  w.hooks.writers.clear();
  Ino g = must(w.create(kRoot, kRootIno, "g", 0644, 0, O_EXCL, 1));
  w.hooks.writers.insert(g);
  bool opened = false;
  OpContext ctx(*w.services, kRoot);
  wire::ReaddirRequestT q;
  q.dir = 1;
  q.plus = true;
  q.max_bytes = 1 << 20;
  auto page = must(DirectRunner::run(ctx, [&](OpContext& c) { return ops::readdir(c, q); }, [&](const Park& park) -> Result<void> {
    EXPECT_EQ(park.inos, std::vector<Ino>{g}) << "only what was open when the request looked first";
    DirectRunner::give(ctx, w.hooks.glimpse_now(g));
    w.hooks.writers.insert(f);
    opened = true;
    return {};
  }));
  EXPECT_TRUE(opened);
  EXPECT_EQ(page.entries.size(), 2u);
}

}  // namespace
}  // namespace nacre::mds::test
