// SPDX-License-Identifier: Apache-2.0
// A runtime that a test drives by hand: no threads, time moves only when the test says so.
#pragma once
#include "common/runtime/loop.h"

namespace nacre::testing {

/// A coroutine from a lambda; `f` lives in its frame.
template <class F>
Task<void> as_task(F f) {
  co_await f();
}

struct Hand {
  explicit Hand(size_t loops = 1) : runtime(options(loops, clock)) {}
  static RuntimeOptions options(size_t loops, Clock& clock) {
    RuntimeOptions o;
    o.loops = loops, o.workers = 0, o.threads = false, o.clock = &clock;
    return o;
  }
  void settle() {
    while (runtime.run_ready() != 0) continue;
  }
  /// Runs until nothing is left to do but wait, moving the clock from timer to timer, at most `limit` far.
  void run(Nanos limit = 3600 * kSecond) {
    const Nanos end = clock.boot() + limit;
    for (;;) {
      settle();
      const Nanos next = runtime.next_timer();
      if (next < 0 || next > end) break;
      if (next > clock.boot()) clock.advance(next - clock.boot());
      runtime.fire_timers();
    }
  }
  ManualClock clock;
  Runtime runtime;
};

}  // namespace nacre::testing
