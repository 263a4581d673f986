// SPDX-License-Identifier: Apache-2.0
#include "client/core/async_mutex.h"

#include <algorithm>

namespace nacre::client {

Task<Result<void>> AsyncMutex::lock(Nanos deadline, CancelPtr cancel) {
  std::shared_ptr<Waiter> waiter;
  {
    std::lock_guard guard(mutex_);
    if (!held_) {
      held_ = true;
      co_return Result<void>{};
    }
    waiter = std::make_shared<Waiter>();
    waiters_.push_back(waiter);
  }
  auto woken = co_await waiter->signal.wait(deadline, std::move(cancel));
  std::lock_guard guard(mutex_);
  if (waiter->granted) co_return Result<void>{};  // ownership came together with the cancel or the deadline: it counts
  waiters_.erase(std::remove(waiters_.begin(), waiters_.end(), waiter), waiters_.end());
  co_return std::unexpected(woken ? Error(Errc::kShutdown) : std::move(woken).error());
}

void AsyncMutex::unlock() {
  std::shared_ptr<Waiter> next;
  {
    std::lock_guard guard(mutex_);
    if (waiters_.empty()) {
      held_ = false;
      return;
    }
    next = std::move(waiters_.front());
    waiters_.pop_front();
    next->granted = true;
  }
  next->signal.set();
}

}  // namespace nacre::client
