// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/workers.h"

#include <pthread.h>

#include <cstdlib>

#include "common/log/log.h"

namespace nacre {

void Workers::start(size_t threads, const std::string& name) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { work(); });
    ::pthread_setname_np(threads_.back().native_handle(), (name.substr(0, 11) + "/w" + std::to_string(i)).substr(0, 15).c_str());
  }
}

void Workers::submit(WorkerJob& job) {
  {
    std::lock_guard lock(mutex_);
    queue_.push(job);
  }
  changed_.notify_one();
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    auto* job = static_cast<WorkerJob*>(queue_.pop());
    if (!job) return;
    lock.unlock();
    try {
      job->fn();
    } catch (const std::exception& x) {
      log::error("an exception left a blocking job: {}; the process ends, since nothing says what state it left behind", x.what());
      std::abort();
    }
    job->loop->core().push_remote(*job);
    lock.lock();
  }
}

void Workers::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& t : threads_) t.join();
  threads_.clear();
}

}  // namespace nacre
