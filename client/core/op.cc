// SPDX-License-Identifier: Apache-2.0
#include "client/core/op.h"

#include <algorithm>

#include "client/core/core.h"
#include "common/base/rng.h"
#include "common/log/log.h"

namespace nacre::client {

Op::Op(std::shared_ptr<Core> core, const char* name, Caller caller) : core_(std::move(core)), name_(name), caller_(std::move(caller)) {
  core_->operations.fetch_add(1, std::memory_order_relaxed);
  if (core_->options.soft > 0) deadline_ = core_->clock().boot() + core_->options.soft;
}

Op::~Op() {
  if (caller_.cancel && token_) caller_.cancel->remove(token_);
  core_->operations.fetch_sub(1, std::memory_order_release);
}

Result<std::vector<uint32_t>> Op::groups() {
  if (!groups_) {
    if (!caller_.groups) return std::vector<uint32_t>{};
    NACRE_TRY(groups_, caller_.groups());
    if (groups_->size() > kMaxGroups) groups_->resize(kMaxGroups);
  }
  return *groups_;
}

Error Op::gave_up(std::string_view server) const {
  if (core_->options.soft > 0)
    return Error(Errc::kIo, fmt::format("{}: no answer from {} within {} s (mount option soft)", name_, server, core_->options.soft / kSecond));
  return Error(Errc::kTimedOut, fmt::format("{}: no answer from {} in time", name_, server));
}

namespace {
Task<void> fire_after_grace(std::weak_ptr<Op> weak, Cancel* slow, Error why) {
  (void)co_await sleep_for(kInterruptGrace);
  if (auto op = weak.lock()) slow->fire(std::move(why));
}
}  // namespace

OpPtr make_op(std::shared_ptr<Core> core, const char* name, Caller caller) {
  auto op = std::make_shared<Op>(std::move(core), name, std::move(caller));
  if (op->caller_.cancel) {
    std::weak_ptr<Op> weak = op;
    Loop* loop = Loop::current();
    Cancel* slow = &op->slow_;
    op->token_ = op->caller_.cancel->add([weak, loop, slow](Error why) {
      if (why.code == Errc::kIntr) return loop->spawn(fire_after_grace(weak, slow, std::move(why)));
      if (auto live = weak.lock()) slow->fire(std::move(why));  // an administrator's abort
    });
  }
  return op;
}

bool is_transient(Errc code) {
  switch (code) {
    case Errc::kUnavailable:
    case Errc::kDisconnected:
    case Errc::kShutdown:
    case Errc::kRecovering:
    case Errc::kRetryLater:
    case Errc::kOstDown:
    case Errc::kStaleMap: return true;
    default: return false;
  }
}

Task<Result<void>> pause_before_retry(OpPtr op, std::string_view server, uint32_t attempt) {
  if (op->core().stopping()) co_return Err(Errc::kShutdown, "the filesystem is being unmounted");
  Nanos length = std::min(kPauseMax, kPauseMin << std::min(attempt, 10u));
  length = length / 2 + static_cast<Nanos>(system_rng().below(static_cast<uint64_t>(length / 2)));
  Nanos now = op->core().clock().boot();
  if (now >= op->deadline()) co_return Err(op->gave_up(server));
  Signal never;
  auto woken = co_await never.wait(std::min(now + length, op->deadline()), Op::cancel(op));
  if (!woken && woken.error().code != Errc::kDeadline) co_return std::unexpected(std::move(woken).error());
  if (op->core().clock().boot() >= op->deadline()) co_return Err(op->gave_up(server));
  co_return Result<void>{};
}

Waits::Entry::Entry(Waits& waits, const char* op, std::string_view server, Nanos since)
    : shard_(Loop::current() ? Loop::current()->index() % waits.shards_.size() : 0), waits_(waits), op_(op), server_(server), since_(since) {
  auto& s = waits_.shards_[shard_];
  std::lock_guard lock(s.mutex);
  next_ = s.head;
  if (s.head) s.head->prev_ = this;
  s.head = this;
  ++s.count;
}

Waits::Entry::~Entry() {
  auto& s = waits_.shards_[shard_];
  std::lock_guard lock(s.mutex);
  if (prev_) prev_->next_ = next_;
  else s.head = next_;
  if (next_) next_->prev_ = prev_;
  --s.count;
}

Waits::Oldest Waits::oldest(Nanos now) const {
  Oldest out;
  for (auto& s : shards_) {
    std::lock_guard lock(s.mutex);
    out.count += s.count;
    for (auto* e = s.head; e; e = e->next_) {
      if (now - e->since_ <= out.age) continue;
      out.age = now - e->since_;
      out.text = fmt::format("{} on {}", e->op_, e->server_);
    }
  }
  return out;
}

std::vector<Waits::Waiting> Waits::list(Nanos now, size_t most) const {
  std::vector<Waiting> out;
  for (auto& s : shards_) {
    std::lock_guard lock(s.mutex);
    for (auto* e = s.head; e; e = e->next_) out.push_back({now - e->since_, e->op_, std::string(e->server_)});
  }
  std::sort(out.begin(), out.end(), [](const Waiting& a, const Waiting& b) { return a.age > b.age; });
  if (out.size() > most) out.resize(most);
  return out;
}

size_t Waits::warn(Nanos now, Nanos warn_after) {
  size_t warned = 0;
  for (auto& s : shards_) {
    std::lock_guard lock(s.mutex);
    for (auto* e = s.head; e; e = e->next_) {
      if (e->warned_ || now - e->since_ < warn_after) continue;
      e->warned_ = true;
      ++warned;
      log::warn("{} has waited {} s for {}; it goes on when the server answers, or can be interrupted", e->op_, (now - e->since_) / kSecond, e->server_);
    }
  }
  return warned;
}

}  // namespace nacre::client
