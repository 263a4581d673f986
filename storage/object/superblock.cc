// SPDX-License-Identifier: Apache-2.0
#include "storage/object/superblock.h"

#include <algorithm>

#include "common/base/units.h"

namespace nacre::storage {

static std::string hex(std::span<const uint8_t> id) {
  std::string out;
  for (size_t i = 0; i < id.size(); ++i) out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
  return out;
}

Result<schema::OstSuperT> decode_super(std::string_view value, const std::string& dir) {
  auto super = decode_record<schema::OstSuperT>(value);
  if (!super) {
    if (super.error().code == Errc::kVersion)
      return Err(Errc::kVersion, fmt::format("{} was formatted by a newer version of Nacre ({}): install that version", dir, super.error().detail));
    return Err(Errc::kCorrupt, fmt::format("the superblock in {} is damaged: check the disk, then run nacre fsck", dir));
  }
  if (const uint64_t unknown = (super->incompat & ~kIncompatKnown) | (super->ro_compat & ~kRoCompatKnown))
    return Err(Errc::kVersion, fmt::format("{} uses features that this version of Nacre doesn't know (bits {:#x}): install a newer version", dir, unknown));
  if (super->cluster_id.size() != 16 || super->uuid.size() != 16 || super->capacity < kMinCapacity || super->capacity % kBlockSize)
    return Err(Errc::kCorrupt, fmt::format("the superblock in {} makes no sense: check the disk, then run nacre fsck", dir));
  return super;
}

Result<void> check_super(const schema::OstSuperT& super, const std::string& dir, const Uuid& cluster_id, OstId ost) {
  if (!std::equal(cluster_id.begin(), cluster_id.end(), super.cluster_id.begin()))
    return Err(Errc::kNotOurs, fmt::format("{} belongs to cluster {}, not to {}: correct the target's data directory in the cluster file", dir,
                                           hex(super.cluster_id), hex(cluster_id)));
  if (super.ost != ost.v)
    return Err(Errc::kNotOurs, fmt::format("{} is ost{}, not ost{}: correct the target's data directory in the cluster file", dir, super.ost, ost));
  return {};
}

}  // namespace nacre::storage
