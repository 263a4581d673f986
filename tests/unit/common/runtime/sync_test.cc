// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/sync.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/common/runtime/hand.h"

namespace nacre {
namespace {

using testing::as_task;
using testing::Hand;

template <class R>
Errc code_of(const R& r) { return r ? Errc::kOk : r.error().code; }

struct SyncTest : ::testing::Test {
  Hand hand;
  Loop& loop() { return hand.runtime.loop(0); }
  template <class F>
  void go(F f) { loop().spawn(as_task(std::move(f))); }
};

TEST_F(SyncTest, SignalWakesAllWaitersWithTheFirstValue) {
  std::vector<Errc> got;
  std::optional<Signal> s;
  go([&]() -> Task<void> {
    s.emplace();
    got.push_back(code_of(co_await s->wait()));
  });
  hand.settle();
  go([&]() -> Task<void> { got.push_back(code_of(co_await s->wait())); });
  hand.settle();
  EXPECT_TRUE(got.empty());
  EXPECT_FALSE(s->is_set());
  s->set(Err(Errc::kNoSpc));
  s->set();
  EXPECT_TRUE(s->is_set());
  hand.settle();
  go([&]() -> Task<void> { got.push_back(code_of(co_await s->wait())); });
  hand.settle();
  EXPECT_EQ(got, (std::vector<Errc>{Errc::kNoSpc, Errc::kNoSpc, Errc::kNoSpc}));
}

TEST_F(SyncTest, SignalDeadlineAndCancel) {
  std::vector<std::pair<int, Errc>> got;
  auto cancel = std::make_shared<Cancel>();
  const Nanos start = hand.clock.boot();
  std::optional<Signal> s;
  go([&]() -> Task<void> {
    s.emplace();
    co_return;
  });
  hand.settle();
  go([&]() -> Task<void> { got.emplace_back(1, code_of(co_await s->wait(start + kSecond))); });
  go([&]() -> Task<void> { got.emplace_back(2, code_of(co_await s->wait(start + 2 * kSecond, cancel))); });
  go([&]() -> Task<void> { got.emplace_back(3, code_of(co_await s->wait(kForever, cancel))); });
  go([&]() -> Task<void> { got.emplace_back(4, code_of(co_await s->wait(start))); });
  hand.settle();
  EXPECT_EQ(got, (std::vector<std::pair<int, Errc>>{{4, Errc::kDeadline}}));
  hand.clock.advance(kSecond);
  hand.runtime.fire_timers();
  hand.settle();
  EXPECT_EQ(got.back(), std::make_pair(1, Errc::kDeadline));
  cancel->fire(Errc::kIntr);
  cancel->fire(Errc::kStale);
  hand.settle();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[2].second, Errc::kIntr);
  EXPECT_EQ(got[3].second, Errc::kIntr);
  EXPECT_EQ(hand.runtime.next_timer(), -1);  // the cancelled wait left no timer behind
  go([&]() -> Task<void> { got.emplace_back(5, code_of(co_await s->wait(kForever, cancel))); });
  hand.settle();
  EXPECT_EQ(got.back(), std::make_pair(5, Errc::kIntr));
  s->set();
  go([&]() -> Task<void> { got.emplace_back(6, code_of(co_await s->wait(start, cancel))); });
  hand.settle();
  EXPECT_EQ(got.back(), std::make_pair(6, Errc::kOk));  // a value that is there wins
}

TEST_F(SyncTest, CompletionDeliversItsValue) {
  std::optional<Result<std::string>> got;
  std::optional<Completion<std::string>> c;
  go([&]() -> Task<void> {
    c.emplace();
    got = co_await c->wait();
  });
  hand.settle();
  c->set(std::string("hello"));
  c->set(Err(Errc::kIo));
  hand.settle();
  ASSERT_TRUE(got && *got);
  EXPECT_EQ(**got, "hello");
}

TEST_F(SyncTest, CancelCallsAtOnceWhenAlreadyFired) {
  Cancel c;
  std::vector<Errc> got;
  const uint64_t token = c.add([&](Error e) { got.push_back(e.code); });
  c.add([&](Error e) { got.push_back(e.code); });
  c.remove(token);
  c.fire(Errc::kIntr);
  EXPECT_EQ(c.add([&](Error e) { got.push_back(e.code); }), 0u);
  EXPECT_EQ(got, (std::vector<Errc>{Errc::kIntr, Errc::kIntr}));
  EXPECT_TRUE(c.fired());
}

TEST_F(SyncTest, SemaphoreServesInOrder) {
  Semaphore s(3);
  std::vector<int> got;
  auto taker = [&](int i, uint64_t n, Nanos deadline = kForever) -> Task<void> {
    auto r = co_await s.acquire(n, deadline);
    got.push_back(r ? i : -i);
  };
  loop().spawn(taker(1, 2));
  loop().spawn(taker(2, 3));
  loop().spawn(taker(3, 1));  // would fit, but must not overtake
  hand.settle();
  EXPECT_EQ(got, (std::vector<int>{1}));
  s.release(2);
  hand.settle();
  EXPECT_EQ(got, (std::vector<int>{1, 2}));
  s.release(3);
  hand.settle();
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(s.free(), 2u);
  // A waiter that gives up lets those behind it go on.
  loop().spawn(taker(4, 3, hand.clock.boot() + kSecond));
  loop().spawn(taker(5, 2));
  hand.settle();
  EXPECT_EQ(got.size(), 3u);
  hand.clock.advance(kSecond);
  hand.runtime.fire_timers();
  hand.settle();
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3, -4, 5}));
  EXPECT_EQ(s.free(), 0u);
}

