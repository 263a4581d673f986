// SPDX-License-Identifier: Apache-2.0
// See repair.h. An operation that finds that it needs more than it was given (a place in /lost+found, a fresh count of a directory)
// says kAgain.
#include "metadata/check/repair.h"

#include <sys/stat.h>

#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/ops.h"

namespace nacre::mds::check {

// ---- what several repairs need

/// The directory for inodes without a name; made if there is none.
Task<Result<Ino>> Repair::lost_found() {
  OpContext ctx(p_.services, wire::CredT{});
  co_return co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<Ino> {
    NACRE_CHECK_OK(c.lock({kRootIno}));
    NACRE_TRY(auto entry, c.dentry(kRootIno, kLostFound));
    if (entry) {
      if (entry->type != schema::FileType::Directory) return Err(Errc::kNotDir, "/lost+found is no directory, so what has lost its name can't be put there: rename it and run nacre fsck --repair again");
      return Ino(entry->ino);
    }
    wire::MknodRequestT q;
    q.parent = kRootIno.v;
    q.name = as_bytes(kLostFound);
    q.mode = S_IFDIR | 0700;
    NACRE_TRY(auto made, ops::mknod(c, q));
    return Ino(made.attr->ino);
  });
}

/// The directory's record and what it holds, as of one moment; none if it is no directory.
Task<Result<Repair::Counts>> Repair::count(Ino dir) {
  co_return co_await run_blocking([this, dir]() -> Result<Counts> {
    Snapshot snapshot(p_.services.store);
    const View view(p_.services.store, snapshot);
    auto record = view.inode(dir);
    if (!record && is_damage(record.error())) return Counts();
    if (!record) return std::unexpected(std::move(record).error());
    if (!*record || !is_dir(**record)) return Counts();
    NACRE_TRY(DirCount counted, count_dir(view, **record));
    return Counts(std::move(counted));
  });
}

// ---- inodes

Task<Result<bool>> Repair::inode(Ino ino, bool homeless) {
  for (int tries = 0; tries < kRepairTries; ++tries) {
    Ino home;
    if (homeless) {
      CO_TRY(home, co_await lost_found());
    }
    CO_TRY(const Counts counted, co_await count(ino));
    OpContext ctx(p_.services, wire::CredT{});
    auto done = co_await p_.driver.change(ctx, [&](OpContext& c) { return mend_inode(c, ino, home, counted); });
    if (done) co_return true;
    if (done.error().code != Errc::kAgain) co_return std::unexpected(std::move(done).error());
    homeless = homeless || tries > 0;
  }
  co_return false;
}

Result<bool> Repair::mend_inode(OpContext& ctx, Ino ino, Ino home, const Counts& counted) {
  NACRE_CHECK_OK(home ? ctx.lock({ino, home}) : ctx.lock({ino}));
  NACRE_TRY(auto stored, ctx.view().inode(ino));
  if (!stored) return true;  // gone meanwhile
  schema::InodeRecordT r = *stored;
  bool own = false;  // it was an entry of itself
  if (is_dir(r) && home) {
    NACRE_TRY(own, leave_ring(ctx, r));
  }
  if (is_dir(r)) {
    if (!counted || counted->record != encode_record(*stored)) return Err(Errc::kAgain);
    r.entries = counted->entries - own;
    r.subdirs = counted->subdirs - own;
    if (r.nlink != 0) r.nlink = r.subdirs + 2;
  }
  Dirs dirs(ctx.view());
  NACRE_TRY(const Names names, names_of(ctx.view(), dirs, r));
  if (ino != kRootIno) NACRE_CHECK_OK(mend_names(ctx, r, names, home));
  if (!(r.flags & kHasXattrs)) {
    bool any = false;
    NACRE_CHECK_OK(ctx.view().scan(Family::kXattr, xattr_prefix(ino), prefix_end(xattr_prefix(ino)), [&](std::string_view, std::string_view) {
      any = true;
      return false;
    }));
    if (any) r.flags |= kHasXattrs;
  }
  if (encode_record(r) == encode_record(*stored)) return true;
  ++r.change;
  ctx.put_inode(r);
  return true;
}

/// The record's names and nlink, link rows and orphan record as the names say.
Result<void> Repair::mend_names(OpContext& ctx, schema::InodeRecordT& r, const Names& names, Ino home) {
  const Ino ino(r.ino);
  for (const Names::Link& link : names.dangling) ctx.batch().del(Family::kLink, link_key(ino, link.parent, link.name));
  if (names.count() == 0) {
    if (r.nlink != 0) return give_name(ctx, r, home);
    NACRE_TRY(auto listed, ctx.view().get(Family::kOrphan, orphan_key(ino)));
    if (listed) return {};
    schema::OrphanRecordT orphan;
    orphan.since = ctx.now();
    ctx.batch().put_record(Family::kOrphan, orphan_key(ino), orphan);
    ctx.on_commit([this, ino] { p_.orphans.add(ino, 0); });
    return {};
  }
  if (!names.primary) {
    const Names::Link& first = names.good.front();
    r.parent = first.parent.v;
    r.name = as_bytes(first.name);
    ctx.batch().del(Family::kLink, link_key(ino, first.parent, first.name));
  }
  r.nlink = is_dir(r) ? r.subdirs + 2 : static_cast<uint32_t>(names.count());
  NACRE_TRY(auto listed, ctx.view().get(Family::kOrphan, orphan_key(ino)));
  if (listed) ctx.batch().del(Family::kOrphan, orphan_key(ino));
  return {};
}

