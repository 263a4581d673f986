// SPDX-License-Identifier: Apache-2.0
#include "storage/service/capability_cache.h"

#include <cstring>

#include <fmt/format.h>

namespace nacre::storage {

Result<void> CapabilityCache::verify(const wire::Key& key, const wire::Capability* cap, const ObjectId& object, uint8_t mode, Nanos now) {
  if (cap == nullptr || cap->mac() == nullptr || cap->mac()->size() != kMacSize) return Err(Errc::kCapInvalid, fmt::format("a request for object {} bears no capability", object));
  Entry e{cap->session(), cap->ino(), cap->components(), cap->expires(), cap->generation(), cap->fileset(), cap->epoch(), cap->mode(), {}};
  std::memcpy(e.mac.data(), cap->mac()->data(), kMacSize);
  uint64_t name;
  std::memcpy(&name, e.mac.data(), sizeof name);

  wire::CapabilityT fields;
  fields.session = e.session, fields.ino = e.ino, fields.generation = e.generation, fields.components = e.components;
  fields.mode = e.mode, fields.fileset = e.fileset, fields.epoch = e.epoch, fields.expires = e.expires;
  if (auto it = known_.find(name); it != known_.end() && it->second == e) return wire::check(fields, object, mode, now);

  ++verified_;
  fields.mac.assign(e.mac.begin(), e.mac.end());
  NACRE_CHECK_OK(wire::verify(key, fields, object, mode, now));
  if (known_.size() >= kMaxEntries) {
    std::erase_if(known_, [now](const auto& k) { return k.second.expires <= now; });
    if (known_.size() >= kMaxEntries) known_.clear();  // verifying them again is all it costs
  }
  known_[name] = e;
  return {};
}

}  // namespace nacre::storage
