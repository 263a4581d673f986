// SPDX-License-Identifier: Apache-2.0
// Identities, descriptors, numbers and printing for the POSIX suite.
#include "tests/posix/context.h"

#include <grp.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace nacre::posix {
namespace {

constexpr gid_t kSharedGroup = 30001;  // alice and bob are in it, carol is not

std::vector<gid_t> gid_list(const std::string& text) {
  std::vector<gid_t> out;
  for (size_t begin = 0; begin < text.size();) {
    auto end = std::min(text.find(',', begin), text.size());
    auto item = text.substr(begin, end - begin);
    auto dash = item.find('-');
    if (dash == std::string::npos) {
      out.push_back(static_cast<gid_t>(number(item)));
    } else {
      for (auto g = number(item.substr(0, dash)); g <= number(item.substr(dash + 1)); ++g) out.push_back(static_cast<gid_t>(g));
    }
    begin = end + 1;
  }
  return out;
}

void must(int rc, const char* what) {
  if (rc != 0) throw TableError(fmt::format("{}: {} (the suite runs as root)", what, std::strerror(errno)));
}

struct FlagName {
  const char* name;
  int value;
};
constexpr FlagName kFlags[] = {
    {"O_RDONLY", O_RDONLY}, {"O_WRONLY", O_WRONLY},       {"O_RDWR", O_RDWR},         {"O_CREAT", O_CREAT},         {"O_EXCL", O_EXCL},
    {"O_TRUNC", O_TRUNC},   {"O_APPEND", O_APPEND},       {"O_NONBLOCK", O_NONBLOCK}, {"O_NOFOLLOW", O_NOFOLLOW},   {"O_DIRECTORY", O_DIRECTORY},
    {"O_DIRECT", O_DIRECT}, {"O_SYNC", O_SYNC},           {"O_DSYNC", O_DSYNC},       {"O_NOATIME", O_NOATIME},     {"O_PATH", O_PATH},
    {"O_TMPFILE", O_TMPFILE}, {"O_CLOEXEC", O_CLOEXEC},
};

std::string time_text(const timespec& t) { return fmt::format("{}.{:09}", static_cast<long long>(t.tv_sec), t.tv_nsec); }

const char* type_name(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "dir";
    case S_IFLNK: return "symlink";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "sock";
    case S_IFBLK: return "blk";
    case S_IFCHR: return "chr";
    default: return "unknown";
  }
}

}  // namespace

Identity identity_of(const std::string& who) {
  if (who.empty() || who == "root") return {0, 0, {}};
  if (who == "alice") return {20001, 20001, {20001, kSharedGroup}};
  if (who == "bob") return {20002, 20002, {20002, kSharedGroup}};
  if (who == "carol") return {20003, 20003, {}};
  auto colon = who.find(':');
  if (colon == std::string::npos) throw TableError("no such identity: " + who);
  auto second = who.find(':', colon + 1);
  Identity id;
  id.uid = static_cast<uid_t>(number(who.substr(0, colon)));
  id.gid = static_cast<gid_t>(number(who.substr(colon + 1, second == std::string::npos ? second : second - colon - 1)));
  if (second != std::string::npos) id.groups = gid_list(who.substr(second + 1));
  return id;
}

ActAs::ActAs(const std::string& who) : active_(!who.empty() && who != "root") {
  if (!active_) return;
  auto id = identity_of(who);
  must(setgroups(id.groups.size(), id.groups.data()), "setgroups");
  must(setresgid(id.gid, id.gid, 0), "setresgid");
  must(setresuid(id.uid, id.uid, 0), "setresuid");
}

ActAs::~ActAs() {
  if (!active_) return;
  if (setresuid(0, 0, 0) != 0 || setresgid(0, 0, 0) != 0 || setgroups(0, nullptr) != 0) std::abort();  // everything after would be judged wrongly
}

std::string Context::path(const std::string& word) const {
  if (word.starts_with("2:")) return second_ + "/" + word.substr(2);
  if (word.starts_with("1:")) return first_ + "/" + word.substr(2);
  if (through_second_ && !word.starts_with('/')) return second_ + "/" + word;
  return word;
}

