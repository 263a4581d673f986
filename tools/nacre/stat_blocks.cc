// SPDX-License-Identifier: Apache-2.0
// `nacre stat --blocks`: which target holds which bytes of a file. Holes are what lseek(2) says they are.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/layout/layout.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
constexpr uint64_t kWindow = 64 * MiB;  ///< of the file at once: bounds the pieces of the narrowest stripes

struct Extent {
  ObjectId object;
  uint32_t ost = 0;
  uint64_t offset = 0, object_offset = 0, length = 0;
};

struct Handle {
  explicit Handle(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)) {}
  ~Handle() { if (fd >= 0) ::close(fd); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  const int fd;
};

/// Adds the pieces of [from, to); what goes on in the same object is one extent.
Result<void> add(std::vector<Extent>& out, const schema::LayoutT& layout, uint64_t ino, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; at += kWindow) {
    NACRE_TRY(auto pieces, layout::split(layout, at, std::min(kWindow, to - at), kWindow));
    for (const auto& p : pieces) {
      const ObjectId object{Ino(ino), Generation(layout.generation), p.component, p.stripe};
      Extent* last = out.empty() ? nullptr : &out.back();
      if (last && last->object == object && last->offset + last->length == p.file_offset && last->object_offset + last->length == p.object_offset) last->length += p.length;
      else out.push_back({object, p.ost.v, p.file_offset, p.object_offset, p.length});
    }
  }
  return {};
}

Result<std::vector<Extent>> extents_of(const std::string& path) {
  Handle file(path);
  if (file.fd < 0) return Err(from_errno(errno), std::strerror(errno));
  struct stat st;
  if (::fstat(file.fd, &st) != 0) return Err(from_errno(errno), std::strerror(errno));
  if (!S_ISREG(st.st_mode)) return Err(Errc::kInval, "only plain files have data on storage targets");
  NACRE_TRY(auto connection, connect_mount(path));
  wire::LayoutGetRequestT request;
  request.ino = st.st_ino;
  NACRE_TRY(auto reply, connection->call<rpc::Method::kLayoutGet>(request));
  std::vector<Extent> out;
  if (!reply.layout) return out;
  for (off_t at = 0;;) {
    const off_t data = ::lseek(file.fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return out;
    const off_t end = data < 0 ? -1 : ::lseek(file.fd, data, SEEK_HOLE);
    if (end < 0) return Err(from_errno(errno), std::strerror(errno));
    NACRE_CHECK_OK(add(out, *reply.layout, st.st_ino, static_cast<uint64_t>(data), static_cast<uint64_t>(end)));
    at = end;
  }
}
}  // namespace

int stat_blocks(const PathArgs& o) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& path : o.paths) {
    auto found = extents_of(path);
    if (!found) return complain(Error(found.error().code, fmt::format("{}: {}", path, found.error().detail)));
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    Table table({"TARGET", "OBJECT", "OFFSET", "IN OBJECT", "LENGTH"}, {2, 3, 4});
    for (const auto& e : *found) {
      list.push_back({{"target", fmt::format("ost{}", e.ost)}, {"object", fmt::format("{}", e.object)}, {"offset", e.offset}, {"object_offset", e.object_offset}, {"length", e.length}});
      table.row({fmt::format("ost{}", e.ost), fmt::format("{}", e.object), std::to_string(e.offset), std::to_string(e.object_offset), std::to_string(e.length)});
    }
    files.push_back({{"path", path}, {"extents", list}});
    if (o.common.json) continue;
    fmt::print("{}\n", path);
    table.print();
  }
  if (o.common.json) print_json({{"files", files}});
  return kOk;
}

}  // namespace nacre::cli
