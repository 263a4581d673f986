// SPDX-License-Identifier: Apache-2.0
// The clock seam. No code reads time except through this interface, so that tests and simulation can own it.
// Thread-safe.
#pragma once
#include <atomic>
#include <cstdint>

namespace nacre {

using Nanos = int64_t;
inline constexpr Nanos kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond, kSecond = 1000 * kMillisecond;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos real() const = 0;  ///< CLOCK_REALTIME, ns since the epoch UTC: what is stored
  virtual Nanos boot() const = 0;  ///< CLOCK_BOOTTIME, ns: what terms, deadlines and timers are measured on
};

Clock& system_clock();  ///< the kernel's clocks

/// A clock that moves only when told: for tests and simulation.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Nanos real_start = 1'700'000'000 * kSecond) : real_(real_start) {}
  Nanos real() const override { return real_.load(std::memory_order_relaxed); }
  Nanos boot() const override { return boot_.load(std::memory_order_relaxed); }
  void advance(Nanos by) { real_ += by; boot_ += by; }
  void set_real(Nanos t) { real_ = t; }  ///< an administrator's step of the wall clock

 private:
  std::atomic<Nanos> real_, boot_{kSecond};
};

}  // namespace nacre
