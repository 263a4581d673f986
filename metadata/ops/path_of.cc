// SPDX-License-Identifier: Apache-2.0
// path_of: the names of an inode as paths from the root. A caller learns only what he could find by himself: he must be able to
// search every directory on the way, and to read it unless what it names is his own.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {
constexpr uint32_t kMaxPaths = 1024;
constexpr size_t kMaxPath = 64 * 1024;      // bytes

struct Name { uint64_t parent; std::string name; };

Result<bool> may_see(OpContext& ctx, const schema::InodeRecordT& dir, bool own_child) {
  auto ok = check_access(ctx, dir, own_child ? kMayExec : kMayExec | kMayRead);
  if (ok) return true;
  if (ok.error().code == Errc::kAccess) return false;
  return std::unexpected(std::move(ok).error());
}

/// nullopt: not for this caller's eyes, or the tree moved away beneath us.
Result<std::optional<std::string>> walk_up(OpContext& ctx, Name at, bool own) {
  std::string path;
  for (int depth = 0; depth < kMaxDirectoryDepth; ++depth) {
    path.insert(0, "/" + at.name);
    if (path.size() > kMaxPath) return Err(Errc::kNameTooLong);
    NACRE_TRY(auto dir, ctx.view().inode(Ino(at.parent)));
    if (!dir || !is_dir(*dir) || dir->nlink == 0) return std::optional<std::string>();
    NACRE_TRY(bool visible, may_see(ctx, *dir, own));
    if (!visible) return std::optional<std::string>();
    if (dir->ino == kRootIno.v) return std::optional(std::move(path));
    own = dir->uid == ctx.cred().uid;
    at = {dir->parent, std::string(as_text(dir->name))};
  }
  return Err(Errc::kCorrupt, "a directory's parents don't end at the root; `nacre fsck` looks into it");
}

Result<std::vector<Name>> names_of(OpContext& ctx, const schema::InodeRecordT& r, size_t most) {
  std::vector<Name> names;
  if (r.nlink == 0) return names;
  names.push_back({r.parent, std::string(as_text(r.name))});
  if (is_dir(r) || r.nlink == 1) return names;
  NACRE_CHECK_OK(ctx.view().scan(Family::kLink, link_prefix(Ino(r.ino)), prefix_end(link_prefix(Ino(r.ino))), [&](std::string_view key, std::string_view) {
    if (auto link = parse_link_key(key)) names.push_back({link->parent.v, std::string(link->name)});
    return names.size() < most;
  }));
  return names;
}

}  // namespace

Result<wire::PathOfReplyT> path_of(OpContext& ctx, const wire::PathOfRequestT& q) {
  NACRE_TRY(auto r, ctx.inode(Ino(q.ino), Errc::kNoEnt));
  wire::PathOfReplyT reply;
  reply.fileset = r.fileset;
  if (r.ino == kRootIno.v) {
    reply.paths.push_back("/");
    return reply;
  }
  size_t most = std::clamp(q.max_paths, 1u, kMaxPaths);
  NACRE_TRY(auto names, names_of(ctx, r, most));
  for (auto& name : names) {
    NACRE_TRY(auto path, walk_up(ctx, std::move(name), r.uid == ctx.cred().uid));
    if (path) reply.paths.push_back(std::move(*path));
    if (reply.paths.size() == most) break;
  }
  if (reply.paths.empty() && !names.empty()) return Err(Errc::kAccess);
  return reply;
}

}  // namespace nacre::mds::ops
