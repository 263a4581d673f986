// SPDX-License-Identifier: Apache-2.0
// The randomness seam: keys and nonces come from the kernel, everything else from a seed that a test can set.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

namespace nacre {

class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<std::byte> out) = 0;
  uint64_t u64() { uint64_t x; fill(std::as_writable_bytes(std::span(&x, 1))); return x; }
  uint64_t below(uint64_t n) { return n ? u64() % n : 0; }  ///< bias of 2^-64 · n is accepted
};

Rng& system_rng();  ///< getrandom(2); thread-safe

/// Deterministic; not for secrets. One thread.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed) : engine_(seed) {}
  void fill(std::span<std::byte> out) override { for (auto& b : out) b = static_cast<std::byte>(engine_() >> 24); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace nacre
