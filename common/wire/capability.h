// SPDX-License-Identifier: Apache-2.0
// Capabilities: the MDS signs, the OSTs verify; both derive the key from the cluster key. Pure, thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/schema/codec.h"

namespace nacre::wire {

inline constexpr size_t kKeySize = 32;
using Key = std::array<uint8_t, kKeySize>;

Key derive_key(const Key& cluster_key, std::string_view purpose);  ///< HMAC-SHA256(cluster_key, purpose)
/// What the MDS signs with and the OSTs verify with.
inline Key capability_key(const Key& cluster_key) { return derive_key(cluster_key, "capability"); }
std::array<uint8_t, 32> hmac(const Key& key, std::span<const uint8_t> message);
bool equal_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);
/// Reads 32 bytes (64 hex digits) from a key file; refuses one that others can read. Errors: kNoEnt, kAuth, kConfig with a sentence.
Result<Key> read_key_file(const std::string& path);

void sign(const Key& key, CapabilityT& cap);
/// kCapInvalid (bad signature, wrong inode, generation, component or mode) or kCapExpired (past `now`, MDS time).
Result<void> verify(const Key& key, const CapabilityT& cap, const ObjectId& object, uint8_t mode, Nanos now);
/// The same but for the signature: for a capability whose signature was verified before.
Result<void> check(const CapabilityT& cap, const ObjectId& object, uint8_t mode, Nanos now);

}  // namespace nacre::wire
