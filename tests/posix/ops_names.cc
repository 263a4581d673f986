// SPDX-License-Identifier: Apache-2.0
// Operations on names: creating, linking, renaming, removing and listing. Paths are relative to the row's directory.
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "tests/posix/context.h"

namespace nacre::posix {
namespace {

mode_t mode_of(const Words& words, size_t index, mode_t otherwise) {
  return index < words.size() ? static_cast<mode_t>(number(words[index])) : otherwise;
}

Outcome open_and_keep(Context& context, int fd, const Words& words, size_t index) {
  if (fd < 0) return failed();
  if (index + 1 < words.size() && words[index] == "as") {
    context.keep_descriptor(words[index + 1], fd);
    return {};
  }
  return plain(close(fd));
}

Outcome op_create(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  return open_and_keep(context, open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode_of(words, 1, 0644)), words, words.size());
}

// open PATH FLAGS [MODE] [as NAME]
Outcome op_open(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  bool has_mode = words.size() > 2 && words[2] != "as";
  int fd = open(path.c_str(), flags_of(words[1]) | O_CLOEXEC, has_mode ? mode_of(words, 2, 0) : 0644);
  return open_and_keep(context, fd, words, has_mode ? 3 : 2);
}

// openat DIRFD PATH FLAGS [MODE] [as NAME]
Outcome op_openat(Context& context, const Words& words) {
  bool has_mode = words.size() > 3 && words[3] != "as";
  int fd = openat(context.descriptor(words[0]), words[1].c_str(), flags_of(words[2]) | O_CLOEXEC, has_mode ? mode_of(words, 3, 0) : 0644);
  return open_and_keep(context, fd, words, has_mode ? 4 : 3);
}

Outcome op_close(Context& context, const Words& words) { return plain(close(context.forget_descriptor(words[0]))); }

Outcome op_mkdir(Context& context, const Words& words) { return plain(mkdir(context.path(words[0]).c_str(), mode_of(words, 1, 0755))); }
Outcome op_rmdir(Context& context, const Words& words) { return plain(rmdir(context.path(words[0]).c_str())); }
Outcome op_unlink(Context& context, const Words& words) { return plain(unlink(context.path(words[0]).c_str())); }
Outcome op_chdir(Context& context, const Words& words) { return plain(chdir(context.path(words[0]).c_str())); }

Outcome op_unlinkat(Context& context, const Words& words) {
  return plain(unlinkat(context.descriptor(words[0]), words[1].c_str(), words.size() > 2 && words[2] == "dir" ? AT_REMOVEDIR : 0));
}

Outcome op_rename(Context& context, const Words& words) {
  return plain(rename(context.path(words[0]).c_str(), context.path(words[1]).c_str()));
}

// rename2 A B noreplace|exchange|…
Outcome op_rename2(Context& context, const Words& words) {
  unsigned flags = 0;
  if (words[2].find("noreplace") != std::string::npos) flags |= RENAME_NOREPLACE;
  if (words[2].find("exchange") != std::string::npos) flags |= RENAME_EXCHANGE;
  if (words[2] == "unknown") flags = 1U << 20;
  return plain(renameat2(AT_FDCWD, context.path(words[0]).c_str(), AT_FDCWD, context.path(words[1]).c_str(), flags));
}

Outcome op_link(Context& context, const Words& words) {
  return plain(link(context.path(words[0]).c_str(), context.path(words[1]).c_str()));
}

// linkat A B follow; linkfd FD B gives an open file a (further) name
Outcome op_linkat(Context& context, const Words& words) {
  return plain(linkat(AT_FDCWD, context.path(words[0]).c_str(), AT_FDCWD, context.path(words[1]).c_str(), AT_SYMLINK_FOLLOW));
}

Outcome op_linkfd(Context& context, const Words& words) {
  auto source = fmt::format("/proc/self/fd/{}", context.descriptor(words[0]));
  return plain(linkat(AT_FDCWD, source.c_str(), AT_FDCWD, context.path(words[1]).c_str(), AT_SYMLINK_FOLLOW));
}

Outcome op_symlink(Context& context, const Words& words) { return plain(symlink(words[0].c_str(), context.path(words[1]).c_str())); }

Outcome op_readlink(Context& context, const Words& words) {
  char target[8192];  // twice the longest target, so that a longer answer is seen
  auto n = readlink(context.path(words[0]).c_str(), target, sizeof target);
  return n < 0 ? failed() : read_value(std::string(target, static_cast<size_t>(n)));
}

Outcome bind_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {ENAMETOOLONG, {}};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed();
  auto outcome = plain(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address));
  close(fd);
  return outcome;
}

// mknod PATH file|fifo|sock|blk|chr MODE [MAJOR,MINOR]
Outcome op_mknod(Context& context, const Words& words) {
  const auto& kind = words[1];
  mode_t type = kind == "fifo" ? S_IFIFO : kind == "sock" ? S_IFSOCK : kind == "blk" ? S_IFBLK : kind == "chr" ? S_IFCHR : kind == "dir" ? S_IFDIR : S_IFREG;
  dev_t device = 0;
  if (words.size() > 3) {
    auto comma = words[3].find(',');
    device = makedev(static_cast<unsigned>(number(words[3].substr(0, comma))), static_cast<unsigned>(number(words[3].substr(comma + 1))));
  }
  return plain(mknod(context.path(words[0]).c_str(), type | mode_of(words, 2, 0644), device));
}

