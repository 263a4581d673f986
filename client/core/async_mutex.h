// SPDX-License-Identifier: Apache-2.0
// A mutex that coroutines of several loops wait on without holding a thread. Waiters are served in order; ownership passes
// directly to the next one. Thread-safe.
#pragma once
#include <deque>
#include <memory>
#include <mutex>

#include "common/runtime/sync.h"

namespace nacre::client {

class AsyncMutex {
 public:
  /// Errors: the cancel's, kDeadline, kShutdown; then the mutex isn't held.
  Task<Result<void>> lock(Nanos deadline = kForever, CancelPtr cancel = nullptr);
  void unlock();

  /// Unlocks at the end of the scope.
  class Guard {
   public:
    explicit Guard(AsyncMutex& mutex) : mutex_(&mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() { release(); }
    void release() { if (auto m = std::exchange(mutex_, nullptr)) m->unlock(); }
   private:
    AsyncMutex* mutex_;
  };

 private:
  struct Waiter { Signal signal; bool granted = false; };
  std::mutex mutex_;
  bool held_ = false;
  std::deque<std::shared_ptr<Waiter>> waiters_;
};

}  // namespace nacre::client