TEST_F(SyncTest, GateWaitsForThoseInside) {
  Gate gate;
  ASSERT_TRUE(gate.enter());
  ASSERT_TRUE(gate.enter());
  bool closed = false;
  go([&]() -> Task<void> {
    co_await gate.close();
    closed = true;
  });
  hand.settle();
  EXPECT_FALSE(gate.enter());
  gate.leave();
  hand.settle();
  EXPECT_FALSE(closed);
  gate.leave();
  hand.settle();
  EXPECT_TRUE(closed);
}

TEST_F(SyncTest, WhenAllKeepsTheOrder) {
  std::vector<int> got;
  go([&]() -> Task<void> {
    auto one = [](int v, Nanos d) -> Task<int> {
      (void)co_await sleep_for(d);
      co_return v;
    };
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 5; ++i) tasks.push_back(one(i, (5 - i) * kSecond));
    got = co_await when_all(std::move(tasks));
    EXPECT_TRUE((co_await when_all(std::vector<Task<int>>{})).empty());
  });
  hand.run();
  EXPECT_EQ(got, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(SyncThreads, SignalsCrossThreads) {
  RuntimeOptions o;
  o.loops = 2;
  Runtime rt(o);
  rt.start();
  constexpr int kRounds = 3000;
  std::promise<int> sum;
  rt.loop(0).spawn(as_task([&]() -> Task<void> {
    int total = 0;
    for (int i = 0; i < kRounds; ++i) {
      Completion<int> c;
      auto cancel = std::make_shared<Cancel>();
      rt.loop(1).post([c, i, cancel] {
        if (i % 3 == 0) cancel->fire();
        c.set(i);
      });
      auto r = co_await c.wait(i % 5 == 0 ? system_clock().boot() + 20 * kMicrosecond : kForever, cancel);
      if (r) total += 1;
      else EXPECT_TRUE(r.error().code == Errc::kIntr || r.error().code == Errc::kDeadline);
    }
    sum.set_value(total);
  }));
  EXPECT_GT(sum.get_future().get(), 0);
}

TEST(SyncThreads, GateFromManyThreads) {
  RuntimeOptions o;
  o.loops = 1;
  Runtime rt(o);
  rt.start();
  Gate gate;
  std::atomic<bool> closed{false};
  std::atomic<int> inside{0}, entered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (gate.enter()) {
        ++inside, ++entered;
        EXPECT_FALSE(closed);
        --inside;
        gate.leave();
      }
    });
  while (entered < 100) std::this_thread::yield();
  std::promise<void> done;
  rt.loop(0).spawn(as_task([&]() -> Task<void> {
    co_await gate.close();
    closed = true;
    EXPECT_EQ(inside, 0);
    done.set_value();
  }));
  done.get_future().get();
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace nacre
