// SPDX-License-Identifier: Apache-2.0
// The mount point before anything is mounted on it.
#pragma once
#include <string>
#include <vector>

#include "common/base/error.h"

namespace nacre::mount {

/// Removes dead Nacre mounts (whose client was killed) from `path`, and checks that it is a directory on which no Nacre mount lives.
/// Returns its absolute path. Errors: kNoEnt, kNotDir, kBusy, with a sentence.
Result<std::string> prepare_point(const std::string& path);

/// One line of /proc/self/mountinfo.
struct MountLine {
  std::string point, type, source;
  std::string device;                 ///< "0:53"
  uint32_t user = 0;                  ///< who mounted it (FUSE)
};
/// Reads such a line; false if it is none. Octal escapes are resolved.
bool parse_mount_line(const std::string& line, MountLine& out);

/// The last (topmost) mount on `point`; false if there is none.
bool top_mount(const std::string& point, MountLine& out);
/// All Nacre mounts of this mount namespace, in order.
std::vector<MountLine> nacre_mounts();
/// True if a Nacre mount without a client is on `point`. Doesn't wait for servers, unless somebody has mounted another one there.
bool is_dead_mount(const std::string& point);
/// Absolute, without resolving the last component, which may be a dead mount that can't be looked at.
std::string absolute_point(const std::string& path);

/// Where the client of this mount writes its log if nobody says: in the cluster's run directory if it is there, else
/// /var/log/nacre. Empty if neither can be written.
std::string default_log(const std::string& run_dir, const std::string& mount_point);

}  // namespace nacre::mount
