// SPDX-License-Identifier: Apache-2.0
// See capabilities.h.
#include "metadata/targets/capabilities.h"

#include "metadata/targets/layout_policy.h"

namespace nacre::mds {

std::unique_ptr<wire::CapabilityT> Capabilities::describe(SessionId session, const schema::InodeRecordT& record, Epoch epoch, uint8_t mode) {
  if (mode == 0 || !record.layout) return nullptr;
  auto cap = std::make_unique<wire::CapabilityT>();
  cap->session = session.v;
  cap->ino = record.ino;
  cap->generation = record.layout->generation;
  cap->components = component_bits(*record.layout);
  cap->mode = mode;
  cap->fileset = record.fileset;
  cap->epoch = epoch.v;
  return cap;
}

void Capabilities::sign(Session& session, const std::unique_ptr<wire::CapabilityT>& cap) const {
  if (!cap) return;
  cap->expires = clock_.real() + term_;
  session.gave_capability(cap->expires);
  wire::sign(key_, *cap);
}

}  // namespace nacre::mds
