// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/loop.h"

#include <algorithm>
#include <cstdlib>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include "common/log/log.h"
#include "common/runtime/core.h"
#include "common/runtime/sync.h"

namespace nacre {
namespace {
constexpr size_t kTurnBudget = 1024;             ///< things run before the loop looks at its descriptors again
constexpr size_t kPollBudget = 10'000;           ///< handlers per run_ready(): ends a hand-driven loop that feeds itself
constexpr Nanos kMaxArm = 10 * kSecond;          ///< the kernel timer doesn't count suspended time, CLOCK_BOOTTIME does

thread_local Loop* current_loop = nullptr;

struct CurrentScope {
  Loop* before = current_loop;
  explicit CurrentScope(Loop& loop) { current_loop = &loop; }
  ~CurrentScope() { current_loop = before; }
};

struct FnNode : ReadyNode {
  explicit FnNode(std::function<void()> f) : fn(std::move(f)) {
    run = [](ReadyNode* node, bool alive) {
      std::unique_ptr<FnNode> self(static_cast<FnNode*>(node));
      if (alive) self->fn();
    };
  }
  std::function<void()> fn;
};

struct SpawnNode : ReadyNode {
  SpawnNode(Loop& l, Task<void> t) : loop(l), task(std::move(t)) {
    run = [](ReadyNode* node, bool alive) {
      std::unique_ptr<SpawnNode> self(static_cast<SpawnNode*>(node));
      if (alive) self->loop.core().start(std::move(self->task));
    };
  }
  Loop& loop;
  Task<void> task;
};

[[noreturn]] void die(std::exception_ptr e, const char* where) {
  try {
    std::rethrow_exception(e);
  } catch (const std::exception& x) {
    log::error("an exception left {}: {}; the process ends, since nothing says what state it left behind", where, x.what());
  } catch (...) {
    log::error("an unknown exception left {}; the process ends", where);
  }
  std::abort();
}
}  // namespace

// ---------------------------------------------------------------- Loop

Loop::Loop(Runtime& runtime, size_t index, bool hand_driven) : runtime_(runtime), index_(index), io_(1), core_(std::make_unique<LoopCore>(*this, hand_driven)) {}
Loop::~Loop() = default;
Loop* Loop::current() { return current_loop; }
Clock& Loop::clock() { return runtime_.clock(); }

void Loop::post(std::function<void()> fn) {
  auto* node = new FnNode(std::move(fn));
  if (current_loop == this) core_->push(*node);
  else core_->push_remote(*node);
}

void Loop::spawn(Task<void> task) {
  if (current_loop == this) core_->start(std::move(task));
  else core_->push_remote(*new SpawnNode(*this, std::move(task)));
}

// ---------------------------------------------------------------- LoopCore

LoopCore::LoopCore(Loop& loop, bool hand_driven) : loop_(loop), io_(loop.io()), work_(boost::asio::make_work_guard(loop.io())), hand_driven_(hand_driven), timer_(loop.io()) {}

LoopCore::~LoopCore() { destroy_leftovers(); }

namespace {
/// Bottom of every coroutine. It always suspends once, so that a coroutine starts from the queue and Asio needs no
/// further trip through its own queue to report the end.
Task<void> root(LoopCore& core, Task<void> task) {
  Parked start;
  core.push(start);
  co_await start.suspend();
  co_await std::move(task);
}
}  // namespace

void LoopCore::start(Task<void> task) {
  active_.store(active_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  boost::asio::co_spawn(io_.get_executor(), root(*this, std::move(task)), [this](std::exception_ptr e) {
    if (e) die(e, "a coroutine");
    active_.store(active_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    if (stopping_ && active() == 0) loop_.runtime().loop_drained();
  });
}

void LoopCore::post_drain() {
  drain_posted_ = true;
  boost::asio::post(io_, [this] {
    drain_posted_ = false;
    if (!in_turn_) drain();
  });
}

void LoopCore::push_remote(ReadyNode& node) {
  if (closed_.load(std::memory_order_acquire)) {
    node.run(&node, false);
    return;
  }
  ReadyNode* head = remote_.load(std::memory_order_relaxed);
  do node.next = head;
  while (!remote_.compare_exchange_weak(head, &node, std::memory_order_release, std::memory_order_relaxed));
  // Only the first of a batch wakes the loop. It takes the whole batch when it gets there.
  if (!head)
    boost::asio::post(io_, [this] {
      if (!in_turn_) drain();
    });
}

void LoopCore::take_remote() {
  if (!remote_.load(std::memory_order_relaxed)) return;
  ReadyNode* node = remote_.exchange(nullptr, std::memory_order_acquire);
  ReadyNode* in_order = nullptr;
  while (node) {
    ReadyNode* next = node->next;
    node->next = in_order;
    in_order = node;
    node = next;
  }
  while (in_order) {
    ReadyNode* next = in_order->next;
    ready_.push(*in_order);
    in_order = next;
  }
}

size_t LoopCore::drain() {
  in_turn_ = true;
  size_t ran = 0;
  auto run_batch = [&ran](ReadyList& list) {
    ReadyList batch;
    batch.append(list);
    while (ReadyNode* node = batch.pop()) {
      ++ran;
      node->run(node, true);
    }
  };
  take_remote();
  for (bool last_done = false;;) {
    while (ran < kTurnBudget) {
      ReadyNode* node = ready_.pop();
      if (!node) break;
      ++ran;
      node->run(node, true);
    }
    const bool full = ran >= kTurnBudget;
    if (!turn_end_.empty()) run_batch(turn_end_);
    else if (!full && !turn_last_.empty() && !std::exchange(last_done, true)) run_batch(turn_last_);
    else break;  // once per turn for turn_last: the other descriptors get their turn too
    if (full) break;
  }
  in_turn_ = false;
  ready_.append(later_);
  if ((!ready_.empty() || !turn_end_.empty() || !turn_last_.empty()) && !drain_posted_) post_drain();
  return ran;
}

void LoopCore::wait(Waiter& w, Nanos deadline) {
  w.insert_before(waiting_);
  if (deadline == kForever) return;
  timers_.insert(w, deadline);
  arm();
}

void LoopCore::arm() {
  const Nanos next = timers_.next();
  if (hand_driven_ || next < 0 || next >= armed_for_) return;
  const Nanos wait = std::clamp<Nanos>(next - loop_.clock().boot(), 0, kMaxArm);
  armed_for_ = next;
  timer_.expires_after(std::chrono::nanoseconds(wait));
  timer_.async_wait([this](boost::system::error_code ec) {
    if (ec) return;  // armed again for an earlier time
    LoopTurn turn(loop_);
    armed_for_ = INT64_MAX;
    fire_due();
  });
}

void LoopCore::fire_due() {
  const Nanos now = loop_.clock().boot();
  while (TimerNode* node = timers_.pop_due(now)) static_cast<Waiter*>(node)->fail(*this, Errc::kDeadline);
  armed_for_ = INT64_MAX;  // also if it is armed: for a clock that has jumped since
  arm();
}

void LoopCore::begin_stop() {
  stopping_ = true;
  while (waiting_.linked()) static_cast<Waiter*>(waiting_.after)->fail(*this, Error(Errc::kShutdown));
  call_hooks();
  if (active() == 0) loop_.runtime().loop_drained();
}

void LoopCore::call_hooks() {
  while (hooks_.linked()) {
    auto* hook = static_cast<StopHook*>(hooks_.after);
    hook->unlink();
    hook->fn();
  }
}

size_t LoopCore::poll() {
  CurrentScope scope(loop_);
  size_t n = 0;
  while (n < kPollBudget && io_.poll_one() != 0) ++n;
  return n;
}

void LoopCore::run() {
  CurrentScope scope(loop_);
  try {
    io_.run();
  } catch (...) {
    die(std::current_exception(), "an event loop");
  }
}

void LoopCore::destroy_leftovers() {
  closed_.store(true, std::memory_order_release);
  CurrentScope scope(loop_);
  in_turn_ = true;  // nothing is resumed any more: frames are destroyed, and what their destructors make ready is dropped too
  work_.reset();
  for (bool more = true; more;) {
    more = false;
    call_hooks();
    io_.restart();
    if (io_.poll() != 0) more = true;  // completions of closed descriptors point into frames: they come before these are destroyed
    take_remote();
    for (ReadyList* list : {&turn_end_, &turn_last_, &later_}) ready_.append(*list);
    while (ReadyNode* node = ready_.pop()) node->run(node, false), more = true;
    for (Link* list : {&waiting_, &through_})
      while (list->linked()) {
        auto* w = static_cast<Waiter*>(list->after);
        forget(*w);
        if (w->on_finish) w->on_finish(*w);
        w->woken = true;
        w->resume(false);
        more = true;
      }
  }
}

// ---------------------------------------------------------------- sleeping

Task<Result<void>> sleep_for(Nanos duration) {
  Loop* loop = Loop::current();
  assert(loop && "sleep_for runs on a loop");
  LoopCore& core = loop->core();
  if (core.stopping()) co_return Err(Errc::kShutdown);
  if (duration <= 0) {
    co_await yield_now();
    co_return Result<void>{};
  }
  const Nanos now = loop->clock().boot();
  Waiter w;
  core.wait(w, duration > kForever - now ? kForever : now + duration);
  co_await w.suspend();
  if (w.error.code == Errc::kDeadline) co_return Result<void>{};
  co_return std::unexpected(std::move(w.error));
}

Task<void> yield_now() {
  Loop* loop = Loop::current();
  assert(loop && "yield_now runs on a loop");
  Parked p;
  loop->core().push_later(p);
  co_await p.suspend();
}

}  // namespace nacre
