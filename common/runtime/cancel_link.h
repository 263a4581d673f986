// SPDX-License-Identifier: Apache-2.0
// Ties a Waiter to a Cancel while it waits. Lies in the waiting frame, after the Waiter. Loop thread only; the cancel may
// fire on any thread.
#pragma once
#include <memory>

#include "common/runtime/core.h"
#include "common/runtime/sync.h"

namespace nacre {

class CancelLink {
 public:
  CancelLink(CancelPtr cancel, Loop& loop, Waiter& waiter);  ///< a null cancel is fine and costs nothing
  ~CancelLink();
  CancelLink(const CancelLink&) = delete;
  CancelLink& operator=(const CancelLink&) = delete;

 private:
  struct Shared { Loop* loop; Waiter* waiter; };
  CancelPtr cancel_;
  std::shared_ptr<Shared> shared_;
  uint64_t token_ = 0;
};

}  // namespace nacre
