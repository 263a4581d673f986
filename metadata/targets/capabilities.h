// SPDX-License-Identifier: Apache-2.0
// Makes capabilities: what a session may do with the objects of an inode, signed, for capability_term at most. Any thread.
#pragma once
#include <memory>

#include "common/base/clock.h"
#include "common/wire/capability.h"
#include "metadata/leases/session.h"

namespace nacre::mds {

class Capabilities {
 public:
  Capabilities(const wire::Key& cluster_key, Clock& clock, Nanos term) : key_(wire::capability_key(cluster_key)), clock_(clock), term_(term) {}

  /// What will be granted, unsigned: this may be stored with a reply. Null for mode 0 or an inode without a layout.
  static std::unique_ptr<wire::CapabilityT> describe(SessionId session, const schema::InodeRecordT& record, Epoch epoch, uint8_t mode);
  /// Sets the expiry and signs. Null stays null. The session remembers how long its rights may last.
  void sign(Session& session, const std::unique_ptr<wire::CapabilityT>& cap) const;
  Nanos term() const { return term_; }

 private:
  wire::Key key_;
  Clock& clock_;
  Nanos term_;
};

}  // namespace nacre::mds