Result<void> Repair::give_name(OpContext& ctx, schema::InodeRecordT& r, Ino home) {
  if (!home) return Err(Errc::kAgain);
  NACRE_TRY(auto dir, ctx.inode(home));
  std::string name = fmt::format("#{}", r.ino);
  for (int i = 1;; ++i) {
    NACRE_TRY(auto taken, ctx.dentry(home, name));
    if (!taken) break;
    if (i > 1000) return Err(Errc::kExist, fmt::format("/lost+found has no free name for inode {}: move away what is in it", r.ino));
    name = fmt::format("#{}.{}", r.ino, i);
  }
  r.parent = home.v;
  r.name = as_bytes(name);
  r.nlink = is_dir(r) ? r.subdirs + 2 : 1;
  if (is_dir(r)) ctx.on_commit([&layouts = ctx.services().dir_layouts] { layouts.forget(); });
  return add_name(ctx, dir, name, r);
}

/// Takes a directory that lies inside of itself out of the one that it lies in. True if that is itself.
Result<bool> Repair::leave_ring(OpContext& ctx, schema::InodeRecordT& r) {
  NACRE_CHECK_OK(ctx.lock_moves(FilesetId(r.fileset)));
  uint64_t at = r.parent;
  for (int depth = 0; at != r.ino; ++depth) {
    if (at == kRootIno.v || depth == kMaxDirectoryDepth) return false;
    NACRE_TRY(auto dir, ctx.view().inode(Ino(at)));
    if (!dir || !is_dir(*dir)) return false;
    at = dir->parent;
  }
  const Ino parent(r.parent);
  const std::string name(as_text(r.name));
  NACRE_CHECK_OK(ctx.lock({Ino(r.ino), parent}));
  NACRE_TRY(auto entry, ctx.dentry(parent, name));
  if (!entry || entry->ino != r.ino) return false;
  ctx.del_dentry(parent, name);
  if (parent.v == r.ino) return true;
  NACRE_TRY(auto above, ctx.inode(parent));
  above.entries -= std::min<uint64_t>(above.entries, 1);
  above.subdirs -= std::min<uint32_t>(above.subdirs, 1);
  touch_entries(ctx, above);
  ctx.put_inode(above);
  return false;
}

// ---- rows without inode

Task<Result<bool>> Repair::rows(Ino ino) {
  OpContext ctx(p_.services, wire::CredT{});
  co_return co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.view().inode(ino));
    if (record) {
      if (record->nlink != 0) c.batch().del(Family::kOrphan, orphan_key(ino));
      return true;
    }
    for (Family family : {Family::kLink, Family::kXattr, Family::kOrphan}) {
      std::vector<std::string> keys;
      NACRE_CHECK_OK(c.view().scan(family, link_prefix(ino), prefix_end(link_prefix(ino)), [&](std::string_view key, std::string_view) {
        keys.emplace_back(key);
        return true;
      }));
      for (auto& key : keys) c.batch().del(family, std::move(key));
    }
    return true;
  });
}

// ---- names

Task<Result<bool>> Repair::entry(std::string key) {
  const auto parsed = parse_dentry_key(key);
  for (int tries = 0; tries < kRepairTries; ++tries) {
    Counts counted;
    if (parsed) {
      CO_TRY(counted, co_await count(parsed->parent));
    }
    OpContext ctx(p_.services, wire::CredT{});
    auto done = co_await p_.driver.change(ctx, [&](OpContext& c) { return mend_entry(c, key, counted); });
    if (done || done.error().code != Errc::kAgain) co_return done;
  }
  co_return false;
}

static bool is_dir_entry(const schema::DentryRecordT& e) { return e.type == schema::FileType::Directory; }

