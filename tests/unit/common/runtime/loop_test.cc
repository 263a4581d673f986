// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/loop.h"

#include <sched.h>

#include <thread>

#include <gtest/gtest.h>

#include "common/runtime/core.h"
#include "common/runtime/sync.h"
#include "tests/unit/common/runtime/hand.h"

namespace nacre {
namespace {

using testing::as_task;
using testing::Hand;

RuntimeOptions threaded(size_t loops) {
  RuntimeOptions o;
  o.loops = loops;
  return o;
}

TEST(Loop, SpawnStartsLaterAndInOrder) {
  Hand hand;
  std::vector<int> seen;
  auto body = [&](int i) -> Task<void> {
    seen.push_back(i);
    co_await yield_now();
    seen.push_back(10 + i);
  };
  hand.runtime.loop(0).spawn(body(1));
  hand.runtime.loop(0).spawn(body(2));
  EXPECT_TRUE(seen.empty());
  hand.settle();
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 11, 12}));
  EXPECT_EQ(hand.runtime.run_ready(), 0u);
}

TEST(Loop, PostRunsOnTheLoop) {
  Hand hand(2);
  std::vector<size_t> where;
  hand.runtime.loop(1).post([&] { where.push_back(Loop::current()->index()); });
  hand.runtime.loop(0).post([&] {
    where.push_back(Loop::current()->index());
    hand.runtime.loop(1).post([&] { where.push_back(Loop::current()->index()); });
  });
  hand.settle();
  std::sort(where.begin(), where.end());
  EXPECT_EQ(where, (std::vector<size_t>{0, 1, 1}));
  EXPECT_EQ(Loop::current(), nullptr);
}

TEST(Loop, SleepsFollowTheClockInOrder) {
  Hand hand;
  std::vector<std::pair<int, Nanos>> seen;
  const Nanos start = hand.clock.boot();
  auto body = [&](int i, Nanos d) -> Task<void> {
    EXPECT_TRUE(co_await sleep_for(d));
    seen.emplace_back(i, hand.clock.boot() - start);
  };
  for (auto [i, d] : {std::pair{1, 30}, {2, 10}, {3, 30}, {4, 0}}) hand.runtime.loop(0).spawn(body(i, d * kMillisecond));
  hand.settle();
  EXPECT_EQ(hand.runtime.next_timer(), start + 10 * kMillisecond);
  hand.run();
  EXPECT_EQ(seen, (std::vector<std::pair<int, Nanos>>{{4, 0}, {2, 10 * kMillisecond}, {1, 30 * kMillisecond}, {3, 30 * kMillisecond}}));
  EXPECT_EQ(hand.runtime.next_timer(), -1);
}

TEST(Loop, StopWakesSleepers) {
  Hand hand;
  std::optional<Errc> got;
  hand.runtime.loop(0).spawn(as_task([&]() -> Task<void> {
    auto r = co_await sleep_for(3600 * kSecond);
    got = r ? Errc::kOk : r.error().code;
    auto again = co_await sleep_for(1);
    EXPECT_FALSE(again);
  }));
  hand.settle();
  hand.runtime.stop();
  EXPECT_EQ(got, Errc::kShutdown);
}

TEST(Loop, StopDestroysWhatDoesNotEnd) {
  auto alive = std::make_shared<int>(1);
  Signal never;
  {
    Hand hand;
    auto body = [](std::shared_ptr<int> held, Signal s) -> Task<void> {
      co_await s.wait_through();
      ADD_FAILURE() << *held;
    };
    hand.runtime.loop(0).spawn(body(alive, never));
    hand.settle();
    EXPECT_EQ(alive.use_count(), 2);
    hand.runtime.loop(0).spawn(body(alive, never));  // never started
  }
  EXPECT_EQ(alive.use_count(), 1);
  never.set();
}

TEST(LoopDeathTest, AnExceptionThatLeavesACoroutineEndsTheProcess) {
  auto run = [] {
    Hand hand;
    hand.runtime.loop(0).spawn(as_task([]() -> Task<void> {
      co_await yield_now();
      throw std::runtime_error("boom 42");
    }));
    hand.settle();
  };
  EXPECT_DEATH(run(), "boom 42");
}

