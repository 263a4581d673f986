// SPDX-License-Identifier: Apache-2.0
// See findings.h.
#include "metadata/check/findings.h"

namespace nacre::mds::check {

Problem make(std::string_view kind, Ino ino, bool repairable, std::string detail) {
  Problem p;
  p.kind = kind;
  p.ino = ino.v;
  p.repairable = repairable;
  p.detail = std::move(detail);
  return p;
}

Problem make(std::string_view kind, Ino ino, uint64_t expected, uint64_t found, std::string detail) {
  Problem p = make(kind, ino, true, std::move(detail));
  p.expected = expected;
  p.found = found;
  return p;
}

void set_object(Problem& problem, OstId ost, const ObjectId& object) {
  problem.ost = static_cast<int32_t>(ost.v);
  problem.object = std::make_unique<schema::ObjectRef>(to_ref(object));
}

Result<std::string> path_of(const View& view, Ino parent, std::string_view name) {
  std::string path = "/" + std::string(name);
  Ino at = parent;
  for (int depth = 0; at != kRootIno; ++depth) {
    auto dir = view.inode(at);
    if (!dir && !is_damage(dir.error())) return std::unexpected(std::move(dir).error());
    if (!dir || !*dir || !is_dir(**dir) || (*dir)->nlink == 0 || depth == kMaxDirectoryDepth || path.size() > kMaxToldPath) {
      path.insert(0, "…");
      break;
    }
    path.insert(0, "/" + std::string(as_text((*dir)->name)));
    at = Ino((*dir)->parent);
  }
  if (path.size() > kMaxToldPath) path = "…" + path.substr(path.size() - kMaxToldPath + 8);
  return path;
}

Result<std::string> path_of(const View& view, const schema::InodeRecordT& record) {
  if (record.ino == kRootIno.v) return std::string("/");
  if (record.name.empty()) return std::string();
  return path_of(view, Ino(record.parent), as_text(record.name));
}

Result<void> add_paths(const View& view, std::vector<Problem>& problems) {
  for (Problem& p : problems) {
    if (!p.path.empty() || p.ino == 0) continue;
    auto record = view.inode(Ino(p.ino));
    if (!record && !is_damage(record.error())) return std::unexpected(std::move(record).error());
    if (!record || !*record) continue;
    NACRE_TRY(std::string path, path_of(view, **record));
    p.path = as_bytes(path);
  }
  return {};
}

std::string quoted(std::string_view name) {
  std::string out = "'";
  for (char c : name.substr(0, 255)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else out += c;
  }
  return out + "'";
}

}  // namespace nacre::mds::check
