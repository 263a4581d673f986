// SPDX-License-Identifier: Apache-2.0
// The threads behind run_blocking. A job lies in the frame of the coroutine that waits for it, so the queue is bounded by
// the coroutines in progress. No worker waits for another job. Thread-safe.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/runtime/core.h"

namespace nacre {

struct WorkerJob : Parked {
  std::function<void()> fn;
  Loop* loop = nullptr;
};

class Workers {
 public:
  ~Workers() { stop(); }
  void start(size_t threads, const std::string& name);
  bool running() const { return !threads_.empty(); }
  void submit(WorkerJob& job);
  void stop();  ///< runs what is queued, then ends

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable changed_;
  ReadyList queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nacre
