// SPDX-License-Identifier: Apache-2.0
// Coroutines of tests on loops of their own.
#pragma once
#include <condition_variable>
#include <mutex>

#include "common/runtime/loop.h"
#include "common/runtime/sync.h"

namespace nacre::mds::test {

inline RuntimeOptions loops(size_t n, size_t workers = 2) {
  RuntimeOptions o;
  o.loops = n;
  o.pin = false;
  o.workers = workers;
  return o;
}

/// Starts coroutines on loops and waits for all of them in wait() or at the end.
class Crowd {
 public:
  explicit Crowd(Runtime& runtime) : runtime_(runtime) {}
  ~Crowd() { wait(); }
  void start(size_t loop, std::function<Task<void>()> fn) {
    {
      std::lock_guard lock(mutex_);
      ++running_;
    }
    auto wrap = [](Crowd* self, std::function<Task<void>()> f) -> Task<void> {
      co_await f();
      std::lock_guard lock(self->mutex_);
      if (--self->running_ == 0) self->done_.notify_all();
    };
    runtime_.loop(loop).spawn(wrap(this, std::move(fn)));
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t running_ = 0;
};

/// Runs one coroutine on a loop and waits for it.
inline void on_loop(Runtime& runtime, size_t loop, std::function<Task<void>()> fn) { Crowd(runtime).start(loop, std::move(fn)); }

}  // namespace nacre::mds::test
