// SPDX-License-Identifier: Apache-2.0
// rename: with NOREPLACE and EXCHANGE. Rules: rename(2), in the order in which Linux checks them. A directory that changes its
// parent holds the fileset's moves lock from the ancestor walk to the commit, so no two moves can make a cycle (two clients'
// kernels don't know of each other's).
#include "metadata/ops/common.h"
#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {

constexpr uint32_t kNoReplace = 1, kExchange = 2;

using Record = schema::InodeRecordT;

/// Everything a rename touches, locked. With one parent, new_dir() is old_dir.
struct Move {
  Ino from, to;
  std::string_view old_name, new_name;
  Record old_dir;
  std::optional<Record> other_dir;
  Record source;
  std::optional<Record> target;
  Record& new_dir() { return other_dir ? *other_dir : old_dir; }
  bool across() const { return other_dir.has_value(); }
};

/// Is `ancestor` the directory `at` or above it?
Result<bool> lies_in(OpContext& ctx, uint64_t at, uint64_t ancestor) {
  for (int depth = 0; depth < kMaxDirectoryDepth; ++depth) {
    if (at == ancestor) return true;
    if (at == kRootIno.v) return false;
    NACRE_TRY(auto dir, ctx.view().inode(Ino(at)));
    if (!dir) return Err(Errc::kStale);
    at = dir->parent;
  }
  return Err(Errc::kCorrupt, "a directory's parents don't end at the root; `nacre fsck` looks into it");
}

Result<Move> load(OpContext& ctx, const wire::RenameRequestT& q) {
  Move m;
  m.from = Ino(q.parent);
  m.to = Ino(q.new_parent);
  m.old_name = as_text(q.name);
  m.new_name = as_text(q.new_name);
  NACRE_CHECK_OK(ctx.lock({m.from, m.to}));
  NACRE_TRY(m.old_dir, ctx.inode(m.from));
  if (m.from != m.to) {
    NACRE_TRY(m.other_dir, ctx.inode(m.to));
  }
  if (!is_dir(m.old_dir) || !is_dir(m.new_dir())) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, m.old_dir, kMayExec));
  NACRE_CHECK_OK(check_access(ctx, m.new_dir(), kMayExec));
  NACRE_TRY(auto source, ctx.dentry(m.from, m.old_name));
  if (!source) return Err(Errc::kNoEnt);
  NACRE_TRY(auto target, ctx.dentry(m.to, m.new_name));
  if (target && q.flags & kNoReplace) return Err(Errc::kExist);
  if (!target && q.flags & kExchange) return Err(Errc::kNoEnt);
  bool any_dir = source->type == schema::FileType::Directory || (target && target->type == schema::FileType::Directory);
  if (m.across() && any_dir) NACRE_CHECK_OK(ctx.lock_moves(FilesetId(m.old_dir.fileset)));
  Ino source_ino(source->ino);
  NACRE_CHECK_OK(target ? ctx.lock({source_ino, Ino(target->ino)}) : ctx.lock({source_ino}));
  NACRE_TRY(m.source, ctx.inode(source_ino, Errc::kCorrupt));
  if (target) {
    NACRE_TRY(m.target, ctx.inode(Ino(target->ino), Errc::kCorrupt));
  }
  return m;
}

Result<void> check_tree(OpContext& ctx, Move& m, bool exchange) {
  if (!m.across()) return {};
  if (is_dir(m.source)) {
    NACRE_TRY(bool inside, lies_in(ctx, m.to.v, m.source.ino));
    if (inside) return Err(Errc::kInval, "a directory can't move into itself");
  }
  if (m.target && is_dir(*m.target)) {
    NACRE_TRY(bool inside, lies_in(ctx, m.from.v, m.target->ino));
    if (inside) return Err(exchange ? Errc::kInval : Errc::kNotEmpty);
  }
  return {};
}

Result<void> check_filesets(const Move& m, const Record& new_dir) {
  if (m.old_dir.fileset != new_dir.fileset) return Err(Errc::kXDev, "the directories lie in different filesets");
  if (m.source.fileset != m.old_dir.fileset || (m.target && m.target->fileset != new_dir.fileset)) return Err(Errc::kXDev, "the root of a fileset stays in its place");
  return {};
}