Result<bool> Repair::mend_entry(OpContext& ctx, const std::string& raw, const Counts& counted) {
  const auto key = parse_dentry_key(raw);
  if (!key) {
    ctx.batch().del(Family::kDentry, raw);
    return true;
  }
  NACRE_CHECK_OK(ctx.lock({key->parent}));
  NACRE_TRY(auto row, ctx.view().get(Family::kDentry, raw));
  if (!row) return true;
  auto entry = decode_record<schema::DentryRecordT>(*row);
  if (entry) NACRE_CHECK_OK(ctx.lock({key->parent, Ino(entry->ino)}));
  EntryCheck check(ctx.view());
  NACRE_TRY(auto problem, check.look(raw, *row));
  if (!problem) return true;
  const schema::DentryRecordT before = entry ? *entry : schema::DentryRecordT();
  auto parent = ctx.view().inode(key->parent);
  if (!parent && !is_damage(parent.error())) return std::unexpected(std::move(parent).error());
  ctx.batch().del(Family::kDentry, raw);
  NACRE_TRY(auto after, settle_entry(ctx, *key, *problem, before));
  if (after) ctx.put_dentry(key->parent, key->name, Ino(after->ino), after->type, after->birth_epoch);
  if (!parent || !*parent || !is_dir(**parent)) return true;
  if (!counted || counted->record != encode_record(**parent)) return Err(Errc::kAgain);
  (*parent)->entries = counted->entries - 1 + after.has_value();
  (*parent)->subdirs = counted->subdirs - is_dir_entry(before) + (after && is_dir_entry(*after));
  const bool deleted = (*parent)->nlink == 0;
  touch_entries(ctx, **parent);
  if (deleted) (*parent)->nlink = 0;
  ctx.put_inode(**parent);
  return true;
}

/// What stands in place of the row; nothing if it goes. May change the inode that it leads to.
Result<std::optional<schema::DentryRecordT>> Repair::settle_entry(OpContext& ctx, const DentryKey& key, const Problem& problem, const schema::DentryRecordT& entry) {
  using Out = std::optional<schema::DentryRecordT>;
  const std::string_view kind = problem.kind;
  if (kind != kNameType && kind != kNameHash && kind != kNameUnlisted) return Out();
  NACRE_TRY(auto child, ctx.view().inode(Ino(entry.ino)));
  if (!child) return Out();
  Out after = entry;
  after->type = type_of(child->mode);
  if (kind == kNameHash) {
    NACRE_TRY(auto taken, ctx.dentry(key.parent, key.name));
    if (taken) return Out();
  }
  NACRE_TRY(bool known, lists(ctx.view(), *child, key.parent, key.name));
  if (!known) {
    NACRE_TRY(known, adopt(ctx, key, *child));
  }
  return known ? after : Out();
}

/// Makes the inode know of the name. False if it must not have it: a directory has one name.
Result<bool> Repair::adopt(OpContext& ctx, const DentryKey& key, schema::InodeRecordT& child) {
  Dirs dirs(ctx.view());
  NACRE_TRY(const Names names, names_of(ctx.view(), dirs, child));
  if (names.primary && is_dir(child)) return false;
  if (names.primary) {
    if (child.nlink >= kMaxLinks) return false;
    schema::LinkRecordT link;
    link.birth_epoch = child.birth_epoch;
    ctx.batch().put_record(Family::kLink, link_key(Ino(child.ino), key.parent, key.name), link);
  } else {
    child.parent = key.parent.v;
    child.name = as_bytes(key.name);
  }
  if (child.nlink == 0) ctx.batch().del(Family::kOrphan, orphan_key(Ino(child.ino)));
  child.nlink = is_dir(child) ? child.subdirs + 2 : static_cast<uint32_t>(names.count() + 1);
  touch(ctx, child);
  ctx.put_inode(child);
  if (is_dir(child)) ctx.on_commit([&layouts = ctx.services().dir_layouts] { layouts.forget(); });
  return true;
}

// ---- objects

Task<Result<bool>> Repair::counters(const Seen& seen) {
  OpContext ctx(p_.services, wire::CredT{});
  const Ino ino(seen.record.ino);
  co_return co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto stored, c.view().inode(ino));
    if (!stored || encode_record(*stored) != encode_record(seen.record)) return false;
    if (p_.opens.open_for_write(ino) || p_.opens.cuts(ino) != seen.cuts) return false;
    schema::InodeRecordT r = *stored;
    r.size = std::max(r.size, seen.objects.size);
    r.allocated = seen.objects.allocated;
    ++r.change;
    c.put_inode(r);
    c.batch().account(&*stored, &r);
    return true;
  });
}

Task<Result<bool>> Repair::destroy(OstId ost, ObjectId object, std::function<Result<bool>(const View&)> stray) {
  OpContext ctx(p_.services, wire::CredT{});
  co_return co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({object.ino}));
    NACRE_TRY(const bool still, stray(c.view()));
    if (!still) return false;
    NACRE_TRY(auto record, c.view().inode(object.ino));
    if (record && record->layout && object.generation.v > record->layout->generation) {
      // The target will remember the number as destroyed: the file must not come to use it.
      record->shadow_generation = std::max(record->shadow_generation, object.generation.v);
      ++record->change;
      c.put_inode(*record);
    }
    NACRE_CHECK_OK(p_.owed.owe_object(c, ost, object));
    return true;
  });
}

}  // namespace nacre::mds::check
