// SPDX-License-Identifier: Apache-2.0
// See acl.h.
#include "metadata/ops/acl.h"

namespace nacre::mds {
namespace {

constexpr uint32_t kAclVersion = 2;
constexpr size_t kHeader = 4, kEntry = 8;

uint32_t load(std::span<const uint8_t> b, size_t at, size_t n) {
  uint32_t v = 0;
  for (size_t i = 0; i < n; ++i) v |= uint32_t{b[at + i]} << (8 * i);
  return v;
}
void add(Bytes& out, uint32_t v, size_t n) {
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
}

/// Order, counts and ranges, as the kernel demands them.
bool valid(const std::vector<AclEntry>& entries) {
  uint16_t expect = kAclUserObj;
  bool needs_mask = false;
  for (const auto& e : entries) {
    if (e.perm > 7) return false;
    switch (e.tag) {
      case kAclUserObj:
        if (expect != kAclUserObj) return false;
        expect = kAclUser;
        break;
      case kAclUser:
        if (expect != kAclUser || e.id == UINT32_MAX) return false;
        needs_mask = true;
        break;
      case kAclGroupObj:
        if (expect != kAclUser) return false;
        expect = kAclGroup;
        break;
      case kAclGroup:
        if (expect != kAclGroup || e.id == UINT32_MAX) return false;
        needs_mask = true;
        break;
      case kAclMask:
        if (expect != kAclGroup) return false;
        expect = kAclOther;
        break;
      case kAclOther:
        if (expect != kAclOther && !(expect == kAclGroup && !needs_mask)) return false;
        expect = 0;
        break;
      default: return false;
    }
  }
  return expect == 0;
}

}  // namespace

Result<std::optional<Acl>> Acl::parse(std::span<const uint8_t> value) {
  if (value.empty()) return std::optional<Acl>();
  if (value.size() < kHeader || (value.size() - kHeader) % kEntry != 0) return Err(Errc::kInval, "an ACL of a size that no ACL has");
  if (load(value, 0, 4) != kAclVersion) return Err(Errc::kOpNotSupp, "an ACL of another version");
  size_t count = (value.size() - kHeader) / kEntry;
  if (count == 0) return std::optional<Acl>();
  if (count > kMaxAclEntries) return Err(Errc::kNoSpc, fmt::format("an ACL of {} entries, {} are the most", count, kMaxAclEntries));
  Acl out;
  for (size_t i = 0; i < count; ++i) {
    size_t at = kHeader + i * kEntry;
    AclEntry e{static_cast<uint16_t>(load(value, at, 2)), static_cast<uint16_t>(load(value, at + 2, 2)), load(value, at + 4, 4)};
    if (e.tag != kAclUser && e.tag != kAclGroup) e.id = UINT32_MAX;
    out.entries_.push_back(e);
  }
  if (!valid(out.entries_)) return Err(Errc::kInval, "an ACL whose entries break the rules of acl(5)");
  return std::optional(std::move(out));
}

Bytes Acl::serialize() const {
  Bytes out;
  add(out, kAclVersion, 4);
  for (const auto& e : entries_) {
    add(out, e.tag, 2);
    add(out, e.perm, 2);
    add(out, e.id, 4);
  }
  return out;
}

AclEntry* Acl::find(uint16_t tag) {
  for (auto& e : entries_)
    if (e.tag == tag) return &e;
  return nullptr;
}

uint32_t Acl::mode() const {
  const AclEntry* group = find(kAclMask);
  if (!group) group = find(kAclGroupObj);
  return uint32_t{find(kAclUserObj)->perm} << 6 | uint32_t{group->perm} << 3 | find(kAclOther)->perm;
}

void Acl::set_mode(uint32_t mode) {
  find(kAclUserObj)->perm = mode >> 6 & 7;
  AclEntry* group = find(kAclMask);
  (group ? group : find(kAclGroupObj))->perm = mode >> 3 & 7;
  find(kAclOther)->perm = mode & 7;
}

uint32_t Acl::inherit(uint32_t mode) {
  find(kAclUserObj)->perm &= mode >> 6 & 7;
  AclEntry* group = find(kAclMask);
  (group ? group : find(kAclGroupObj))->perm &= mode >> 3 & 7;
  find(kAclOther)->perm &= mode & 7;
  return (mode & ~0777u) | this->mode();
}

}  // namespace nacre::mds
