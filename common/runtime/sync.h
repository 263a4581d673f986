// SPDX-License-Identifier: Apache-2.0
// What coroutines wait on. Unless said otherwise an object belongs to one loop: create, wait and destroy it there.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/runtime/loop.h"
#include "common/runtime/task.h"

namespace nacre {

inline constexpr Nanos kForever = INT64_MAX;

/// A cancellation that any thread may fire once: waits that got it end with kIntr (or the error given). Shared between an
/// application's interrupt and everything the request waits for.
class Cancel {
 public:
  void fire(Error why = Errc::kIntr);
  bool fired() const;
  Error error() const;
  /// Calls `fn` when fired (at once if it has been), from the firing thread. Returns a token for remove(), after which a
  /// call that has begun may still be running.
  uint64_t add(std::function<void(Error)> fn);
  void remove(uint64_t token);

 private:
  mutable std::mutex mutex_;
  std::optional<Error> error_;
  uint64_t next_ = 1;
  std::vector<std::pair<uint64_t, std::function<void(Error)>>> callbacks_;  ///< one per wait in progress that got this cancel
};
using CancelPtr = std::shared_ptr<Cancel>;

/// One-shot signal: wait() on the loop that made it, set() from any thread, first value wins. Copies share state.
/// wait() returns the value set, kDeadline after `deadline` (boot time), the cancel's error, or kShutdown.
class Signal {
 public:
  Signal();
  void set(Result<void> value = {}) const;
  bool is_set() const;
  Task<Result<void>> wait(Nanos deadline = kForever, CancelPtr cancel = nullptr) const;
  /// Waits for set() and nothing else, not even the end of the runtime: for memory that somebody else still uses.
  Task<void> wait_through() const;
  struct State;

 private:
  std::shared_ptr<State> state_;
};

/// Signal with a value.
template <class T>
class Completion {
 public:
  void set(Result<T> value) const {
    {
      std::lock_guard lock(state_->mutex);
      if (state_->value) return;
      state_->value.emplace(std::move(value));
    }
    signal_.set();
  }
  bool is_set() const { return signal_.is_set(); }
  /// May be awaited once. Errors as Signal's.
  Task<Result<T>> wait(Nanos deadline = kForever, CancelPtr cancel = nullptr) const {
    auto state = state_;
    auto signal = signal_;
    auto woken = co_await signal.wait(deadline, std::move(cancel));
    std::lock_guard lock(state->mutex);
    if (state->value) co_return std::move(*state->value);
    if (!woken) co_return std::unexpected(std::move(woken).error());
    co_return Err(Errc::kIo, "a completion was signalled without a value");
  }

 private:
  struct State {
    std::mutex mutex;
    std::optional<Result<T>> value;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  Signal signal_;
};

/// Counts permits; waiters are served in order. One loop.
class Semaphore {
 public:
  explicit Semaphore(uint64_t permits) : free_(permits) {}
  Task<Result<void>> acquire(uint64_t n, Nanos deadline = kForever, CancelPtr cancel = nullptr);
  /// Takes n at once if nobody waits and they are free.
  bool try_acquire(uint64_t n) {
    if (!waiters_.empty() || free_ < n) return false;
    free_ -= n;
    return true;
  }
  void release(uint64_t n);
  uint64_t free() const { return free_; }

 private:
  struct Waiter { uint64_t n; Signal signal; bool granted = false; };
  uint64_t free_;
  std::deque<std::shared_ptr<Waiter>> waiters_;
};

/// Counts work in progress; close() refuses new entries and waits for the rest. Thread-safe but for wait.
class Gate {
 public:
  bool enter();
  void leave();
  Task<void> close();

 private:
  std::mutex mutex_;
  uint64_t inside_ = 0;
  bool closed_ = false;
  std::optional<Signal> drained_;
};

/// Runs all tasks at once on the calling loop; returns their results in order when the last has ended.
template <class T>
Task<std::vector<T>> when_all(std::vector<Task<T>> tasks) {
  struct Shared { std::vector<std::optional<T>> out; size_t left; Signal done; };
  auto shared = std::make_shared<Shared>();
  shared->out.resize(tasks.size());
  shared->left = tasks.size();
  if (tasks.empty()) co_return std::vector<T>{};
  auto run = [](std::shared_ptr<Shared> s, size_t i, Task<T> task) -> Task<void> {
    s->out[i].emplace(co_await std::move(task));
    if (--s->left == 0) s->done.set();
  };
  for (size_t i = 0; i < tasks.size(); ++i) Loop::current()->spawn(run(shared, i, std::move(tasks[i])));
  co_await shared->done.wait_through();  // after a shutdown the tasks end by themselves
  std::vector<T> result;
  result.reserve(shared->out.size());
  for (auto& r : shared->out) result.push_back(std::move(*r));
  co_return result;
}

}  // namespace nacre
