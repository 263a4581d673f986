// SPDX-License-Identifier: Apache-2.0
// Capabilities whose signature one connection has shown before: a request repeats its capability, and a comparison is cheaper
// than an HMAC. Every field that is signed is compared, and what a signature can't say (expiry, object, mode) is checked each
// time. Lives on the connection's loop.
#pragma once
#include <array>
#include <unordered_map>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/schema/codec.h"
#include "common/wire/capability.h"

namespace nacre::storage {

class CapabilityCache {
 public:
  static constexpr size_t kMaxEntries = 4096;  ///< files that one connection works on at a time; 300 KiB

  /// `cap` may be null (kCapInvalid). `now`: MDS time. Errors as wire::verify's.
  Result<void> verify(const wire::Key& key, const wire::Capability* cap, const ObjectId& object, uint8_t mode, Nanos now);
  size_t size() const { return known_.size(); }
  uint64_t verified() const { return verified_; }  ///< signatures computed

 private:
  static constexpr size_t kMacSize = 16;
  struct Entry {
    uint64_t session, ino, components;
    Nanos expires;
    uint32_t generation, fileset, epoch;
    uint8_t mode;
    std::array<uint8_t, kMacSize> mac;
    bool operator==(const Entry&) const = default;
  };
  std::unordered_map<uint64_t, Entry> known_;  ///< by the first 8 bytes of the mac
  uint64_t verified_ = 0;
};

}  // namespace nacre::storage
