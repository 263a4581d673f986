// SPDX-License-Identifier: Apache-2.0
// `nacre stat`: what stat(1) knows and what only Nacre knows: content_time, fileset, layout generation, objects.
#include <sys/stat.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/units.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
struct Facts { wire::AttrT attr; schema::LayoutT layout; std::vector<std::string> paths; };

Result<Facts> facts_of(const std::string& path) {
  NACRE_TRY(auto connection, connect_mount(path));
  NACRE_TRY(uint64_t ino, inode_of(path));
  Facts f;
  wire::LayoutGetRequestT layout;
  layout.ino = ino;
  NACRE_TRY(auto reply, connection->call<rpc::Method::kLayoutGet>(layout));
  if (!reply.attr) return Err(Errc::kProtocol, fmt::format("the attributes of {} are missing in the server's answer", path));
  f.attr = *reply.attr;
  if (reply.layout) f.layout = *reply.layout;
  wire::PathOfRequestT names;
  names.ino = ino;
  NACRE_TRY(auto paths, connection->call<rpc::Method::kPathOf>(names));
  f.paths = paths.paths;
  return f;
}

const char* kind_of(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "regular file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "symbolic link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFCHR: return "character device";
    case S_IFBLK: return "block device";
    default: return "unknown";
  }
}

nlohmann::ordered_json seconds(int64_t ns) { return static_cast<double>(ns) / static_cast<double>(kSecond); }

nlohmann::ordered_json to_json(const std::string& path, const Facts& f) {
  const auto& a = f.attr;
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
  if (S_ISREG(a.mode))
    for (size_t c = 0; c < f.layout.components.size(); ++c)
      for (size_t s = 0; s < std::min<size_t>(f.layout.components[c]->stripes_used, f.layout.components[c]->osts.size()); ++s)
        objects.push_back({{"object", fmt::format("{}", ObjectId{Ino(a.ino), Generation(f.layout.generation), static_cast<uint16_t>(c), static_cast<uint16_t>(s)})}, {"target", fmt::format("ost{}", f.layout.components[c]->osts[s])}});
  return {{"path", path}, {"ino", a.ino}, {"type", kind_of(a.mode)}, {"mode", fmt::format("{:04o}", a.mode & 07777)}, {"nlink", a.nlink}, {"uid", a.uid}, {"gid", a.gid}, {"size", a.size}, {"allocated", a.allocated},
          {"atime", seconds(a.atime)}, {"mtime", seconds(a.mtime)}, {"ctime", seconds(a.ctime)}, {"btime", seconds(a.btime)}, {"content_time", seconds(a.content_time)}, {"fileset", a.fileset}, {"epoch", a.epoch},
          {"generation", f.layout.generation}, {"paths", f.paths}, {"objects", objects}};
}

void print_text(const std::string& path, const Facts& f) {
  const auto& a = f.attr;
  fmt::print("{}\n  {}  inode {}  links {}  mode {:04o}  uid {}  gid {}\n", path, kind_of(a.mode), a.ino, a.nlink, a.mode & 07777, a.uid, a.gid);
  fmt::print("  size {} ({})  allocated {} ({})\n", a.size, format_size(a.size), a.allocated, format_size(a.allocated));
  fmt::print("  access  {}\n  modify  {}\n  change  {}\n  birth   {}\n  content {}\n", iso_time(a.atime), iso_time(a.mtime), iso_time(a.ctime), iso_time(a.btime), iso_time(a.content_time));
  fmt::print("  fileset {}  epoch {}\n", a.fileset, a.epoch);
  for (const auto& p : f.paths) fmt::print("  name    {}\n", printable(p));
  if (!S_ISREG(a.mode)) return;
  for (size_t c = 0; c < f.layout.components.size(); ++c) {
    const auto& component = *f.layout.components[c];
    for (size_t s = 0; s < std::min<size_t>(component.stripes_used, component.osts.size()); ++s)
      fmt::print("  object  {}  on ost{}\n", ObjectId{Ino(a.ino), Generation(f.layout.generation), static_cast<uint16_t>(c), static_cast<uint16_t>(s)}, component.osts[s]);
  }
}
}  // namespace

int stat(const PathArgs& o) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& path : o.paths) {
    auto f = facts_of(path);
    if (!f) return complain(Error(f.error().code, fmt::format("{}: {}", path, f.error().detail)));
    if (o.common.json) files.push_back(to_json(path, *f));
    else print_text(path, *f);
  }
  if (o.common.json) print_json({{"files", files}});
  return kOk;
}
}  // namespace nacre::cli