Result<void> check_rights(OpContext& ctx, Move& m, bool exchange) {
  NACRE_CHECK_OK(check_remove(ctx, m.old_dir, m.source));
  NACRE_CHECK_OK(m.target ? check_remove(ctx, m.new_dir(), *m.target) : check_add(ctx, m.new_dir()));
  if (m.target && !exchange) {
    if (is_dir(m.source) && !is_dir(*m.target)) return Err(Errc::kNotDir);
    if (!is_dir(m.source) && is_dir(*m.target)) return Err(Errc::kIsDir);
  }
  if (m.across()) {  // ".." of a directory that moves is written
    if (is_dir(m.source)) NACRE_CHECK_OK(check_access(ctx, m.source, kMayWrite));
    if (exchange && is_dir(*m.target)) NACRE_CHECK_OK(check_access(ctx, *m.target, kMayWrite));
  }
  if (m.target && !exchange && is_dir(*m.target) && m.target->entries != 0) return Err(Errc::kNotEmpty);
  return {};
}

Result<void> replace(OpContext& ctx, Move& m) {
  Record& to = m.new_dir();
  bool dir = is_dir(m.source);
  if (m.target) {
    to.entries -= 1;
    if (dir) to.subdirs -= 1;
    NACRE_CHECK_OK(is_dir(*m.target) ? drop_dir(ctx, *m.target, true) : drop_name(ctx, *m.target, m.to, m.new_name, true));
  }
  m.old_dir.entries -= 1;
  to.entries += 1;
  if (dir) {
    m.old_dir.subdirs -= 1;
    if (to.subdirs >= kMaxSubdirs) return Err(Errc::kMLink);
    to.subdirs += 1;
  }
  move_name(ctx, m.source, m.from, m.old_name, m.to, m.new_name);
  ctx.del_dentry(m.from, m.old_name);
  ctx.put_dentry(m.to, m.new_name, Ino(m.source.ino), type_of(m.source.mode), m.source.birth_epoch);
  return {};
}

void exchange(OpContext& ctx, Move& m) {
  Record &from = m.old_dir, &to = m.new_dir(), &other = *m.target;
  if (is_dir(m.source)) {
    from.subdirs -= 1;
    to.subdirs += 1;
  }
  if (is_dir(other)) {
    to.subdirs -= 1;
    from.subdirs += 1;
  }
  move_name(ctx, m.source, m.from, m.old_name, m.to, m.new_name);
  move_name(ctx, other, m.to, m.new_name, m.from, m.old_name);
  ctx.put_dentry(m.to, m.new_name, Ino(m.source.ino), type_of(m.source.mode), m.source.birth_epoch);
  ctx.put_dentry(m.from, m.old_name, Ino(other.ino), type_of(other.mode), other.birth_epoch);
  touch(ctx, other);
  ctx.put_inode(other);
}

}  // namespace

Result<wire::EmptyT> rename(OpContext& ctx, const wire::RenameRequestT& q) {
  if (q.flags & ~(kNoReplace | kExchange) || q.flags == (kNoReplace | kExchange)) return Err(Errc::kInval);
  bool swap = q.flags & kExchange;
  NACRE_CHECK_OK(check_name(as_text(q.name)));
  NACRE_CHECK_OK(check_name(as_text(q.new_name)));
  NACRE_CHECK_OK(check_creatable(as_text(q.new_name)));
  NACRE_TRY(auto m, load(ctx, q));
  NACRE_TRY(auto fileset, ctx.fileset(m.old_dir.fileset));
  NACRE_CHECK_OK(check_tree(ctx, m, swap));
  NACRE_CHECK_OK(check_filesets(m, m.new_dir()));
  if (m.target && m.target->ino == m.source.ino) return wire::EmptyT{};  // two names of one file: POSIX says nothing happens
  NACRE_CHECK_OK(check_rights(ctx, m, swap));
  if (swap) exchange(ctx, m);
  else NACRE_CHECK_OK(replace(ctx, m));
  touch(ctx, m.source);
  ctx.put_inode(m.source);
  touch_entries(ctx, m.old_dir);
  ctx.put_inode(m.old_dir);
  if (m.across()) {
    touch_entries(ctx, *m.other_dir);
    ctx.put_inode(*m.other_dir);
    if (is_dir(m.source) || (swap && is_dir(*m.target))) ctx.on_commit([&layouts = ctx.services().dir_layouts] { layouts.forget(); });
  }
  if (m.target && !swap) ctx.log(is_dir(*m.target) ? kLogRmdir : kLogUnlink, Ino(m.target->ino), m.to, m.new_name);
  if (swap) ctx.log(kLogExchange, Ino(m.target->ino), m.to, m.new_name, m.from, m.old_name);
  ctx.log(swap ? kLogExchange : kLogRename, Ino(m.source.ino), m.from, m.old_name, m.to, m.new_name);
  return wire::EmptyT{};
}

}  // namespace nacre::mds::ops
