// SPDX-License-Identifier: Apache-2.0
// See turn.h and locks.h.
#include "metadata/ops/turn.h"

#include <cassert>

namespace nacre::mds {

void Locks::ask_holder(Stripe& stripe) {
  if (Turn* holder = stripe.holder.load(std::memory_order_relaxed)) holder->ask_to_end();
}

bool Locks::try_lock(uint32_t i, Turn* turn) {
  Stripe& stripe = stripes_[i];
  if (!stripe.mutex.try_lock()) {
    ask_holder(stripe);
    return false;
  }
  stripe.holder.store(turn, std::memory_order_relaxed);
  return true;
}

void Locks::lock(uint32_t i, Turn* turn) {
  Stripe& stripe = stripes_[i];
  if (!stripe.mutex.try_lock()) {
    ask_holder(stripe);
    stripe.mutex.lock();
  }
  stripe.holder.store(turn, std::memory_order_relaxed);
}

void Locks::unlock(uint32_t i) {
  stripes_[i].holder.store(nullptr, std::memory_order_relaxed);
  stripes_[i].mutex.unlock();
}

Turn::Turn(Loop& loop, Locks& locks, Journal& journal, std::atomic<uint64_t>& commits) : loop_(loop), locks_(locks), journal_(journal), commits_(commits) {
  end_node_.turn = this;
  end_node_.run = [](ReadyNode* node, bool alive) {
    Turn& turn = *static_cast<EndNode*>(node)->turn;
    turn.ending_soon_ = false;
    if (alive) turn.end();
  };
}

bool Turn::try_lock(uint32_t stripe) {
  if (locks_.held_by(stripe, this)) return true;
  if (!locks_.try_lock(stripe, this)) return false;
  held_.push_back(stripe);
  end_soon();
  return true;
}

void Turn::lock_all(const std::vector<uint32_t>& stripes) {
  end();
  assert(held_.empty() && std::is_sorted(stripes.begin(), stripes.end()));
  for (uint32_t stripe : stripes) {
    locks_.lock(stripe, this);
    held_.push_back(stripe);
  }
  end_soon();
}

void Turn::stage(OpContext& ctx) {
  for (auto& fn : ctx.staged_) fn();
  ctx.staged_.clear();
  batch_.append(std::move(ctx.batch_));
  for (auto& fn : ctx.committed_) committed_.push_back(std::move(fn));
  ctx.committed_.clear();
  if (has_rows() || !committed_.empty()) end_soon();
}

std::shared_ptr<Turn::Outcome> Turn::join() {
  if (!outcome_) outcome_ = std::make_shared<Outcome>();
  operations_ += 1;
  end_soon();
  return outcome_;
}

void Turn::end_soon() {
  if (!std::exchange(ending_soon_, true)) loop_.core().push_later(end_node_);
}

void Turn::end() {
  asked_.store(false, std::memory_order_relaxed);
  Result<JournalNo> number = JournalNo(0);
  if (!batch_.empty()) {
    Batch rows;
    std::swap(rows, batch_);
    number = journal_.commit(std::move(rows));
    commits_.fetch_add(1, std::memory_order_relaxed);
  }
  auto committed = std::exchange(committed_, {});
  if (number)
    for (auto& fn : committed) fn();
  for (uint32_t stripe : held_) locks_.unlock(stripe);
  held_.clear();
  operations_ = 0;
  if (auto outcome = std::exchange(outcome_, nullptr)) {
    outcome->number = number;
    outcome->done.set();
  }
}

}  // namespace nacre::mds
