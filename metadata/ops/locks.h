// SPDX-License-Identifier: Apache-2.0
// Lock stripes. A turn tries a stripe without waiting, in any order; it waits only while it holds none, and then for all it
// wants in ascending order: so there is no cycle. The stripes of directory moves come before those of inodes. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/base/ids.h"

namespace nacre::mds {

class Turn;

class Locks {
 public:
  static constexpr uint32_t kMoveStripes = 64, kInodeStripes = 8192;  ///< two busy inodes share a stripe once in 8,192
  static uint32_t stripe_of(Ino ino) { return kMoveStripes + static_cast<uint32_t>((ino.v * 0x9E3779B97F4A7C15ull) >> 51); }
  static uint32_t move_stripe_of(FilesetId fileset) { return fileset.v % kMoveStripes; }
  static_assert(kInodeStripes == 1u << (64 - 51));

  bool held_by(uint32_t stripe, const Turn* turn) const { return stripes_[stripe].holder.load(std::memory_order_relaxed) == turn; }
  bool try_lock(uint32_t stripe, Turn* turn);
  void lock(uint32_t stripe, Turn* turn);  ///< blocks for at most another turn
  void unlock(uint32_t stripe);

 private:
  struct Stripe {
    std::mutex mutex;
    std::atomic<Turn*> holder{nullptr};
  };
  void ask_holder(Stripe& stripe);
  std::array<Stripe, kMoveStripes + kInodeStripes> stripes_;
};

}  // namespace nacre::mds
