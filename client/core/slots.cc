// SPDX-License-Identifier: Apache-2.0
#include "client/core/slots.h"

#include <algorithm>

#include "client/core/core.h"

namespace nacre::client {

Slots::Slots(size_t loops) {
  for (size_t i = 0; i < std::max<size_t>(loops, 1); ++i) pools_.push_back(std::make_unique<Pool>());
}

SlotLease Slots::Pool::take() {
  uint16_t slot = free.front();
  free.pop_front();
  uint32_t& sequence = sequences[slot - first];
  if (++sequence == 0) sequence = 1;
  return {session, slot, sequence};
}

void Slots::reset(uint64_t session, uint16_t count) {
  size_t active = std::clamp<size_t>(count, 1, pools_.size());
  active_.store(active, std::memory_order_release);
  for (size_t i = 0; i < pools_.size(); ++i) {
    auto& p = *pools_[i];
    std::vector<std::shared_ptr<Waiter>> woken;
    {
      std::lock_guard lock(p.mutex);
      size_t begin = i < active ? i * count / active : 0, end = i < active ? (i + 1) * count / active : 0;
      p.session = session;
      p.first = static_cast<uint16_t>(begin);
      p.sequences.assign(end - begin, 0);
      p.free.clear();
      for (size_t s = begin; s < end; ++s) p.free.push_back(static_cast<uint16_t>(s));
      while (!p.waiters.empty() && !p.free.empty()) {
        auto w = std::move(p.waiters.front());
        p.waiters.pop_front();
        w->lease = p.take();
        w->granted = true;
        woken.push_back(std::move(w));
      }
    }
    for (auto& w : woken) w->signal.set();
  }
}

Task<Result<SlotLease>> Slots::acquire(OpPtr op, std::string_view server) {
  auto& p = pool_of(Loop::current()->index());
  std::shared_ptr<Waiter> waiter;
  {
    std::lock_guard lock(p.mutex);
    if (!p.free.empty()) co_return p.take();
    waiter = std::make_shared<Waiter>();
    p.waiters.push_back(waiter);
  }
  Waits::Entry entry(op->core().waits, op->name(), server, op->core().clock().boot());
  auto woken = co_await waiter->signal.wait(op->deadline(), Op::cancel(op));
  SlotLease lease;
  {
    std::lock_guard lock(p.mutex);
    if (waiter->granted) {
      lease = waiter->lease;
    } else {
      p.waiters.erase(std::remove(p.waiters.begin(), p.waiters.end(), waiter), p.waiters.end());
    }
  }
  if (waiter->granted && woken) co_return lease;
  if (waiter->granted) release(lease, false);
  if (woken) co_return Err(Errc::kShutdown);
  if (woken.error().code == Errc::kDeadline) co_return Err(op->gave_up(server));
  co_return std::unexpected(std::move(woken).error());
}

bool Slots::valid(const SlotLease& lease) {
  std::lock_guard lock(pools_[0]->mutex);
  return pools_[0]->session == lease.session;
}

void Slots::release(SlotLease lease, bool used) {
  for (auto& pool : pools_) {
    std::shared_ptr<Waiter> next;
    {
      std::lock_guard lock(pool->mutex);
      if (pool->session != lease.session || lease.slot < pool->first || lease.slot >= pool->first + pool->sequences.size()) continue;
      if (!used) --pool->sequences[lease.slot - pool->first];
      pool->free.push_back(lease.slot);
      if (!pool->waiters.empty()) {
        next = std::move(pool->waiters.front());
        pool->waiters.pop_front();
        next->lease = pool->take();
        next->granted = true;
      }
    }
    if (next) next->signal.set();
    return;
  }
}

}  // namespace nacre::client
