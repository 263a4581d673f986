// SPDX-License-Identifier: Apache-2.0
// The mount point before anything is mounted on it.
#pragma once
#include <string>

#include "common/base/error.h"

namespace nacre::mount {

/// Removes dead Nacre mounts (whose client was killed) from `path`, and checks that it is a directory on which no Nacre mount lives.
/// Returns its absolute path. Errors: kNoEnt, kNotDir, kBusy, with a sentence.
Result<std::string> prepare_point(const std::string& path);

/// One line of /proc/self/mountinfo.
struct MountLine { std::string point, type, source; };
/// Reads such a line; false if it is none. Octal escapes are resolved.
bool parse_mount_line(const std::string& line, MountLine& out);

/// Where the client of this mount writes its log if nobody says: in the cluster's run directory if it is there, else
/// /var/log/nacre. Empty if neither can be written.
std::string default_log(const std::string& run_dir, const std::string& mount_point);

}  // namespace nacre::mount
