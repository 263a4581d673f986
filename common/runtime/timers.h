// SPDX-License-Identifier: Apache-2.0
// A loop's timers: a heap of nodes that lie in the frames of the coroutines that wait, so that arming and disarming
// allocate nothing. Order: time, then the order of arming (simulation depends on it). One loop.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/clock.h"

namespace nacre {

struct TimerNode {
  static constexpr size_t kIdle = static_cast<size_t>(-1);
  Nanos when = 0;
  uint64_t order = 0;
  size_t place = kIdle;  ///< index in the heap
  bool armed() const { return place != kIdle; }
};

class TimerHeap {
 public:
  void insert(TimerNode& node, Nanos when);
  void remove(TimerNode& node);  ///< harmless when not armed
  Nanos next() const { return heap_.empty() ? -1 : heap_.front()->when; }
  /// Takes out the earliest node if it is due at `now`, else nullptr.
  TimerNode* pop_due(Nanos now);

 private:
  static bool before(const TimerNode* a, const TimerNode* b) { return a->when != b->when ? a->when < b->when : a->order < b->order; }
  void put(TimerNode* node, size_t place) { heap_[place] = node, node->place = place; }
  void up(size_t place);
  void down(size_t place);
  std::vector<TimerNode*> heap_;
  uint64_t order_ = 0;
};

}  // namespace nacre
