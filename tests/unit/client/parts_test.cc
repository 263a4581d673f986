// SPDX-License-Identifier: Apache-2.0
// Small parts on their own: lock ranges, relatime, what a reply may replace in an inode.
#include <gtest/gtest.h>

#include "client/core/atimes.h"
#include "client/core/inode.h"
#include "client/core/locks.h"

namespace nacre::client {

namespace {
wire::LockSpecT range(uint64_t owner, uint8_t type, uint64_t start, uint64_t end) {
  wire::LockSpecT s;
  s.owner = owner;
  s.type = type;
  s.start = start;
  s.end = end;
  return s;
}
std::string show(const LockSet& set) {
  auto all = set.all();
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return std::tie(a.owner, a.start) < std::tie(b.owner, b.start); });
  std::string out;
  for (auto& l : all) out += fmt::format("{}{}{}-{} ", l.owner, l.type == kLockRead ? 'r' : 'w', l.start, l.end == kLockToEnd ? "end" : std::to_string(l.end));
  return out;
}
schema::LayoutT layout_of(uint32_t generation, uint16_t used) {
  schema::LayoutT l;
  l.generation = generation;
  auto c = std::make_unique<schema::ComponentT>();
  c->stripe_size = 65536;
  c->stripe_count = 4;
  c->instantiated = used > 0;
  if (used) c->osts = {0, 1, 2, 3};
  c->stripes_used = used;
  l.components.push_back(std::move(c));
  return l;
}
wire::CapabilityT cap_of(uint32_t generation, uint8_t mode, Nanos expires) {
  wire::CapabilityT c;
  c.generation = generation;
  c.mode = mode;
  c.components = 1;
  c.expires = expires;
  c.mac.assign(16, 1);
  return c;
}
}  // namespace

TEST(LockSet, RangesMergeSplitAndUpgradeAsFcntlSays) {
  LockSet s;
  s.apply(range(1, kLockWrite, 0, 9));
  s.apply(range(1, kLockWrite, 10, 19));
  EXPECT_EQ(show(s), "1w0-19 ");
  s.apply(range(1, kLockFree, 5, 7));
  EXPECT_EQ(show(s), "1w0-4 1w8-19 ");
  s.apply(range(1, kLockRead, 3, 10));
  EXPECT_EQ(show(s), "1w0-2 1r3-10 1w11-19 ");
  s.apply(range(2, kLockRead, 0, kLockToEnd));
  EXPECT_EQ(show(s), "1w0-2 1r3-10 1w11-19 2r0-end ");
  s.apply(range(1, kLockFree, 0, kLockToEnd));
  EXPECT_EQ(show(s), "2r0-end ");
  s.apply(range(2, kLockFree, 100, kLockToEnd));
  EXPECT_EQ(show(s), "2r0-99 ");
  EXPECT_TRUE(s.holds(2, false));
  EXPECT_FALSE(s.holds(2, true));
}

TEST(LockSet, AFlockIsOnePerOwner) {
  LockSet s;
  auto f = range(1, kLockRead, 0, kLockToEnd);
  f.flock = true;
  s.apply(f);
  f.type = kLockWrite;
  s.apply(f);
  EXPECT_EQ(show(s), "1w0-end ");
  f.type = kLockFree;
  s.apply(f);
  EXPECT_TRUE(s.empty());
}

TEST(Relatime, MovesAtMostOnceADayUnlessTheFileIsNewer) {
  constexpr Nanos kDay = 24 * 3600 * kSecond;
  EXPECT_TRUE(relatime_moves(10, 10, 5, 20));
  EXPECT_TRUE(relatime_moves(10, 5, 10, 20));
  EXPECT_FALSE(relatime_moves(10, 9, 9, 20));
  EXPECT_TRUE(relatime_moves(10, 9, 9, 10 + kDay));
  EXPECT_FALSE(relatime_moves(10, 9, 9, 9 + kDay));
}

TEST(Atimes, OverlayUntilReportedAndExplicitTimesWin) {
  Atimes a;
  ASSERT_TRUE(a.add(Ino(5), 100));
  wire::AttrT attr;
  attr.ino = 5;
  attr.atime = 50;
  a.overlay(attr);
  EXPECT_EQ(attr.atime, 100);
  auto sent = a.pending(10);
  ASSERT_TRUE(a.add(Ino(5), 200));  // moved on while the report was under way
  a.reported(sent);
  EXPECT_EQ(a.of(Ino(5)), 200);
  a.forget(Ino(5));
  EXPECT_EQ(a.of(Ino(5)), 0);
}

TEST(InodeGrants, ARepliesOrderDoesNotMatter) {
  Inode i(Ino(7));
  auto wide = layout_of(1, 4), narrow = layout_of(1, 2), old = layout_of(1, 4), next = layout_of(2, 0);
  auto cap = cap_of(1, 3, 100);
  i.adopt(&wide, &cap, 0, 0);
  i.adopt(&narrow, &cap, 1, 0);  // an earlier reply that arrives later
  EXPECT_EQ(i.grant(true)->layout.components[0]->stripes_used, 4);
  auto cap2 = cap_of(2, 2, 100);
  i.adopt(&next, &cap2, 2, 0);
  EXPECT_EQ(i.grant(true)->layout.generation, 2u);
  EXPECT_TRUE(i.grant(true)->valid(3));
  EXPECT_EQ(i.grant(false)->layout.generation, 2u);
  EXPECT_FALSE(i.grant(false)->valid(3));  // the right to read was of the old generation
  i.adopt(&old, &cap, 4, 0);
  EXPECT_EQ(i.grant(true)->layout.generation, 2u);
}

TEST(InodeGrants, ExpireWithAMargin) {
  Inode i(Ino(7));
  auto l = layout_of(1, 4);
  auto cap = cap_of(1, 3, 1000 + 60 * kSecond);
  i.adopt(&l, &cap, 5 * kSecond, 1000);
  auto g = i.grant(true);
  EXPECT_TRUE(g->valid(5 * kSecond));
  EXPECT_FALSE(g->ageing(34 * kSecond));
  EXPECT_TRUE(g->ageing(35 * kSecond));
  EXPECT_TRUE(g->valid(64 * kSecond));
  EXPECT_FALSE(g->valid(65 * kSecond));
  EXPECT_TRUE(g->covers(0, 65536));
  EXPECT_FALSE(layout_of(1, 2).components.empty());
}

TEST(InodeErrors, EachHandleHearsOfAnErrorOnce) {
  auto table = std::make_shared<InodeTable>();
  auto i = table->get(Ino(9));
  auto a = std::make_shared<FileHandle>(i, Ino(9), 1, 2, 1, false), b = std::make_shared<FileHandle>(i, Ino(9), 2, 2, 1, false);
  i->add(a);
  i->add(b);
  EXPECT_FALSE(i->take_error(*a));
  i->fail(Error(Errc::kIo));
  EXPECT_TRUE(i->take_error(*a));
  EXPECT_FALSE(i->take_error(*a));
  EXPECT_TRUE(i->take_error(*b));
  auto late = std::make_shared<FileHandle>(i, Ino(9), 3, 2, 1, false);
  i->add(late);
  EXPECT_FALSE(i->take_error(*late));
  for (auto& h : {a, b, late}) i->remove(h);
  a.reset(), b.reset(), late.reset(), i.reset();
  EXPECT_EQ(table->find(Ino(9)), nullptr);
}

}  // namespace nacre::client
