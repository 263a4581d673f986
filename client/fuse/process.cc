// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <string>

#include <fmt/format.h>

namespace nacre::fuse {
namespace {

constexpr size_t kMaxStatus = 1024 * 1024;  // 65,536 groups (NGROUPS_MAX) of at most 11 characters, and the rest

/// Empty if the process is gone.
std::string read_status(int32_t pid) {
  const int fd = ::open(fmt::format("/proc/{}/status", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text(4096, '\0');
  size_t have = 0;
  for (;;) {
    const ssize_t n = ::read(fd, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<size_t>(n);
    if (have == text.size()) {
      if (text.size() >= kMaxStatus) break;
      text.resize(text.size() * 4);
    }
  }
  ::close(fd);
  text.resize(have);
  return text;
}

/// The rest of the line that starts with `key`, which includes the colon.
std::string_view line_of(std::string_view text, std::string_view key) {
  size_t at = text.starts_with(key) ? 0 : std::string_view::npos;
  if (at == std::string_view::npos) {
    const size_t found = text.find(std::string("\n").append(key));
    if (found == std::string_view::npos) return {};
    at = found + 1;
  }
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('\n'));
}

uint64_t mask_of(std::string_view text, std::string_view key) {
  std::string_view line = line_of(text, key);
  while (!line.empty() && (line.front() == '\t' || line.front() == ' ')) line.remove_prefix(1);
  uint64_t v = 0;
  (void)std::from_chars(line.data(), line.data() + line.size(), v, 16);
  return v;
}

constexpr uint64_t bit(int signal) { return 1ull << (signal - 1); }
/// Signals that don't end a process by themselves (signal(7)): ignored, stopping, continuing.
constexpr uint64_t kHarmless = bit(SIGCHLD) | bit(SIGCONT) | bit(SIGURG) | bit(SIGWINCH) | bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

}  // namespace

Result<std::vector<uint32_t>> parse_groups(std::string_view status) {
  if (status.find("Groups:") == std::string_view::npos) return Err(Errc::kAccess, "the groups of the calling process can't be read");
  std::string_view line = line_of(status, "Groups:");
  std::vector<uint32_t> groups;
  while (!line.empty()) {
    if (line.front() == ' ' || line.front() == '\t') {
      line.remove_prefix(1);
      continue;
    }
    uint32_t g = 0;
    const auto r = std::from_chars(line.data(), line.data() + line.size(), g);
    if (r.ec != std::errc()) break;
    groups.push_back(g);
    line.remove_prefix(static_cast<size_t>(r.ptr - line.data()));
  }
  return groups;
}

bool parse_dying(std::string_view status) {
  if (status.empty()) return true;
  std::string_view state = line_of(status, "State:");
  while (!state.empty() && (state.front() == '\t' || state.front() == ' ')) state.remove_prefix(1);
  if (!state.empty() && (state.front() == 'Z' || state.front() == 'X')) return true;
  const uint64_t pending = mask_of(status, "SigPnd:") | mask_of(status, "ShdPnd:");
  if (pending & bit(SIGKILL)) return true;
  const uint64_t deadly = pending & ~mask_of(status, "SigBlk:") & ~mask_of(status, "SigIgn:") & ~mask_of(status, "SigCgt:");
  return (deadly & ~kHarmless) != 0;
}

bool parse_signal(std::string_view status) {
  const uint64_t pending = mask_of(status, "SigPnd:") | mask_of(status, "ShdPnd:");
  return status.empty() || (pending & ~mask_of(status, "SigBlk:") & ~mask_of(status, "SigIgn:")) != 0;
}

Result<std::vector<uint32_t>> groups_of(int32_t pid) {
  if (pid <= 0) return Err(Errc::kAccess, "the calling process is in another pid namespace, so its groups can't be read");
  return parse_groups(read_status(pid));
}

bool has_signal(int32_t pid) { return pid <= 0 || parse_signal(read_status(pid)); }
bool is_dying(int32_t pid) { return pid <= 0 || parse_dying(read_status(pid)); }

}  // namespace nacre::fuse
