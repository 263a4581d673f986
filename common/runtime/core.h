// SPDX-License-Identifier: Apache-2.0
// The inside of a loop, for runtime/, rpc/ and those that hang descriptors of their own into a loop. Work that is ready
// on a loop waits in an intrusive queue that is drained before the loop looks at its descriptors again, so that waking a
// coroutine on its own loop costs no system call and no allocation. Loop thread only, except where said.
#pragma once
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/runtime/loop.h"
#include "common/runtime/timers.h"

namespace nacre {

/// Something a loop runs once. `run(node, true)` runs it, `run(node, false)` drops it because the loop has ended.
struct ReadyNode {
  ReadyNode* next = nullptr;
  void (*run)(ReadyNode*, bool alive) = nullptr;
};

/// First in, first out.
class ReadyList {
 public:
  bool empty() const { return head_ == nullptr; }
  void push(ReadyNode& node) {
    node.next = nullptr;
    *tail_ = &node;
    tail_ = &node.next;
  }
  ReadyNode* pop() {
    ReadyNode* node = head_;
    if (node && !(head_ = node->next)) tail_ = &head_;
    return node;
  }
  void append(ReadyList& other) {
    while (ReadyNode* node = other.pop()) push(*node);
  }

 private:
  ReadyNode* head_ = nullptr;
  ReadyNode** tail_ = &head_;
};

/// A link of a ring; a lone link points at itself.
struct Link {
  Link* before = this;
  Link* after = this;
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  bool linked() const { return after != this; }
  void unlink() {
    before->after = after;
    after->before = before;
    before = after = this;
  }
  void insert_before(Link& at) {
    assert(!linked());
    before = at.before;
    after = &at;
    before->after = this;
    at.before = this;
  }
};

/// A suspended coroutine. Lies in its frame; resumed at most once per suspension, through the ready queue of its loop.
class Parked : public ReadyNode {
 public:
  Parked() { run = [](ReadyNode* node, bool alive) { static_cast<Parked*>(node)->resume(alive); }; }
  Parked(const Parked&) = delete;
  Parked& operator=(const Parked&) = delete;
  ~Parked() { assert(!invoke_); }

  /// `co_await parked.suspend()` suspends until resume(), which must come from the loop's queue (never from this call).
  auto suspend() {
    return boost::asio::async_initiate<const boost::asio::deferred_t, void()>(
        [this](auto handler) {
          using H = std::decay_t<decltype(handler)>;
          static_assert(sizeof(H) <= sizeof(space_) && alignof(H) <= alignof(std::max_align_t));
          new (space_.data()) H(std::move(handler));
          invoke_ = [](void* space, bool alive) {
            H local(std::move(*static_cast<H*>(space)));
            static_cast<H*>(space)->~H();
            if (alive) std::move(local)();
          };
        },
        boost::asio::deferred);
  }
  bool suspended() const { return invoke_ != nullptr; }

  /// Continues the coroutine in this call; with alive = false its frames are destroyed instead.
  void resume(bool alive = true) {
    auto invoke = std::exchange(invoke_, nullptr);
    assert(invoke);
    invoke(space_.data(), alive);
  }

 private:
  alignas(std::max_align_t) std::array<std::byte, 32> space_;
  void (*invoke_)(void*, bool) = nullptr;
};

/// A Parked that a deadline and the end of the runtime can wake too. The first to finish() it wins.
class Waiter : public Parked, public Link, public TimerNode {
 public:
  Error error;           ///< why it was woken, if not by what it waited for
  bool woken = false;    ///< finish() or fail() has been called
  bool failed = false;
  void (*on_finish)(Waiter&) = nullptr;  ///< takes it off whatever list it waits on
  void finish(class LoopCore& core);
  void fail(class LoopCore& core, Error why);
};

class LoopCore {
 public:
  LoopCore(Loop& loop, bool hand_driven);
  ~LoopCore();

