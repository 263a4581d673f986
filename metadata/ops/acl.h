// SPDX-License-Identifier: Apache-2.0
// POSIX ACLs in the form of the system.posix_acl_* attributes: little-endian version 2, then (tag, permissions, id) entries in
// the order owner, users, owning group, groups, mask, other. Rules: acl(5), POSIX 1003.1e draft 17. Pure, thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/schema/codec.h"

namespace nacre::mds {

inline constexpr std::string_view kAccessAcl = "system.posix_acl_access", kDefaultAcl = "system.posix_acl_default";
inline constexpr uint16_t kAclUserObj = 0x01, kAclUser = 0x02, kAclGroupObj = 0x04, kAclGroup = 0x08, kAclMask = 0x10, kAclOther = 0x20;
inline constexpr size_t kMaxAclEntries = 1024;  ///< 8 KiB

struct AclEntry {
  uint16_t tag = 0, perm = 0;
  uint32_t id = UINT32_MAX;  ///< users and groups only
  bool operator==(const AclEntry&) const = default;
};

class Acl {
 public:
  /// nullopt: no entries, which removes the ACL. Errors: kOpNotSupp (another version), kInval (malformed or invalid), kTooBig.
  static Result<std::optional<Acl>> parse(std::span<const uint8_t> value);
  Bytes serialize() const;
  const std::vector<AclEntry>& entries() const { return entries_; }

  /// The permission bits (0777) of a mode that stands for it; group bits show the mask if there is one.
  uint32_t mode() const;
  /// Nothing but owner, group, other: a mode says it all.
  bool minimal() const { return entries_.size() == 3; }
  /// As chmod does: owner, mask (or owning group), other.
  void set_mode(uint32_t mode);
  /// A default ACL becomes a new file's access ACL: permissions that `mode` doesn't ask for go. Returns mode with its
  /// permission bits replaced by what is left.
  uint32_t inherit(uint32_t mode);

 private:
  AclEntry* find(uint16_t tag);
  const AclEntry* find(uint16_t tag) const { return const_cast<Acl*>(this)->find(tag); }
  std::vector<AclEntry> entries_;
};

}  // namespace nacre::mds
