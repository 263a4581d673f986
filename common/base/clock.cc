// SPDX-License-Identifier: Apache-2.0
#include "common/base/clock.h"

#include <ctime>

namespace nacre {
namespace {
Nanos read(clockid_t id) {
  timespec ts;
  clock_gettime(id, &ts);
  return static_cast<Nanos>(ts.tv_sec) * kSecond + ts.tv_nsec;
}
class SystemClock final : public Clock {
 public:
  Nanos real() const override { return read(CLOCK_REALTIME); }
  Nanos boot() const override { return read(CLOCK_BOOTTIME); }
};
}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}
}  // namespace nacre