  // --- what is ready ---
  void push(ReadyNode& node) {
    ready_.push(node);
    if (!in_turn_ && !drain_posted_) post_drain();
  }
  /// Runs after everything that is ready now and after the descriptors were looked at once.
  void push_later(ReadyNode& node) {
    later_.push(node);
    if (!in_turn_ && !drain_posted_) post_drain();
  }
  /// Runs when nothing else is ready in this turn, before the loop looks at its descriptors: where writes are gathered.
  void push_turn_end(ReadyNode& node) {
    turn_end_.push(node);
    if (!in_turn_ && !drain_posted_) post_drain();
  }
  /// Runs after the turn_end ones: where the next read is tried, since answers should leave first.
  void push_turn_last(ReadyNode& node) {
    turn_last_.push(node);
    if (!in_turn_ && !drain_posted_) post_drain();
  }
  /// From any thread; one wake-up for all that arrives before the loop gets to it.
  void push_remote(ReadyNode& node);

  // --- waiting ---
  /// Registers a waiter: for its deadline (kForever: none) and for the end of the runtime.
  void wait(Waiter& w, Nanos deadline);
  /// Registers a waiter that only what it waits for may wake.
  void wait_through(Waiter& w) { w.insert_before(through_); }
  void forget(Waiter& w) {
    if (w.linked()) w.unlink();
    timers_.remove(w);
  }
  bool stopping() const { return stopping_; }
  Nanos next_timer() const { return timers_.next(); }
  void fire_due();
  /// Things that end when the runtime stops (streams, acceptors): called once on the loop.
  struct StopHook : Link { std::function<void()> fn; };
  void add_stop_hook(StopHook& hook) { hook.insert_before(hooks_); }

  // --- driving; Runtime only ---
  void begin_stop();                   ///< wakes all waiters with kShutdown, calls the hooks
  void start(Task<void> task);         ///< Loop::spawn on the loop's thread
  uint64_t active() const { return active_.load(std::memory_order_acquire); }
  size_t poll();                       ///< hand-driven: runs what is ready
  void run();                          ///< the thread's main function
  void end() { closed_.store(true, std::memory_order_release), io_.stop(); }
  void destroy_leftovers();            ///< after the thread has ended
  size_t drain();
  Loop& loop() { return loop_; }

 private:
  friend class LoopTurn;
  void post_drain();
  void take_remote();
  void call_hooks();
  void arm();
  Loop& loop_;
  boost::asio::io_context& io_;
  boost::asio::executor_work_guard<Executor> work_;
  bool hand_driven_;
  bool in_turn_ = false;
  bool drain_posted_ = false;
  bool stopping_ = false;
  std::atomic<uint64_t> active_{0};  ///< spawned coroutines that have not ended; changed by the loop thread alone
  ReadyList ready_, later_, turn_end_, turn_last_;
  std::atomic<ReadyNode*> remote_{nullptr};
  std::atomic<bool> closed_{false};
  TimerHeap timers_;
  boost::asio::steady_timer timer_;
  Nanos armed_for_ = INT64_MAX;
  Link waiting_, through_, hooks_;
};

/// Put one of these at the top of a completion handler that wakes coroutines: what it made ready runs when the scope
/// ends, without another look at the descriptors in between.
class LoopTurn {
 public:
  explicit LoopTurn(Loop& loop) : core_(loop.core()), outer_(!core_.in_turn_) { core_.in_turn_ = true; }
  ~LoopTurn() {
    if (outer_) {
      core_.in_turn_ = false;
      core_.drain();
    }
  }
  LoopTurn(const LoopTurn&) = delete;
  LoopTurn& operator=(const LoopTurn&) = delete;

 private:
  LoopCore& core_;
  bool outer_;
};

inline void Waiter::finish(LoopCore& core) {
  if (woken) return;
  woken = true;
  core.forget(*this);
  if (on_finish) on_finish(*this);
  core.push(*this);
}
inline void Waiter::fail(LoopCore& core, Error why) {
  if (woken) return;
  failed = true;
  error = std::move(why);
  finish(core);
}

}  // namespace nacre
