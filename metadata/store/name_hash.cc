// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), which the tests check against the paper's vector.
#include <bit>
#include <cstring>

#include "metadata/store/keys.h"

namespace nacre::mds {
namespace {

uint64_t load_le(const char* p, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; ++i) v |= uint64_t{static_cast<uint8_t>(p[i])} << (8 * i);
  return v;
}

struct Sip {
  uint64_t v0, v1, v2, v3;
  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }
};

uint64_t siphash24(uint64_t k0, uint64_t k1, std::string_view in) {
  Sip s{k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull, k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull};
  size_t whole = in.size() / 8 * 8;
  auto absorb = [&](uint64_t m) {
    s.v3 ^= m;
    s.round();
    s.round();
    s.v0 ^= m;
  };
  for (size_t i = 0; i < whole; i += 8) absorb(load_le(in.data() + i, 8));
  absorb(load_le(in.data() + whole, in.size() - whole) | uint64_t{in.size() & 0xff} << 56);
  s.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) s.round();
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

}  // namespace

NameHash::NameHash(std::array<uint8_t, 16> key)
    : k0_(load_le(reinterpret_cast<const char*>(key.data()), 8)), k1_(load_le(reinterpret_cast<const char*>(key.data()) + 8, 8)) {}

uint64_t NameHash::operator()(std::string_view name) const {
  uint64_t h = siphash24(k0_, k1_, name) & ~(uint64_t{1} << 63);
  return h < kFirstNameHash ? h + kFirstNameHash : h;
}

}  // namespace nacre::mds
