// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/runtime/core.h"
#include "common/runtime/loop.h"
#include "common/runtime/workers.h"

namespace nacre {
namespace {
std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) out.push_back(i);
  if (out.empty()) out.push_back(0);
  return out;
}

/// Threads started inside leave signals to the threads of the program.
struct SignalsBlocked {
  sigset_t before;
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    for (int sig : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) ::sigdelset(&all, sig);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};
}  // namespace

struct Runtime::Impl {
  std::vector<int> cpus;  ///< of each loop; -1 = not pinned
  std::vector<std::thread> threads;
  Workers workers;
  std::atomic<bool> stopping{false};
  bool started = false, stopped = false;
  std::mutex mutex;
  std::condition_variable drained;
  size_t drained_loops = 0;  ///< loops that said that their last coroutine ended; a hint to look again
};

Runtime::Runtime(RuntimeOptions options) : options_(std::move(options)), impl_(std::make_unique<Impl>()) {
  if (!options_.clock) options_.clock = &system_clock();
  const auto cpus = allowed_cpus();
  const size_t n = options_.loops ? options_.loops : cpus.size();
  for (size_t i = 0; i < n; ++i) {
    impl_->cpus.push_back(options_.pin && options_.threads ? cpus[i % cpus.size()] : -1);
    loops_.push_back(std::unique_ptr<Loop>(new Loop(*this, i, !options_.threads)));
  }
}

Runtime::~Runtime() {
  stop();
  loops_.clear();  // what they still hold may ask for the rest of the runtime
}

void Runtime::start() {
  if (std::exchange(impl_->started, true)) return;
  SignalsBlocked blocked;
  impl_->workers.start(options_.workers, options_.name);
  if (!options_.threads) return;
  for (size_t i = 0; i < loops_.size(); ++i) {
    impl_->threads.emplace_back([this, i] { loops_[i]->core().run(); });
    auto handle = impl_->threads.back().native_handle();
    ::pthread_setname_np(handle, (options_.name.substr(0, 12) + "/" + std::to_string(i)).substr(0, 15).c_str());
    if (impl_->cpus[i] < 0) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(impl_->cpus[i]), &set);
    ::pthread_setaffinity_np(handle, sizeof set, &set);  // refused in some containers: then the scheduler places the thread
  }
}

bool Runtime::stopping() const { return impl_->stopping.load(std::memory_order_acquire); }

void Runtime::loop_drained() {
  std::lock_guard lock(impl_->mutex);
  ++impl_->drained_loops;
  impl_->drained.notify_all();
}

void Runtime::stop(Nanos grace) {
  assert(!Loop::current() && "stop() waits for the loops, so it can't be called on one");
  if (std::exchange(impl_->stopped, true)) return;
  impl_->stopping.store(true, std::memory_order_release);
  std::atomic<size_t> told{0};
  for (auto& loop : loops_) {
    LoopCore& core = loop->core();
    loop->post([&core, &told] { ++told, core.begin_stop(); });
  }
  auto done = [&] {
    if (told.load() != loops_.size()) return false;
    return std::all_of(loops_.begin(), loops_.end(), [](auto& l) { return l->core().active() == 0; });
  };
  if (options_.threads && impl_->started) {
    std::unique_lock lock(impl_->mutex);
    impl_->drained.wait_for(lock, std::chrono::nanoseconds(std::min(grace, 3600 * kSecond)), done);
  } else {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(grace);
    while (!done() && (run_ready() != 0 || impl_->workers.running()) && std::chrono::steady_clock::now() < until) continue;
  }
  impl_->workers.stop();  // jobs use the frames of their coroutines, so they end before these are destroyed
  for (auto& loop : loops_) loop->core().end();
  for (auto& t : impl_->threads) t.join();
  impl_->threads.clear();
  for (auto& loop : loops_) loop->core().destroy_leftovers();
}

Loop& Runtime::loop_for_cpu(int cpu) {
  for (size_t i = 0; i < loops_.size(); ++i)
    if (impl_->cpus[i] == cpu && cpu >= 0) return *loops_[i];
  return loop(cpu < 0 ? 0 : static_cast<size_t>(cpu));
}

int Runtime::cpu_of(size_t loop) const { return impl_->cpus[loop % impl_->cpus.size()]; }

size_t Runtime::run_ready() {
  size_t n = 0;
  for (auto& loop : loops_) n += loop->core().poll();
  return n;
}

Nanos Runtime::next_timer() const {
  Nanos next = -1;
  for (auto& loop : loops_) {
    const Nanos t = loop->core().next_timer();
    if (t >= 0 && (next < 0 || t < next)) next = t;
  }
  return next;
}

void Runtime::fire_timers() {
  for (auto& loop : loops_) loop->core().fire_due();
}

namespace loop_detail {
Task<void> on_worker(std::function<void()> job) {
  Loop* loop = Loop::current();
  assert(loop && "run_blocking runs on a loop");
  Workers& workers = loop->runtime().impl_->workers;
  if (!workers.running()) {
    job();
    co_return;
  }
  WorkerJob w;
  w.fn = std::move(job);
  w.loop = loop;
  workers.submit(w);  // it comes back through this loop's queue, so never before the suspension is complete
  co_await w.suspend();
}
}  // namespace loop_detail

}  // namespace nacre
