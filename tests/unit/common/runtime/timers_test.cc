// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/timers.h"

#include <deque>

#include <gtest/gtest.h>

#include "common/base/rng.h"

namespace nacre {
namespace {

TEST(Timers, RandomAgainstASortedModel) {
  SeededRng rng(3);
  TimerHeap heap;
  std::deque<TimerNode> nodes(200);
  std::map<std::pair<Nanos, uint64_t>, TimerNode*> model;
  for (int step = 0; step < 20'000; ++step) {
    TimerNode& n = nodes[rng.below(nodes.size())];
    if (n.armed()) {
      model.erase({n.when, n.order});
      heap.remove(n);
      EXPECT_FALSE(n.armed());
    } else {
      heap.insert(n, static_cast<Nanos>(rng.below(500)));
      model[{n.when, n.order}] = &n;
    }
    ASSERT_EQ(heap.next(), model.empty() ? -1 : model.begin()->first.first);
    if (step % 97 == 0) {
      const Nanos now = static_cast<Nanos>(rng.below(200));
      while (TimerNode* due = heap.pop_due(now)) {
        ASSERT_EQ(due, model.begin()->second);
        model.erase(model.begin());
      }
      ASSERT_TRUE(model.empty() || model.begin()->first.first > now);
    }
  }
}

}  // namespace
}  // namespace nacre