TEST(Runtime, ThreadsArePinnedAndFoundByCpu) {
  Runtime rt;
  rt.start();
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  ASSERT_EQ(rt.size(), static_cast<size_t>(CPU_COUNT(&mine)));
  for (size_t i = 0; i < rt.size(); ++i) {
    std::promise<int> cpu;
    rt.loop(i).post([&] { cpu.set_value(::sched_getcpu()); });
    EXPECT_EQ(cpu.get_future().get(), rt.cpu_of(i));
    EXPECT_EQ(&rt.loop_for_cpu(rt.cpu_of(i)), &rt.loop(i));
  }
  rt.loop_for_cpu(-1);
  rt.loop_for_cpu(9999);
}

TEST(Runtime, BlockingWorkRunsElsewhereAndComesBack) {
  Runtime rt(threaded(2));
  rt.start();
  std::promise<void> done;
  rt.loop(1).spawn(as_task([&]() -> Task<void> {
    const auto here = std::this_thread::get_id();
    for (int i = 0; i < 200; ++i) {
      auto f = [i, here] { return std::this_thread::get_id() != here ? i : -1; };
      EXPECT_EQ(co_await run_blocking(f), i);
      EXPECT_EQ(std::this_thread::get_id(), here);
    }
    co_await run_blocking([] {});
    done.set_value();
  }));
  done.get_future().get();
}

TEST(Runtime, StopLetsCoroutinesEnd) {
  std::atomic<int> ended{0};
  Runtime rt(threaded(2));
  rt.start();
  for (int i = 0; i < 100; ++i)
    rt.loop(static_cast<size_t>(i)).spawn(as_task([&]() -> Task<void> {
      auto r = co_await sleep_for(3600 * kSecond);
      EXPECT_FALSE(r);
      co_await run_blocking([] {});
      ++ended;
    }));
  rt.stop();
  EXPECT_EQ(ended, 100);
  EXPECT_TRUE(rt.stopping());
  rt.loop(0).post([] { ADD_FAILURE() << "ran after stop"; });
  rt.loop(0).spawn(as_task([]() -> Task<void> {
    ADD_FAILURE() << "started after stop";
    co_return;
  }));
}

TEST(Runtime, RealTimersFire) {
  Runtime rt(threaded(1));
  rt.start();
  std::promise<Nanos> took;
  rt.loop(0).spawn(as_task([&]() -> Task<void> {
    const Nanos start = system_clock().boot();
    std::vector<Task<Result<void>>> sleeps;
    for (int ms : {15, 5, 10}) sleeps.push_back(sleep_for(ms * kMillisecond));
    auto all = co_await when_all(std::move(sleeps));
    for (auto& r : all) EXPECT_TRUE(r);
    took.set_value(system_clock().boot() - start);
  }));
  const Nanos t = took.get_future().get();
  EXPECT_GE(t, 15 * kMillisecond);
  EXPECT_LT(t, 5 * kSecond);
}

TEST(Runtime, WorkThatFeedsItselfDoesNotStarveTheRest) {
  Runtime rt(threaded(1));
  rt.start();
  for (auto push : {&LoopCore::push, &LoopCore::push_later, &LoopCore::push_turn_end, &LoopCore::push_turn_last}) {
    std::promise<void> done;
    auto over = std::make_shared<bool>(false);
    rt.loop(0).spawn(as_task([over, push]() -> Task<void> {
      while (!*over) {
        Parked p;
        (Loop::current()->core().*push)(p);
        co_await p.suspend();
      }
    }));
    rt.loop(0).spawn(as_task([over, &done]() -> Task<void> {
      EXPECT_TRUE(co_await sleep_for(5 * kMillisecond));
      *over = true;
      done.set_value();
    }));
    done.get_future().get();
  }
}

TEST(Runtime, PostsFromManyThreadsAllArriveInTheirOrder) {
  Runtime rt(threaded(1));
  rt.start();
  constexpr int kThreads = 4, kEach = 5000;
  std::array<int, kThreads> last{};
  int total = 0;  // loop thread only
  std::promise<void> done;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kEach; ++i)
        rt.loop(0).post([&, t, i] {
          EXPECT_EQ(last[static_cast<size_t>(t)] + 1, i);
          last[static_cast<size_t>(t)] = i;
          if (++total == kThreads * kEach) done.set_value();
        });
    });
  for (auto& t : threads) t.join();
  done.get_future().get();
}

}  // namespace
}  // namespace nacre
