// SPDX-License-Identifier: Apache-2.0
// Names: what may be one, adding them, and what happens to an inode that loses one. See common.h.
#include <sys/stat.h>

#include "common/base/units.h"
#include "metadata/ops/common.h"

namespace nacre::mds {

Result<void> check_name(std::string_view name) {
  if (name.empty()) return Err(Errc::kNoEnt);
  if (name.size() > kMaxName) return Err(Errc::kNameTooLong);
  if (name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos) return Err(Errc::kInval);
  return {};
}

Result<void> check_creatable(std::string_view name) {
  if (name == ".snapshot" || name == ".snapshots" || name == ".purged") return Err(Errc::kPerm, fmt::format("'{}' is a name that only Nacre gives", name));
  return {};
}

Result<void> add_name(OpContext& ctx, schema::InodeRecordT& parent, std::string_view name, const schema::InodeRecordT& child) {
  if (is_dir(child)) {
    if (parent.subdirs >= kMaxSubdirs) return Err(Errc::kMLink);
    parent.subdirs += 1;
  }
  parent.entries += 1;
  touch_entries(ctx, parent);
  ctx.put_inode(parent);
  ctx.put_dentry(Ino(parent.ino), name, Ino(child.ino), type_of(child.mode), child.birth_epoch);
  return {};
}

namespace {

bool is_first_name(const schema::InodeRecordT& r, Ino parent, std::string_view name) { return r.parent == parent.v && as_text(r.name) == name; }

/// All rows that an inode has of its own; the dentry is gone already.
Result<void> erase_rows(OpContext& ctx, const schema::InodeRecordT& r) {
  Ino ino(r.ino);
  ctx.batch().del_inode(ino);
  if (r.flags & kHasXattrs) {
    std::vector<std::string> keys;
    NACRE_CHECK_OK(ctx.view().scan(Family::kXattr, xattr_prefix(ino), prefix_end(xattr_prefix(ino)), [&](std::string_view key, std::string_view) {
      keys.emplace_back(key);
      return true;
    }));
    for (auto& key : keys) ctx.batch().del(Family::kXattr, std::move(key));
  }
  if (is_file(r)) NACRE_CHECK_OK(ctx.hooks().destroy_objects(ctx, r));
  ctx.batch().account(&r, nullptr);
  return {};
}

Result<void> drop_inode(OpContext& ctx, schema::InodeRecordT& r, bool replaced) {
  r.nlink = 0;
  if (!ctx.hooks().keep_unlinked(r, replaced)) return erase_rows(ctx, r);
  touch(ctx, r);
  ctx.put_inode(r);
  schema::OrphanRecordT orphan;
  orphan.since = ctx.now();
  ctx.batch().put_record(Family::kOrphan, orphan_key(Ino(r.ino)), orphan);
  ctx.hooks().orphaned(ctx, r);
  return {};
}

}  // namespace

Result<void> drop_dir(OpContext& ctx, schema::InodeRecordT& r, bool replaced) { return drop_inode(ctx, r, replaced); }

Result<void> drop_name(OpContext& ctx, schema::InodeRecordT& r, Ino parent, std::string_view name, bool replaced) {
  if (r.nlink <= 1) return drop_inode(ctx, r, replaced);
  Ino ino(r.ino);
  r.nlink -= 1;
  if (!is_first_name(r, parent, name)) {
    ctx.batch().del(Family::kLink, link_key(ino, parent, name));
  } else {
    std::string next;
    NACRE_CHECK_OK(ctx.view().scan(Family::kLink, link_prefix(ino), prefix_end(link_prefix(ino)), [&](std::string_view key, std::string_view) {
      next = key;
      return false;
    }));
    auto link = parse_link_key(next);
    if (!link) return Err(Errc::kCorrupt, fmt::format("inode {} has {} names but no link record; `nacre fsck` looks into it", ino, r.nlink + 1));
    r.parent = link->parent.v;
    r.name = as_bytes(link->name);
    ctx.batch().del(Family::kLink, next);
  }
  touch(ctx, r);
  ctx.put_inode(r);
  return {};
}

void move_name(OpContext& ctx, schema::InodeRecordT& r, Ino from, std::string_view old_name, Ino to, std::string_view new_name) {
  if (is_dir(r) || is_first_name(r, from, old_name)) {
    r.parent = to.v;
    r.name = as_bytes(new_name);
    return;
  }
  ctx.batch().del(Family::kLink, link_key(Ino(r.ino), from, old_name));
  schema::LinkRecordT link;
  link.birth_epoch = r.birth_epoch;
  ctx.batch().put_record(Family::kLink, link_key(Ino(r.ino), to, new_name), link);
}

Result<void> destroy_inode(OpContext& ctx, const schema::InodeRecordT& r) {
  ctx.batch().del(Family::kOrphan, orphan_key(Ino(r.ino)));
  return erase_rows(ctx, r);
}

Result<void> drop_data(OpContext& ctx, schema::InodeRecordT& r) {
  auto before = r;
  if (r.layout) {
    bool instantiated = std::any_of(r.layout->components.begin(), r.layout->components.end(), [](const auto& c) { return c->instantiated; });
    if (instantiated) {
      NACRE_CHECK_OK(ctx.hooks().destroy_objects(ctx, r));
      r.layout->generation = next_generation(ctx.services().store, r);
      for (auto& c : r.layout->components) {
        c->instantiated = false;
        c->osts.clear();
        c->stripes_used = 0;
      }
    }
  }
  r.size = 0;
  r.allocated = 0;
  ctx.batch().account(&before, &r);
  return {};
}

}  // namespace nacre::mds
