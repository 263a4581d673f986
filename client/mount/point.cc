// SPDX-License-Identifier: Apache-2.0
#include "client/mount/point.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace nacre::mount {
namespace {

constexpr int kMaxStacked = 16;  // dead mounts on top of each other
constexpr const char* kType = "fuse.nacre";

std::string unescape(const std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 3 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '3') {
      out.push_back(static_cast<char>((s[i + 1] - '0') * 64 + (s[i + 2] - '0') * 8 + (s[i + 3] - '0')));
      i += 3;
    } else {
      out.push_back(s[i]);
    }
  }
  return out;
}

}  // namespace

bool parse_mount_line(const std::string& line, MountLine& out) {
  std::istringstream in(line);
  std::string id, parent, device, root, point, word;
  if (!(in >> id >> parent >> device >> root >> point)) return false;
  while (in >> word && word != "-") {}
  if (word != "-") return false;
  std::string type, source;
  if (!(in >> type >> source)) return false;
  out = {unescape(point), type, unescape(source), device, 0};
  std::string options;
  if (in >> options) {
    const size_t at = ("," + options).find(",user_id=");
    if (at != std::string::npos) (void)std::from_chars(options.data() + at + 8, options.data() + options.size(), out.user);
  }
  return true;
}

bool top_mount(const std::string& point, MountLine& out) {
  std::ifstream f("/proc/self/mountinfo");
  bool found = false;
  MountLine m;
  for (std::string line; std::getline(f, line);)
    if (parse_mount_line(line, m) && m.point == point) {
      out = m;
      found = true;
    }
  return found;
}

std::string absolute_point(const std::string& path) {
  std::string p = path;
  while (p.size() > 1 && p.back() == '/') p.pop_back();
  char real[PATH_MAX];
  if (::realpath(p.c_str(), real) != nullptr) return real;
  const size_t slash = p.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : p.substr(0, slash);
  const std::string name = slash == std::string::npos ? p : p.substr(slash + 1);
  if (::realpath(parent.c_str(), real) == nullptr) return p;
  return std::string(real) == "/" ? "/" + name : fmt::format("{}/{}", real, name);
}

std::vector<MountLine> nacre_mounts() {
  std::vector<MountLine> out;
  std::ifstream f("/proc/self/mountinfo");
  MountLine m;
  for (std::string line; std::getline(f, line);)
    if (parse_mount_line(line, m) && m.type == kType) out.push_back(m);
  return out;
}

bool is_dead_mount(const std::string& point) {
  MountLine m;
  struct stat st;
  return top_mount(point, m) && m.type == kType && ::stat(point.c_str(), &st) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

Result<std::string> prepare_point(const std::string& path) {
  const std::string point = absolute_point(path);
  MountLine m;
  struct stat st;
  for (int i = 0; i < kMaxStacked; ++i) {
    if (::stat(point.c_str(), &st) == 0 || (errno != ENOTCONN && errno != ECONNABORTED)) break;
    if (!top_mount(point, m) || m.type != kType) return Err(Errc::kBusy, fmt::format("{} is a dead mount of something else than Nacre; unmount it first", point));
    if (::umount2(point.c_str(), MNT_DETACH) != 0) return Err(from_errno(errno), fmt::format("{} is a dead mount that can't be removed: {}", point, std::strerror(errno)));
  }
  if (::stat(point.c_str(), &st) != 0) return Err(from_errno(errno), fmt::format("the mount point {} can't be used: {}", point, std::strerror(errno)));
  if (!S_ISDIR(st.st_mode)) return Err(Errc::kNotDir, fmt::format("the mount point {} is not a directory", point));
  if (top_mount(point, m) && m.type == kType) return Err(Errc::kBusy, fmt::format("{} is already mounted on {}", m.source, point));
  return point;
}

std::string default_log(const std::string& run_dir, const std::string& mount_point) {
  std::string name = "client";
  for (char c : mount_point) name.push_back(c == '/' ? '-' : c);
  for (const std::string& dir : {run_dir, std::string("/var/log/nacre")})
    if (!dir.empty() && ::access(dir.c_str(), W_OK) == 0) return fmt::format("{}/{}.log", dir, name);
  return {};
}

}  // namespace nacre::mount
