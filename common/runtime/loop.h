// SPDX-License-Identifier: Apache-2.0
// Event loops. A process has one Runtime with one Loop per CPU, each a thread pinned to that CPU running one io_context.
// A request stays on the loop it arrived on. Coroutines start only through Loop::spawn, which counts them, so that
// stop() can wait for them. Time comes from the Runtime's Clock: with a ManualClock and no threads the owner drives
// the loops by hand (run_ready, fire_timers), which is how simulation runs thousands of seeds.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/runtime/task.h"

namespace nacre {

class Runtime;
class LoopCore;  // core.h
namespace loop_detail {
Task<void> on_worker(std::function<void()> job);
}

class Loop {
 public:
  /// The loop whose thread this is; nullptr elsewhere.
  static Loop* current();
  size_t index() const { return index_; }
  Runtime& runtime() { return runtime_; }
  Clock& clock();
  boost::asio::io_context& io() { return io_; }

  /// Runs `fn` on this loop's thread, later. Any thread. After stop() it is dropped.
  void post(std::function<void()> fn);
  /// Starts a coroutine on this loop. Any thread. An exception that leaves it ends the process (rule 4).
  void spawn(Task<void> task);

  LoopCore& core() { return *core_; }
  ~Loop();

 private:
  friend class Runtime;
  Loop(Runtime& runtime, size_t index, bool hand_driven);
  Runtime& runtime_;
  size_t index_;
  boost::asio::io_context io_;
  std::unique_ptr<LoopCore> core_;
};

struct RuntimeOptions {
  size_t loops = 0;            ///< 0 = one per CPU this process may run on
  bool pin = true;             ///< pin loop i to the i-th allowed CPU
  size_t workers = 4;          ///< threads behind run_blocking, shared by all loops; 0 = run inline (simulation)
  Clock* clock = nullptr;      ///< nullptr = system_clock()
  bool threads = true;         ///< false: no loop threads; the owner drives by hand
  std::string name = "nacre";  ///< prefix of thread names
};

class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();                                        ///< stop()s
  void start();                                      ///< starts the threads
  /// Stops: timers fire with kShutdown, spawned coroutines get `grace` to end, then the loops end. Not from a loop.
  void stop(Nanos grace = 5 * kSecond);
  size_t size() const { return loops_.size(); }
  Loop& loop(size_t i) { return *loops_[i % loops_.size()]; }
  Loop& loop_for_cpu(int cpu);                       ///< the loop pinned to that CPU, else spread by number
  int cpu_of(size_t loop) const;                     ///< -1 = not pinned
  Clock& clock() { return *options_.clock; }
  bool stopping() const;

  // Driving by hand (options.threads == false):
  size_t run_ready();                                ///< runs what is ready on all loops; returns handlers run
  Nanos next_timer() const;                          ///< boot time of the earliest timer, -1 = none
  void fire_timers();                                ///< fires those at or before clock().boot()

 private:
  friend class LoopCore;
  friend Task<void> loop_detail::on_worker(std::function<void()> job);
  void loop_drained();                               ///< a stopping loop's last coroutine has ended
  RuntimeOptions options_;
  std::vector<std::unique_ptr<Loop>> loops_;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Suspends the calling coroutine; it resumes on its loop. Error: kShutdown when the runtime stops.
Task<Result<void>> sleep_for(Nanos duration);
/// Lets other ready work of this loop run first.
Task<void> yield_now();

/// Runs `fn` on a worker thread and resumes on the calling loop with its result. The one door for blocking work.
template <class F>
Task<std::invoke_result_t<F>> run_blocking(F fn) {
  using R = std::invoke_result_t<F>;
  if constexpr (std::is_void_v<R>) {
    std::function<void()> job = [&fn] { fn(); };
    co_await loop_detail::on_worker(std::move(job));
  } else {
    std::optional<R> out;
    std::function<void()> job = [&fn, &out] { out.emplace(fn()); };
    co_await loop_detail::on_worker(std::move(job));
    co_return std::move(*out);
  }
}

}  // namespace nacre
