// SPDX-License-Identifier: Apache-2.0
// Operations on attributes: modes, owners, times, access checks, statvfs. `save`/`later`/`same` compare with remembered values.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/posix/context.h"

namespace nacre::posix {
namespace {

std::string fields_of(const struct stat& st, const std::string& list) {
  std::string out;
  for (size_t begin = 0; begin < list.size();) {
    auto end = std::min(list.find(',', begin), list.size());
    out += (out.empty() ? "" : " ") + field_of(st, list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

Outcome op_stat(Context& context, const Words& words) {
  struct stat st{};
  if (stat(context.path(words[0]).c_str(), &st) != 0) return failed();
  return read_value(words.size() > 1 ? fields_of(st, words[1]) : "");
}

Outcome op_lstat(Context& context, const Words& words) {
  struct stat st{};
  if (lstat(context.path(words[0]).c_str(), &st) != 0) return failed();
  return read_value(words.size() > 1 ? fields_of(st, words[1]) : "");
}

Outcome op_fstat(Context& context, const Words& words) {
  struct stat st{};
  if (fstat(context.descriptor(words[0]), &st) != 0) return failed();
  return read_value(fields_of(st, words[1]));
}

// save NAME PATH FIELD
Outcome op_save(Context& context, const Words& words) {
  struct stat st{};
  if (lstat(context.path(words[1]).c_str(), &st) != 0) return failed();
  context.saved[words[0]] = field_of(st, words[2]);
  return {};
}

Outcome compare_saved(Context& context, const Words& words, bool wants_later) {
  struct stat st{};
  if (lstat(context.path(words[0]).c_str(), &st) != 0) return failed();
  auto now = field_of(st, words[1]);
  auto before = context.saved.find(words[2]);
  if (before == context.saved.end()) throw TableError("nothing saved under " + words[2]);
  bool holds = wants_later ? std::stod(now) > std::stod(before->second) || now > before->second : now == before->second;
  return read_value(holds ? "yes" : fmt::format("now {}, before {}", now, before->second));
}

Outcome op_later(Context& context, const Words& words) { return compare_saved(context, words, true); }
Outcome op_same(Context& context, const Words& words) { return compare_saved(context, words, false); }

Outcome op_chmod(Context& context, const Words& words) {
  return plain(chmod(context.path(words[0]).c_str(), static_cast<mode_t>(number(words[1]))));
}
Outcome op_fchmod(Context& context, const Words& words) {
  return plain(fchmod(context.descriptor(words[0]), static_cast<mode_t>(number(words[1]))));
}

uid_t id_or_keep(const std::string& word) { return word == "-" ? static_cast<uid_t>(-1) : static_cast<uid_t>(number(word)); }

// chown PATH UID GID; "-" keeps
Outcome op_chown(Context& context, const Words& words) {
  return plain(chown(context.path(words[0]).c_str(), id_or_keep(words[1]), id_or_keep(words[2])));
}
Outcome op_lchown(Context& context, const Words& words) {
  return plain(lchown(context.path(words[0]).c_str(), id_or_keep(words[1]), id_or_keep(words[2])));
}
Outcome op_fchown(Context& context, const Words& words) {
  return plain(fchown(context.descriptor(words[0]), id_or_keep(words[1]), id_or_keep(words[2])));
}

// "now", "omit", "bad", or SECONDS[.NANOSECONDS with 9 digits]
timespec time_of(const std::string& word) {
  if (word == "now") return {0, UTIME_NOW};
  if (word == "omit") return {0, UTIME_OMIT};
  if (word == "bad") return {0, 1'000'000'000};
  auto dot = word.find('.');
  timespec t{static_cast<time_t>(number(word.substr(0, dot))), 0};
  if (dot != std::string::npos) t.tv_nsec = std::stol(word.substr(dot + 1));
  return t;
}

// utime PATH ATIME MTIME; lutime the same on the link itself; futime FD …
Outcome op_utime(Context& context, const Words& words) {
  timespec times[2] = {time_of(words[1]), time_of(words[2])};
  return plain(utimensat(AT_FDCWD, context.path(words[0]).c_str(), times, 0));
}
Outcome op_lutime(Context& context, const Words& words) {
  timespec times[2] = {time_of(words[1]), time_of(words[2])};
  return plain(utimensat(AT_FDCWD, context.path(words[0]).c_str(), times, AT_SYMLINK_NOFOLLOW));
}
Outcome op_futime(Context& context, const Words& words) {
  timespec times[2] = {time_of(words[1]), time_of(words[2])};
  return plain(futimens(context.descriptor(words[0]), times));
}
Outcome op_touch(Context& context, const Words& words) { return plain(utimensat(AT_FDCWD, context.path(words[0]).c_str(), nullptr, 0)); }

// recent PATH FIELD -> yes if the time is within a minute of now
Outcome op_recent(Context& context, const Words& words) {
  constexpr double kMinute = 60;
  struct stat st{};
  if (lstat(context.path(words[0]).c_str(), &st) != 0) return failed();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  auto away = static_cast<double>(now.tv_sec) - std::stod(field_of(st, words[1]));
  return read_value(away < kMinute && away > -kMinute ? "yes" : fmt::format("{} s away", away));
}

// access PATH rwxf: by the real ids, as programs ask
Outcome op_access(Context& context, const Words& words) {
  int how = F_OK;
  if (words[1].find('r') != std::string::npos) how |= R_OK;
  if (words[1].find('w') != std::string::npos) how |= W_OK;
  if (words[1].find('x') != std::string::npos) how |= X_OK;
  return plain(access(context.path(words[0]).c_str(), how));
}

Outcome op_umask(Context&, const Words& words) {
  umask(static_cast<mode_t>(number(words[0])));
  return {};
}

// statvfs PATH namemax|sane: sane = free ≤ total, available ≤ free, block size a power of two
Outcome op_statvfs(Context& context, const Words& words) {
  struct statvfs vfs{};
  if (statvfs(context.path(words[0]).c_str(), &vfs) != 0) return failed();
  if (words[1] == "namemax") return read_value(std::to_string(vfs.f_namemax));
  bool sane = vfs.f_bfree <= vfs.f_blocks && vfs.f_bavail <= vfs.f_bfree && vfs.f_blocks > 0 && vfs.f_ffree <= vfs.f_files && vfs.f_bsize > 0 &&
              (vfs.f_bsize & (vfs.f_bsize - 1)) == 0;
  return read_value(sane ? "yes" : fmt::format("blocks {} free {} available {} files {} ffree {} bsize {}", vfs.f_blocks, vfs.f_bfree, vfs.f_bavail, vfs.f_files,
                                               vfs.f_ffree, vfs.f_bsize));
}

// pathconf PATH name|links|path
Outcome op_pathconf(Context& context, const Words& words) {
  auto what = words[1] == "links" ? _PC_LINK_MAX : words[1] == "path" ? _PC_PATH_MAX : _PC_NAME_MAX;
  return read_value(std::to_string(pathconf(context.path(words[0]).c_str(), what)));
}

constexpr Op kAttributesOps[] = {
    {"stat", 1, 2, true, op_stat},        {"lstat", 1, 2, true, op_lstat},     {"fstat", 2, 2, false, op_fstat},     {"save", 3, 3, false, op_save},
    {"later", 3, 3, true, op_later},      {"same", 3, 3, true, op_same},       {"chmod", 2, 2, false, op_chmod},     {"fchmod", 2, 2, false, op_fchmod},
    {"chown", 3, 3, false, op_chown},     {"lchown", 3, 3, false, op_lchown},  {"fchown", 3, 3, false, op_fchown},   {"utime", 3, 3, false, op_utime},
    {"lutime", 3, 3, false, op_lutime},   {"futime", 3, 3, false, op_futime},  {"touch", 1, 1, false, op_touch},     {"recent", 2, 2, true, op_recent},
    {"access", 2, 2, true, op_access},    {"umask", 1, 1, false, op_umask},    {"statvfs", 2, 2, true, op_statvfs},  {"pathconf", 2, 2, true, op_pathconf},
};

}  // namespace

std::span<const Op> attribute_ops() { return kAttributesOps; }

}  // namespace nacre::posix
