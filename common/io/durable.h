// SPDX-License-Identifier: Apache-2.0
// Small files that must survive a power loss whole. Blocking.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/error.h"

namespace nacre {

/// The file has this content, and its name, on disk when it returns; after a power loss on the way it has the old one or this. By
/// way of `PATH.new`. Errors name the path.
Result<void> replace_file(const std::string& path, std::string_view content, mode_t mode = 0600);
Result<void> sync_directory(const std::string& path);

}  // namespace nacre
