// SPDX-License-Identifier: Apache-2.0
// What the service keeps in memory: remembered writes, fences that wait, known capabilities, and the offset of clocks.
#include <future>

#include <gtest/gtest.h>

#include "storage/service/capability_cache.h"
#include "storage/service/enrollment.h"
#include "storage/service/session_table.h"

namespace nacre::storage {
namespace {
using Verdict = SessionTable::Verdict;
constexpr ObjectId kCut{Ino(9), Generation(1), 0, 0};
constexpr SessionId kSession{5};

WriteResult result(uint64_t wseq) {
  WriteResult r;
  r.wseq = WSeq(wseq);
  return r;
}

class Sessions : public testing::Test {
 protected:
  Sessions() { runtime_.start(); }
  template <class T>
  T on_loop(Task<T> task) {
    std::promise<T> promise;
    runtime_.loop(0).spawn([](std::promise<T>& p, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  }(promise, std::move(task)));
    return promise.get_future().get();
  }
  Runtime runtime_{RuntimeOptions{.loops = 1, .pin = false, .workers = 1}};
  SessionTable table_;
};

TEST_F(Sessions, RememberResultsButNotErrors) {
  const SessionTable::Write w{1, kCut, 0, 4096};
  EXPECT_EQ(table_.begin(kSession, w).verdict, Verdict::kRun);
  table_.finish(kSession, w, Err(Errc::kNoSpc));
  EXPECT_EQ(table_.begin(kSession, w).verdict, Verdict::kRun) << "a failed write runs again";
  table_.finish(kSession, w, result(77));
  auto again = table_.begin(kSession, w);
  EXPECT_EQ(again.verdict, Verdict::kDone);
  EXPECT_EQ(again.result.wseq, WSeq(77));
  EXPECT_EQ(table_.begin(kSession, {1, kCut, 4096, 4096}).verdict, Verdict::kMismatch);
  EXPECT_EQ(table_.begin(SessionId(6), w).verdict, Verdict::kRun) << "ids are per session";
  table_.finish(SessionId(6), w, Err(Errc::kIo));
}

TEST_F(Sessions, ARepeatWaitsForTheFirst) {
  const SessionTable::Write w{1, kCut, 0, 4096};
  ASSERT_EQ(table_.begin(kSession, w).verdict, Verdict::kRun);
  auto body = [](SessionTable& t, SessionTable::Write write) -> Task<uint64_t> {
    auto again = t.begin(kSession, write);
    if (again.verdict != Verdict::kWait) co_return 0;
    Loop::current()->post([&t, write] { t.finish(kSession, write, result(3)); });
    auto first = co_await again.first->wait();
    co_return first ? first->wseq.v : 0;
  };
  EXPECT_EQ(on_loop(body(table_, w)), 3u);
}

TEST_F(Sessions, AFenceWaitsForWritesInProgress) {
  const SessionTable::Write a{1, kCut, 0, 4096}, b{0, kCut, 4096, 4096};
  table_.begin(kSession, a);
  table_.begin(kSession, b);
  std::atomic<int> left{2};
  auto body = [](SessionTable& t, std::atomic<int>& n, SessionTable::Write x, SessionTable::Write y) -> Task<int> {
    Loop::current()->post([&] { --n, t.finish(kSession, x, result(1)); });
    Loop::current()->post([&] { --n, t.finish(kSession, y, Err(Errc::kIo)); });
    co_await t.drained(kSession);
    co_return n.load();
  };
  EXPECT_EQ(on_loop(body(table_, left, a, b)), 0);
  on_loop([](SessionTable& t) -> Task<int> { co_await t.drained(kSession); co_return 0; }(table_));  // nothing to wait for
}

TEST_F(Sessions, AreBounded) {
  for (uint64_t i = 1; i <= 3 * SessionTable::kMaxResultsPerSession; ++i) {
    const SessionTable::Write w{i, kCut, i * 4096, 4096};
    ASSERT_EQ(table_.begin(kSession, w).verdict, Verdict::kRun);
    table_.finish(kSession, w, result(i));
  }
  EXPECT_EQ(table_.results(), SessionTable::kMaxResultsPerSession);
  EXPECT_EQ(table_.begin(kSession, {3 * SessionTable::kMaxResultsPerSession, kCut, 3 * SessionTable::kMaxResultsPerSession * 4096, 4096}).verdict, Verdict::kDone);
  for (uint64_t s = 100; s < 100 + SessionTable::kMaxResults / 64 * 9 / 8; ++s)
    for (uint64_t i = 1; i <= 64; ++i) {
      const SessionTable::Write w{i, kCut, 0, 1};
      if (table_.begin(SessionId(s), w).verdict == Verdict::kRun) table_.finish(SessionId(s), w, result(i));
    }
  EXPECT_LE(table_.results(), SessionTable::kMaxResults);
  EXPECT_GT(table_.results(), SessionTable::kMaxResults / 2);
}

struct Encoded { Bytes bytes; const wire::Capability* view() const { return flatbuffers::GetRoot<wire::Capability>(bytes.data()); } };
Encoded capability(const wire::Key& key, uint64_t ino, Nanos expires) {
  wire::CapabilityT c;
  c.session = 1, c.ino = ino, c.generation = 1, c.components = 1, c.mode = 3, c.fileset = 1, c.epoch = 1, c.expires = expires;
  wire::sign(key, c);
  return {encode(c)};
}

TEST(CapabilityCache, VerifiesEachSignatureOnce) {
  wire::Key key{};
  CapabilityCache cache;
  const Encoded c = capability(key, 9, 1000);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(cache.verify(key, c.view(), kCut, 3, 10));
  EXPECT_EQ(cache.verified(), 1u);
  EXPECT_EQ(cache.verify(key, c.view(), kCut, 3, 1000).error().code, Errc::kCapExpired) << "a known one expires too";
  EXPECT_EQ(cache.verify(key, c.view(), {Ino(10), Generation(1), 0, 0}, 3, 10).error().code, Errc::kCapInvalid);
  EXPECT_EQ(cache.verify(key, nullptr, kCut, 3, 10).error().code, Errc::kCapInvalid);
}

TEST(CapabilityCache, AChangedFieldIsNoHit) {
  wire::Key key{};
  CapabilityCache cache;
  wire::CapabilityT c;
  c.session = 1, c.ino = 9, c.generation = 1, c.components = 1, c.mode = 1, c.expires = 1000;
  wire::sign(key, c);
  ASSERT_TRUE(cache.verify(key, Encoded{encode(c)}.view(), kCut, 1, 10));
  c.mode = 3;  // same mac, more rights
  EXPECT_EQ(cache.verify(key, Encoded{encode(c)}.view(), kCut, 2, 10).error().code, Errc::kCapInvalid);
  c.mode = 1, c.expires = 1'000'000;
  EXPECT_EQ(cache.verify(key, Encoded{encode(c)}.view(), kCut, 1, 10).error().code, Errc::kCapInvalid);
}

TEST(CapabilityCache, IsBounded) {
  wire::Key key{};
  CapabilityCache cache;
  for (uint64_t i = 0; i < CapabilityCache::kMaxEntries + 10; ++i) {
    const Encoded c = capability(key, i, 1000);
    ASSERT_TRUE(cache.verify(key, c.view(), {Ino(i), Generation(1), 0, 0}, 3, 10));
    ASSERT_LE(cache.size(), CapabilityCache::kMaxEntries);
  }
}

TEST(TimeOffset, TrustsTheShortestTripAndFollowsSteps) {
  TimeOffset t;
  EXPECT_FALSE(t.known());
  EXPECT_EQ(t.value(), 0);
  const Nanos ms = kMillisecond;
  t.add(0, 2 * ms, 1 * ms + 500 * ms);  // exact: 500 ms ahead
  EXPECT_EQ(t.value(), 500 * ms);
  t.add(1000 * ms, 1040 * ms, 1039 * ms + 500 * ms);  // a slow, lopsided trip
  EXPECT_EQ(t.value(), 500 * ms);
  t.add(2000 * ms, 2002 * ms, 2001 * ms + 9000 * ms);  // a clock was set
  EXPECT_EQ(t.value(), 9000 * ms);
  for (size_t i = 0; i < TimeOffset::kSamples; ++i) t.add(3000 * ms, 3004 * ms, 3002 * ms + 9001 * ms);
  EXPECT_EQ(t.value(), 9001 * ms) << "old samples go";
}

}  // namespace
}  // namespace nacre::storage
