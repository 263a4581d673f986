// SPDX-License-Identifier: Apache-2.0
#include "common/io/durable.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

namespace nacre {

Result<void> sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool ok = fd >= 0 && ::fsync(fd) == 0;
  const int e = errno;
  if (fd >= 0) ::close(fd);
  if (!ok) return Err(from_errno(e), fmt::format("{} can't be synced: {}", path, std::strerror(e)));
  return {};
}

Result<void> replace_file(const std::string& path, std::string_view content, mode_t mode) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  const bool ok = fd >= 0 && ::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()) && ::fsync(fd) == 0 && ::rename(fresh.c_str(), path.c_str()) == 0;
  const int e = errno;
  if (fd >= 0) ::close(fd);
  if (!ok) return Err(Errc::kIo, fmt::format("{} can't be written: {}", path, std::strerror(e)));
  const std::string parent = std::filesystem::path(path).parent_path();
  return sync_directory(parent.empty() ? "." : parent);
}

}  // namespace nacre
