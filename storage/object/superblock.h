// SPDX-License-Identifier: Apache-2.0
// The superblock of an OST: who it belongs to, what it needs to be read, how far its numbers have come. It is the record "super" of
// the index, written with each txg. Pure.
#pragma once
#include <string>
#include <string_view>

#include "common/schema/codec.h"
#include "storage/object/object_store.h"

namespace nacre::storage {

/// Feature bits. compat: older programs may ignore it. ro_compat: they may read. incompat: they must refuse.
inline constexpr uint64_t kCompatKnown = 0, kRoCompatKnown = 0, kIncompatKnown = 0;

inline std::string encode_super(const schema::OstSuperT& super) { return encode_record(super); }
/// Errors: kVersion (format byte or feature bits of a newer program), kCorrupt.
Result<schema::OstSuperT> decode_super(std::string_view value, const std::string& dir);
/// Whether this is the target that was asked for. Errors: kNotOurs.
Result<void> check_super(const schema::OstSuperT& super, const std::string& dir, const Uuid& cluster_id, OstId ost);

}  // namespace nacre::storage
