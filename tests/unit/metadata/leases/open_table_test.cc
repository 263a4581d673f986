// SPDX-License-Identifier: Apache-2.0
// Who has what open, and when the writers' reports tell the whole truth about a file.
#include "metadata/leases/open_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/wire/bits.h"

namespace nacre::mds {
namespace {

constexpr Ino kOpened{5};
constexpr SessionId kA{1}, kB{2};

/// One component of `count` stripes of 1 MiB, `used` of them in use.
schema::InodeRecordT record(uint16_t count, uint16_t used, uint32_t generation = 1) {
  schema::InodeRecordT r;
  r.ino = kOpened.v;
  r.layout = std::make_unique<schema::LayoutT>();
  r.layout->generation = generation;
  auto c = std::make_unique<schema::ComponentT>();
  c->stripe_size = 1 << 20;
  c->stripe_count = count;
  c->instantiated = used != 0;
  c->stripes_used = used;
  for (uint32_t i = 0; used && i < count; ++i) c->osts.push_back(i);
  r.layout->components.push_back(std::move(c));
  return r;
}
wire::ObjectReport report(uint16_t stripe, uint64_t size, uint64_t wseq, int64_t changed, uint32_t generation = 1) {
  return {schema::ObjectRef(kOpened.v, generation, 0, stripe), size, (size + 4095) / 4096 * 4096, wseq, changed};
}

TEST(OpenTable, WritersAndReadersAreTold) {
  OpenTable t;
  EXPECT_FALSE(t.is_open(kOpened));
  t.add(kOpened, kA, 10, O_RDONLY, nullptr);
  EXPECT_TRUE(t.is_open(kOpened));
  EXPECT_FALSE(t.open_for_write(kOpened));
  EXPECT_TRUE(t.open_elsewhere(kOpened, kB));
  EXPECT_FALSE(t.open_elsewhere(kOpened, kA));
  t.add(kOpened, kA, 11, O_RDWR | O_APPEND, nullptr);
  t.add(kOpened, kA, 11, O_RDWR | O_APPEND, nullptr);
  EXPECT_TRUE(t.open_for_write(kOpened));
  EXPECT_EQ(t.count(kA), 2u) << "a repeat is no second handle";
  EXPECT_EQ(t.rights(kOpened, kA), wire::kCapRead | wire::kCapWrite);
  EXPECT_EQ(t.rights(kOpened, kB), 0);
  EXPECT_EQ(t.appenders(kOpened, kB), (std::vector<SessionId>{kA}));
  EXPECT_TRUE(t.appenders(kOpened, kA).empty());
  EXPECT_EQ(t.flags(kOpened, kA, 10), uint32_t{O_RDONLY});
  EXPECT_FALSE(t.flags(kOpened, kB, 10));
  EXPECT_EQ(t.inodes_of(kA), (std::vector<Ino>{kOpened}));
}

TEST(OpenTable, AFileStaysOpenForWriteUntilItIsSettled) {
  OpenTable t;
  t.add(kOpened, kA, 1, O_WRONLY, nullptr);
  t.add(kOpened, kB, 2, O_RDWR, nullptr);
  t.add(kOpened, kA, 3, O_WRONLY, nullptr);
  auto c = t.peek(kOpened, kA, 1);
  EXPECT_TRUE(c.known && !c.session_done && !c.last_writer && !c.last_open);
  t.remove(kOpened, kA, 1);
  c = t.peek(kOpened, kA, 3);
  EXPECT_TRUE(c.session_done && !c.last_writer);
  t.remove(kOpened, kA, 3);
  c = t.peek(kOpened, kB, 2);
  EXPECT_TRUE(c.session_done && c.last_writer && c.last_open);
  t.remove(kOpened, kB, 2);
  EXPECT_TRUE(t.open_for_write(kOpened)) << "its record is not committed yet";
  t.add(kOpened, kA, 4, O_WRONLY, nullptr);  // in the same turn
  t.settled(kOpened);
  EXPECT_TRUE(t.open_for_write(kOpened));
  t.remove(kOpened, kA, 4);
  t.settled(kOpened);
  EXPECT_FALSE(t.open_for_write(kOpened));
  EXPECT_FALSE(t.is_open(kOpened));
  EXPECT_EQ(t.total(), 0u);
  EXPECT_FALSE(t.peek(kOpened, kA, 4).known);
}

TEST(OpenTable, NewFileIsSettledFromReports) {
  OpenTable t;
  t.add(kOpened, kA, 1, O_WRONLY, nullptr);
  auto g = t.from_reports(record(4, 4));
  ASSERT_TRUE(g);
  EXPECT_EQ(g->changed, 0) << "nothing written";
  t.report(kOpened, {report(0, 1 << 20, 10, 100), report(1, 500, 11, 120)}, false);
  g = t.from_reports(record(4, 4));
  ASSERT_TRUE(g);
  EXPECT_EQ(g->size, (1u << 20) + 500);
  EXPECT_EQ(g->allocated, (1u << 20) + 4096);
  EXPECT_EQ(g->changed, 120);
  t.report(kOpened, {report(1, 100, 9, 90)}, false);
  EXPECT_EQ(t.from_reports(record(4, 4))->size, (1u << 20) + 500) << "an older report changes nothing";
  t.report(kOpened, {report(1, 600, 12, 130)}, false);
  EXPECT_EQ(t.from_reports(record(4, 4))->size, (1u << 20) + 600);
}

TEST(OpenTable, ObjectsFromBeforeMustBeReportedOrAsked) {
  OpenTable t;
  auto before = record(2, 2);
  t.add(kOpened, kA, 1, O_WRONLY, before.layout.get());
  EXPECT_TRUE(t.from_reports(before)) << "nothing written: the record stands";
  t.report(kOpened, {report(0, 10, 1, 1)}, false);
  EXPECT_FALSE(t.from_reports(before)) << "stripe 1 may hold data";
  t.report(kOpened, {report(1, 10, 2, 2)}, false);
  EXPECT_TRUE(t.from_reports(before));
}

TEST(OpenTable, UnsureWritersCutsAndLostOnesForceAsking) {
  OpenTable t;
  t.add(kOpened, kA, 1, O_WRONLY, nullptr);
  t.report(kOpened, {report(0, 10, 1, 1)}, true);
  EXPECT_FALSE(t.from_reports(record(1, 1)));

  OpenTable cut;
  cut.add(kOpened, kA, 1, O_WRONLY, nullptr);
  cut.report(kOpened, {report(0, 10, 1, 1)}, false);
  const uint64_t stamp = cut.cuts(kOpened);
  cut.objects_changed(kOpened);
  EXPECT_NE(cut.cuts(kOpened), stamp);
  EXPECT_FALSE(cut.from_reports(record(1, 1)));

  OpenTable lost;
  lost.add_lost(kOpened, kA);
  EXPECT_TRUE(lost.open_for_write(kOpened));
  lost.add(kOpened, kA, 1, O_RDWR, nullptr);
  EXPECT_FALSE(lost.from_reports(record(1, 1)));
}

TEST(OpenTable, ReportsOfAReplacedGenerationDoNotCount) {
  OpenTable t;
  auto before = record(1, 1, 1);
  t.add(kOpened, kA, 1, O_RDWR, before.layout.get());
  t.report(kOpened, {report(0, 5000, 1, 1, 1)}, false);
  auto g = t.from_reports(record(1, 1, 2));
  ASSERT_TRUE(g);
  EXPECT_EQ(g->size, 0u);
  t.report(kOpened, {report(0, 7, 2, 2, 2)}, false);
  EXPECT_EQ(t.from_reports(record(1, 1, 2))->size, 7u);
}

TEST(OpenTable, TheNextWriterStartsWithCleanReports) {
  OpenTable t;
  t.add(kOpened, kA, 1, O_WRONLY, nullptr);
  t.report(kOpened, {report(0, 10, 1, 1)}, true);
  t.remove(kOpened, kA, 1);
  t.settled(kOpened);
  auto now = record(1, 1);
  t.add(kOpened, kB, 2, O_WRONLY, now.layout.get());
  auto g = t.from_reports(now);
  ASSERT_TRUE(g);
  EXPECT_EQ(g->changed, 0);
}

}  // namespace
}  // namespace nacre::mds
