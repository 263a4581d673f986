// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/sync.h"

#include <algorithm>

#include "common/runtime/cancel_link.h"
#include "common/runtime/core.h"

namespace nacre {

// ---------------------------------------------------------------- Cancel

void Cancel::fire(Error why) {
  std::vector<std::pair<uint64_t, std::function<void(Error)>>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = why;
    callbacks.swap(callbacks_);
  }
  for (auto& [token, fn] : callbacks) fn(why);
}

bool Cancel::fired() const {
  std::lock_guard lock(mutex_);
  return error_.has_value();
}

Error Cancel::error() const {
  std::lock_guard lock(mutex_);
  return error_.value_or(Error(Errc::kOk));
}

uint64_t Cancel::add(std::function<void(Error)> fn) {
  std::unique_lock lock(mutex_);
  if (error_) {
    Error why = *error_;
    lock.unlock();
    fn(std::move(why));
    return 0;
  }
  callbacks_.emplace_back(next_, std::move(fn));
  return next_++;
}

void Cancel::remove(uint64_t token) {
  std::lock_guard lock(mutex_);
  std::erase_if(callbacks_, [token](const auto& c) { return c.first == token; });
}

// ---------------------------------------------------------------- CancelLink (cancel_link.h)

CancelLink::CancelLink(CancelPtr cancel, Loop& loop, Waiter& waiter) : cancel_(std::move(cancel)) {
  if (!cancel_) return;
  shared_ = std::make_shared<Shared>(Shared{&loop, &waiter});
  token_ = cancel_->add([shared = shared_](Error why) {
    auto hit = [](const Shared& s, Error e) {
      if (s.waiter) s.waiter->fail(s.loop->core(), std::move(e));
    };
    if (Loop::current() == shared->loop) hit(*shared, std::move(why));
    else shared->loop->post([shared, why = std::move(why), hit] { hit(*shared, why); });
  });
}

CancelLink::~CancelLink() {
  if (!cancel_) return;
  shared_->waiter = nullptr;
  if (token_) cancel_->remove(token_);
}

// ---------------------------------------------------------------- Signal

struct Signal::State : ReadyNode {
  std::mutex mutex;                    ///< guards loop, value and waiting
  Loop* loop = Loop::current();        ///< null until somebody waits, if made elsewhere
  std::optional<Result<void>> value;
  uint32_t waiting = 0;
  Link waiters;                        ///< loop thread only
  std::shared_ptr<State> self;         ///< keeps the state while it travels to its loop
};

namespace {
struct SignalWaiter : Waiter {
  struct InSignal : Link { SignalWaiter* owner = nullptr; } in_signal;
  SignalWaiter() {
    in_signal.owner = this;
    on_finish = [](Waiter& w) { static_cast<SignalWaiter&>(w).in_signal.unlink(); };
  }
};

void wake_all(Signal::State& state) {
  while (state.waiters.linked()) {
    SignalWaiter* w = static_cast<SignalWaiter::InSignal*>(state.waiters.after)->owner;
    w->finish(state.loop->core());
  }
}

/// Registers with the state, or says that the value is there already.
bool join(Signal::State& state, Loop* loop) {
  std::lock_guard lock(state.mutex);
  if (state.value) return false;
  if (!state.loop) state.loop = loop;
  assert(state.loop == loop && "a Signal is awaited on the loop that made it");
  ++state.waiting;
  return true;
}

struct Leave {
  Signal::State& state;
  ~Leave() {
    std::lock_guard lock(state.mutex);
    --state.waiting;
  }
};

Task<Result<void>> wait_on(std::shared_ptr<Signal::State> state, Nanos deadline, CancelPtr cancel) {
  Loop* loop = Loop::current();
  assert(loop && "a Signal is awaited on a loop");
  if (!join(*state, loop)) co_return *state->value;
  Leave leave{*state};
  LoopCore& core = loop->core();
  if (core.stopping()) co_return Err(Errc::kShutdown);
  if (cancel && cancel->fired()) co_return std::unexpected(cancel->error());
  if (deadline != kForever && deadline <= loop->clock().boot()) co_return Err(Errc::kDeadline);
  SignalWaiter w;
  w.in_signal.insert_before(state->waiters);
  core.wait(w, deadline);
  CancelLink link(std::move(cancel), *loop, w);
  co_await w.suspend();
  if (w.failed) co_return std::unexpected(std::move(w.error));
  co_return *state->value;
}

Task<void> wait_through_on(std::shared_ptr<Signal::State> state) {
  Loop* loop = Loop::current();
  assert(loop && "a Signal is awaited on a loop");
  if (!join(*state, loop)) co_return;
  Leave leave{*state};
  SignalWaiter w;
  w.in_signal.insert_before(state->waiters);
  loop->core().wait_through(w);
  co_await w.suspend();
}
}  // namespace

Signal::Signal() : state_(std::make_shared<State>()) {}

void Signal::set(Result<void> value) const {
  State& s = *state_;
  Loop* loop = nullptr;
  {
    std::lock_guard lock(s.mutex);
    if (s.value) return;
    s.value.emplace(std::move(value));
    if (s.waiting == 0) return;  // who comes later sees the value
    loop = s.loop;
  }
  if (loop == Loop::current()) {
    wake_all(s);
    return;
  }
  s.self = state_;
  s.run = [](ReadyNode* node, bool alive) {
    auto self = std::move(static_cast<State*>(node)->self);
    if (alive) wake_all(*self);
  };
  loop->core().push_remote(s);
}

bool Signal::is_set() const {
  std::lock_guard lock(state_->mutex);
  return state_->value.has_value();
}

Task<Result<void>> Signal::wait(Nanos deadline, CancelPtr cancel) const { return wait_on(state_, deadline, std::move(cancel)); }
Task<void> Signal::wait_through() const { return wait_through_on(state_); }

// ---------------------------------------------------------------- Semaphore

Task<Result<void>> Semaphore::acquire(uint64_t n, Nanos deadline, CancelPtr cancel) {
  if (waiters_.empty() && free_ >= n) {
    free_ -= n;
    co_return Result<void>{};
  }
  auto w = std::make_shared<Waiter>();
  w->n = n;
  waiters_.push_back(w);
  auto woken = co_await w->signal.wait(deadline, std::move(cancel));
  if (w->granted) co_return Result<void>{};  // also when the deadline passed in the same turn
  std::erase(waiters_, w);
  release(0);  // who stood behind may fit now
  co_return woken;
}

void Semaphore::release(uint64_t n) {
  free_ += n;
  while (!waiters_.empty() && free_ >= waiters_.front()->n) {
    auto w = std::move(waiters_.front());
    waiters_.pop_front();
    free_ -= w->n;
    w->granted = true;
    w->signal.set();
  }
}

// ---------------------------------------------------------------- Gate

bool Gate::enter() {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  ++inside_;
  return true;
}

void Gate::leave() {
  std::lock_guard lock(mutex_);
  assert(inside_ > 0);
  if (--inside_ == 0 && drained_) drained_->set();
}

Task<void> Gate::close() {
  std::optional<Signal> drained;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    if (inside_ == 0) co_return;
    if (!drained_) drained_.emplace();
    drained = drained_;
  }
  co_await drained->wait_through();
}

}  // namespace nacre