int Context::descriptor(const std::string& name) const {
  auto it = descriptors_.find(name);
  if (it == descriptors_.end()) throw TableError("no open descriptor named " + name);
  return it->second;
}

void Context::keep_descriptor(const std::string& name, int fd) {
  auto [it, added] = descriptors_.emplace(name, fd);
  if (!added) {
    close(fd);
    throw TableError("descriptor name used twice: " + name);
  }
}

int Context::forget_descriptor(const std::string& name) {
  int fd = descriptor(name);
  descriptors_.erase(name);
  return fd;
}

void Context::close_all() {
  for (const auto& [name, fd] : descriptors_) close(fd);
  descriptors_.clear();
}

long long number(const std::string& word) {
  char* end = nullptr;
  errno = 0;
  long long value = std::strtoll(word.c_str(), &end, 0);
  switch (*end) {
    case 'K': value <<= 10; ++end; break;
    case 'M': value <<= 20; ++end; break;
    case 'G': value <<= 30; ++end; break;
    case 'T': value <<= 40; ++end; break;
    default: break;
  }
  if (end == word.c_str() || *end != '\0' || errno != 0) throw TableError("no number: " + word);
  return value;
}

int flags_of(const std::string& word) {
  int flags = 0;
  for (size_t begin = 0; begin < word.size();) {
    auto end = std::min(word.find_first_of(",+", begin), word.size());
    auto name = word.substr(begin, end - begin);
    bool found = false;
    for (const auto& flag : kFlags) {
      if (name != flag.name) continue;
      flags |= flag.value;
      found = true;
    }
    if (!found) throw TableError("no open flag: " + name);
    begin = end + 1;
  }
  return flags;
}

std::string error_name(int error) {
  const char* name = strerrorname_np(error);
  return name ? name : std::to_string(error);
}

std::string compact(const std::string& value) {
  constexpr size_t kRun = 6, kLongest = 240;  // a shorter run is printed as it is; a longer text is cut
  std::string out;
  for (size_t i = 0; i < value.size();) {
    size_t same = 1;
    while (i + same < value.size() && value[i + same] == value[i]) ++same;
    auto byte = static_cast<unsigned char>(value[i]);
    auto shown = byte < 32 || byte == 127 ? (byte == 0 ? std::string("\\0") : fmt::format("\\x{:02x}", byte)) : std::string(1, value[i]);
    if (same > kRun) {
      out += fmt::format("<{}*{}>", shown, same);
      i += same;
    } else {
      out += shown;
      ++i;
    }
    if (out.size() > kLongest) return out + "…";
  }
  return out;
}

std::string field_of(const struct stat& st, const std::string& field) {
  if (field == "type") return type_name(st.st_mode);
  if (field == "mode") return fmt::format("{:04o}", st.st_mode & 07777);
  if (field == "uid") return std::to_string(st.st_uid);
  if (field == "gid") return std::to_string(st.st_gid);
  if (field == "nlink") return std::to_string(st.st_nlink);
  if (field == "size") return std::to_string(st.st_size);
  if (field == "blocks") return std::to_string(st.st_blocks);
  if (field == "ino") return std::to_string(st.st_ino);
  if (field == "rdev") return fmt::format("{},{}", major(st.st_rdev), minor(st.st_rdev));
  if (field == "atime") return time_text(st.st_atim);
  if (field == "mtime") return time_text(st.st_mtim);
  if (field == "ctime") return time_text(st.st_ctim);
  throw TableError("no stat field: " + field);
}

bool read_all(int fd, std::string& out) {
  constexpr size_t kPiece = 1 << 20;
  std::string piece(kPiece, '\0');
  for (;;) {
    auto n = read(fd, piece.data(), piece.size());
    if (n < 0) return false;
    if (n == 0) return true;
    out.append(piece, 0, static_cast<size_t>(n));
  }
}

}  // namespace nacre::posix
