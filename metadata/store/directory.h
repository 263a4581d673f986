// SPDX-License-Identifier: Apache-2.0
// The files around the database in a metadata directory: `identity`, `lock`, and `restored` after a restore. For metadata/store
// alone. Blocking.
#pragma once
#include <span>
#include <string>

#include "common/io/durable.h"
#include "metadata/store/store.h"

namespace nacre::mds {

inline constexpr std::string_view kIdentityFile = "identity", kDatabaseDir = "db", kRestoredFile = "restored";

std::string identity_text(std::span<const uint8_t> cluster);
/// Errors, each with a sentence: kNoEnt, kNotOurs, kVersion.
Result<void> check_identity(const Store::Options& options);
/// The descriptor that holds the directory's lock. Error: kInUse.
Result<int> take_directory_lock(const std::string& path);
/// Every file and directory below `path`, and itself. Returns the bytes of the files.
Result<uint64_t> sync_tree(const std::string& path);

}  // namespace nacre::mds
