// SPDX-License-Identifier: Apache-2.0
// Where unit tests keep their directories: in memory where the system has such a place, since a test that formats a database
// would otherwise wait for some forty fsyncs. TMPDIR, if set, decides.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace nacre::test {

inline std::filesystem::path memory_dir() {
  const char* wish = std::getenv("TMPDIR");
  if (!(wish && *wish) && ::access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  return std::filesystem::temp_directory_path();
}

}  // namespace nacre::test