// make TYPE PATH [MODE]: an object of that type by the call a program would use
Outcome op_make(Context& context, const Words& words) {
  auto path = context.path(words[1]);
  auto mode = mode_of(words, 2, words[0] == "dir" ? 0755 : 0644);
  if (words[0] == "file") return op_create(context, words.size() > 2 ? Words{words[1], words[2]} : Words{words[1]});
  if (words[0] == "dir") return plain(mkdir(path.c_str(), mode));
  if (words[0] == "symlink") return plain(symlink("target", path.c_str()));
  if (words[0] == "fifo") return plain(mkfifo(path.c_str(), mode));
  if (words[0] == "sock") {
    auto outcome = bind_socket(path);
    if (outcome.error != 0 || words.size() < 3) return outcome;
    return plain(chmod(path.c_str(), mode));
  }
  if (words[0] == "blk") return plain(mknod(path.c_str(), S_IFBLK | mode, makedev(1, 2)));
  if (words[0] == "chr") return plain(mknod(path.c_str(), S_IFCHR | mode, makedev(1, 2)));
  throw TableError("no such type of object: " + words[0]);
}

// fill DIR COUNT: files 0 … COUNT-1
Outcome op_fill(Context& context, const Words& words) {
  auto directory = context.path(words[0]);
  for (long long i = 0; i < number(words[1]); ++i) {
    int fd = open(fmt::format("{}/{}", directory, i).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return failed();
    close(fd);
  }
  return {};
}

Outcome list(Context& context, const std::string& word, std::vector<std::pair<std::string, unsigned char>>& out) {
  DIR* directory = opendir(context.path(word).c_str());
  if (directory == nullptr) return failed();
  errno = 0;
  while (auto* entry = readdir(directory)) out.emplace_back(entry->d_name, entry->d_type);
  auto outcome = errno != 0 ? failed() : Outcome{};
  closedir(directory);
  std::sort(out.begin(), out.end());
  return outcome;
}

// dir PATH -> the names without . and .., sorted
Outcome op_dir(Context& context, const Words& words) {
  std::vector<std::pair<std::string, unsigned char>> entries;
  auto outcome = list(context, words[0], entries);
  for (const auto& [name, type] : entries) {
    if (name != "." && name != "..") outcome.value += (outcome.value.empty() ? "" : " ") + name;
  }
  return outcome;
}

// count PATH -> number of entries with . and ..
Outcome op_count(Context& context, const Words& words) {
  std::vector<std::pair<std::string, unsigned char>> entries;
  auto outcome = list(context, words[0], entries);
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  return outcome.error != 0 ? outcome : read_value(std::to_string(entries.size()));
}

// dtype DIR NAME -> d_type of the entry
Outcome op_dtype(Context& context, const Words& words) {
  std::vector<std::pair<std::string, unsigned char>> entries;
  auto outcome = list(context, words[0], entries);
  for (const auto& [name, type] : entries) {
    if (name != words[1]) continue;
    constexpr const char* kNames[] = {"unknown", "fifo", "chr", "", "dir", "", "blk", "", "file", "", "symlink", "", "sock"};
    return read_value(type < std::size(kNames) ? kNames[type] : "unknown");
  }
  return outcome.error != 0 ? outcome : Outcome{ENOENT, {}};
}

// dino DIR NAME -> "same" if d_ino of the entry is the st_ino of the object
Outcome op_dino(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return failed();
  ino_t listed = 0;
  while (auto* entry = readdir(directory)) {
    if (words[1] == entry->d_name) listed = entry->d_ino;
  }
  closedir(directory);
  struct stat st{};
  if (lstat((path + "/" + words[1]).c_str(), &st) != 0) return failed();
  return read_value(listed == st.st_ino ? "same" : fmt::format("d_ino {} st_ino {}", listed, st.st_ino));
}

constexpr Op kNamesOps[] = {
    {"create", 1, 2, false, op_create},   {"open", 2, 5, false, op_open},         {"openat", 3, 6, false, op_openat},
    {"close", 1, 1, false, op_close},     {"mkdir", 1, 2, false, op_mkdir},       {"rmdir", 1, 1, false, op_rmdir},
    {"unlink", 1, 1, false, op_unlink},   {"unlinkat", 2, 3, false, op_unlinkat}, {"rename", 2, 2, false, op_rename},
    {"rename2", 3, 3, false, op_rename2}, {"link", 2, 2, false, op_link},         {"linkat", 2, 2, false, op_linkat},
    {"linkfd", 2, 2, false, op_linkfd},   {"symlink", 2, 2, false, op_symlink},   {"readlink", 1, 1, true, op_readlink},
    {"mknod", 3, 4, false, op_mknod},     {"make", 2, 3, false, op_make},         {"fill", 2, 2, false, op_fill},
    {"dir", 1, 1, true, op_dir},          {"count", 1, 1, true, op_count},        {"dtype", 2, 2, true, op_dtype},
    {"dino", 2, 2, true, op_dino},        {"chdir", 1, 1, false, op_chdir},
};

}  // namespace

std::span<const Op> name_ops() { return kNamesOps; }

}  // namespace nacre::posix
