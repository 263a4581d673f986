// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/timers.h"

#include <cassert>

namespace nacre {

void TimerHeap::up(size_t place) {
  TimerNode* node = heap_[place];
  for (; place > 0; ) {
    const size_t parent = (place - 1) / 2;
    if (!before(node, heap_[parent])) break;
    put(heap_[parent], place);
    place = parent;
  }
  put(node, place);
}

void TimerHeap::down(size_t place) {
  TimerNode* node = heap_[place];
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], node)) break;
    put(heap_[child], place);
    place = child;
  }
  put(node, place);
}

void TimerHeap::insert(TimerNode& node, Nanos when) {
  assert(!node.armed());
  node.when = when;
  node.order = ++order_;
  heap_.push_back(&node);
  up(heap_.size() - 1);
}

void TimerHeap::remove(TimerNode& node) {
  if (!node.armed()) return;
  const size_t place = node.place;
  assert(heap_[place] == &node);
  node.place = TimerNode::kIdle;
  TimerNode* last = heap_.back();
  heap_.pop_back();
  if (last == &node) return;
  put(last, place);
  up(place);
  down(last->place);
}

TimerNode* TimerHeap::pop_due(Nanos now) {
  if (heap_.empty() || heap_.front()->when > now) return nullptr;
  TimerNode* node = heap_.front();
  remove(*node);
  return node;
}

}  // namespace nacre
