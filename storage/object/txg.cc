// SPDX-License-Identifier: Apache-2.0
#include "storage/object/txg.h"

#include "storage/object/superblock.h"

namespace nacre::storage {

Txg::Txg(Parts parts)
    : index_(parts.index), device_(parts.device), space_(parts.space), interval_(parts.interval), fail_(std::move(parts.fail)),
      on_tick_(std::move(parts.on_tick)), base_(parts.first_wseq), super_(std::move(parts.super)), next_wseq_(parts.first_wseq + 1),
      number_(super_.txg + 1), high_(super_.wseq_high), stable_(0), newest_(parts.first_wseq), filling_(number_) {}

Result<WSeq> Txg::next_wseq() {
  if (next_wseq_ > high_.load(std::memory_order_relaxed)) return Err(Errc::kRetryLater, "the durable range of write sequences is used up");
  newest_.store(next_wseq_, std::memory_order_release);
  return WSeq(next_wseq_++);
}

void Txg::freed(const std::vector<Extent>& extents) {
  space_.freed(extents);
  frees_.insert(frees_.end(), extents.begin(), extents.end());
}

void Txg::undo_row(const Key<kUndoKey>& key) {
  if (undo_.size() <= kSingleUndoRows) undo_.push_back(key);
}

Task<Result<void>> Txg::through(JournalNo n) {
  while (!is_synced(n)) CO_CHECK_OK(co_await force());
  co_return Result<void>{};
}

Task<Result<void>> Txg::force() {
  Signal signal;
  {
    std::lock_guard lock(mutex_);
    if (over_) co_return Err(*over_);
    waiters_.push_back(signal);
  }
  kick();
  co_return co_await signal.wait();
}

void Txg::kick() {
  std::lock_guard lock(mutex_);
  kicked_ = true;
  if (kick_) kick_->set();
}

Task<Result<void>> Txg::cycle() {
  std::vector<Signal> waiters;
  {
    std::lock_guard lock(mutex_);
    waiters.swap(waiters_);  // before the cut: whoever waits has committed what he waits for
  }
  struct { uint64_t number, last, journal, high; std::vector<Extent> frees; std::vector<Key<kUndoKey>> undo; } cut;
  index_.between([&] {
    dirty_.store(false, std::memory_order_relaxed);
    cut = {number_++, next_wseq_ - 1, index_.last().v, super_.wseq_high, std::move(frees_), std::move(undo_)};
    frees_.clear();
    undo_.clear();
    filling_.store(number_, std::memory_order_release);
  });

  Result<void> ok = co_await device_.sync();
  if (ok) {
    auto sync = [this] { return index_.sync(); };
    ok = co_await run_blocking(sync);
  }
  if (ok) {
    high_.store(cut.high, std::memory_order_relaxed);  // it was in a batch that is synced now
    auto marked = index_.commit([&](Batch& batch) -> Result<void> {
      if (cut.undo.size() > kSingleUndoRows) batch.erase_range(Family::kUndo, undo_prefix(cut.number), undo_prefix(cut.number + 1));
      else for (const auto& key : cut.undo) batch.erase(Family::kUndo, key);
      super_.txg = cut.number;
      if (super_.wseq_high < next_wseq_ + kWSeqRange / 2) super_.wseq_high = next_wseq_ + kWSeqRange;
      batch.put(Family::kSuper, kSuperKey, encode_super(super_));
      return {};
    });
    if (!marked) ok = std::unexpected(std::move(marked).error());
  }
  if (!ok) {
    const Error why(Errc::kIo, "a sync failed, so nothing that isn't stable yet can be trusted: " + ok.error().message());
    if (fail_) fail_(why);
    settle(std::unexpected(why), waiters);
    leave(why);
    co_return std::unexpected(why);
  }
  space_.after_txg(std::move(cut.frees));
  stable_.store(cut.last, std::memory_order_release);
  synced_.store(cut.journal, std::memory_order_release);
  settle({}, waiters);
  co_return Result<void>{};
}

void Txg::settle(const Result<void>& outcome, std::vector<Signal>& waiters) {
  for (const Signal& w : waiters) w.set(outcome);
}

void Txg::leave(const Error& why) {
  std::vector<Signal> waiters;
  std::optional<Signal> ended;
  {
    std::lock_guard lock(mutex_);
    if (!over_) over_ = why;
    waiters.swap(waiters_);
    ended.swap(ended_);
    running_ = false;
    kick_.reset();
  }
  settle(std::unexpected(why), waiters);
  if (ended) ended->set();
}

void Txg::start(Loop& loop) {
  {
    std::lock_guard lock(mutex_);
    running_ = true;
  }
  loop.spawn(run());
}

Task<void> Txg::run() {
  Clock& clock = Loop::current()->clock();
  Nanos tick = clock.boot() + interval_;
  for (;;) {
    Signal kick;
    bool stopping = false, waited = false;
    {
      std::lock_guard lock(mutex_);
      stopping = stopping_;
      waited = !waiters_.empty();
      if (!waited && !kicked_ && !stopping) kick_ = kick;
      else kick.set();
      kicked_ = false;
    }
    if (stopping) break;
    auto woken = co_await kick.wait(tick);
    if (!woken && woken.error().code == Errc::kShutdown) break;
    {
      std::lock_guard lock(mutex_);
      kick_.reset();
      waited = !waiters_.empty();
    }
    const bool ticked = clock.boot() >= tick;
    if (waited || (ticked && dirty_.load(std::memory_order_relaxed))) {
      if (!co_await cycle()) co_return;
    }
    if (index_.rotation_due()) {
      auto rotate = [this] { return index_.rotate(); };
      if (auto ok = co_await run_blocking(rotate); !ok) {
        if (fail_) fail_(ok.error());
        leave(ok.error());
        co_return;
      }
    }
    if (ticked) {
      space_.poll();
      if (on_tick_) on_tick_();
      tick = clock.boot() + interval_;
    }
  }
  leave(Error(Errc::kShutdown, "the target is closing"));
}

Task<void> Txg::stop() {
  Signal ended;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!running_) co_return;
    ended_ = ended;
    kicked_ = true;
    if (kick_) kick_->set();
  }
  (void)co_await ended.wait();
}

}  // namespace nacre::storage
