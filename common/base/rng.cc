// SPDX-License-Identifier: Apache-2.0
#include "common/base/rng.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace nacre {
namespace {
class SystemRng final : public Rng {
 public:
  void fill(std::span<std::byte> out) override {
    while (!out.empty()) {
      ssize_t n = getrandom(out.data(), out.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) std::abort();  // a kernel without randomness can't make keys or nonces: nothing safe is left to do
      out = out.subspan(static_cast<size_t>(n));
    }
  }
};
}  // namespace

Rng& system_rng() {
  static SystemRng rng;
  return rng;
}
}  // namespace nacre
