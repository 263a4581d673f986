// SPDX-License-Identifier: Apache-2.0
// The session's slots for exactly-once requests: (session, slot, sequence). Each loop has a share of its own; with fewer
// slots than loops some share. A slot serves one request at a time, and its sequence only grows. Thread-safe.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "client/core/op.h"

namespace nacre::client {

struct SlotLease {
  uint64_t session = 0;
  uint16_t slot = 0;
  uint32_t sequence = 0;
};

class Slots {
 public:
  explicit Slots(size_t loops);
  /// A new session: all its slots are free, sequences start anew. Leases of the old one become void.
  void reset(uint64_t session, uint16_t count);
  /// Waits for a free slot of the calling loop. Errors: the cancel's, gave_up, kShutdown.
  Task<Result<SlotLease>> acquire(OpPtr op, std::string_view server);
  /// False once the lease's session is gone.
  bool valid(const SlotLease& lease);
  /// `used` false: the request never left, so its sequence is taken again.
  void release(SlotLease lease, bool used);

 private:
  struct Waiter { Signal signal; bool granted = false; SlotLease lease; };
  struct Pool {
    std::mutex mutex;
    uint64_t session = 0;
    uint16_t first = 0;
    std::vector<uint32_t> sequences;  // last one used, by slot - first
    std::deque<uint16_t> free;        // first in, first out: no slot's sequence runs ahead
    std::deque<std::shared_ptr<Waiter>> waiters;
    SlotLease take();                 // mutex held, free not empty
  };
  Pool& pool_of(size_t loop) { return *pools_[loop % active_.load(std::memory_order_acquire)]; }
  std::vector<std::unique_ptr<Pool>> pools_;
  std::atomic<size_t> active_{1};
};

}  // namespace nacre::client
