// SPDX-License-Identifier: Apache-2.0
// readdir: a page of names in cookie order (the cookie is the name's hash), with attributes if asked. A page never ends inside
// a run of equal hashes, so "greater than the cookie" is enough to go on; runs are short, because the hash is keyed.
// "." and ".." are the client's to make; the reply names the parent for that.
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"

namespace nacre::mds::ops {
namespace {

constexpr uint32_t kMinPage = 4096, kMaxPage = 256 * 1024;  // bytes: at most some 5,000 names or 1,100 with attributes
constexpr size_t kEntryBytes = 64, kAttrBytes = 168;        // what an entry takes in the reply beside its name, rounded up

struct Page {
  std::vector<std::unique_ptr<wire::DirEntryT>> entries;
  bool end = true;
};

Result<Page> names_after(OpContext& ctx, Ino dir, uint64_t cookie, size_t room, size_t per_entry) {
  Page page;
  if (cookie >= uint64_t{1} << 63) return page;
  Error bad(Errc::kOk);
  size_t used = 0;
  NACRE_CHECK_OK(ctx.view().scan(Family::kDentry, dentry_from(dir, cookie == 0 ? 0 : cookie + 1), prefix_end(dentry_prefix(dir)), [&](std::string_view key, std::string_view value) {
    auto name = parse_dentry_key(key);
    auto record = view_record<schema::DentryRecordT>(value);
    if (!name || !record) {
      bad = Error(Errc::kCorrupt, fmt::format("an entry of directory {} is damaged; `nacre fsck` looks into it", dir));
      return false;
    }
    if (used >= room && name->hash != page.entries.back()->cookie) {
      page.end = false;
      return false;
    }
    auto entry = std::make_unique<wire::DirEntryT>();
    entry->cookie = name->hash;
    entry->name = as_bytes(name->name);
    entry->ino = (*record)->ino();
    entry->type = (*record)->type();
    used += per_entry + name->name.size();
    page.entries.push_back(std::move(entry));
    return true;
  }));
  if (bad.code != Errc::kOk) return Err(std::move(bad));
  return page;
}

/// Attributes of all entries; those whose inode has gone meanwhile leave the page. Parks once for all glimpses it lacks.
Result<void> add_attributes(OpContext& ctx, Page& page) {
  std::vector<std::string> keys;
  for (const auto& e : page.entries) {
    ctx.look_open(Ino(e->ino));
    keys.push_back(inode_key(Ino(e->ino)));
  }
  NACRE_TRY(auto records, ctx.view().multi_get(Family::kInode, keys));
  Park lacking{Park::Kind::kGlimpse, {}, 0};
  for (size_t i = 0; i < page.entries.size(); ++i) {
    auto& e = page.entries[i];
    if (!records[i]) {
      e.reset();
      continue;
    }
    auto record = decode_record<schema::InodeRecordT>(*records[i]);
    if (!record) return Err(Errc::kCorrupt, fmt::format("inode {} is damaged: {}", e->ino, record.error().message()));
    if (record->truncate_intent) return ctx.park({Park::Kind::kIntent, {Ino(e->ino)}, 0});
    if (is_file(*record) && ctx.was_open(Ino(e->ino)) && !ctx.glimpse(Ino(e->ino))) {
      lacking.inos.push_back(Ino(e->ino));
      continue;
    }
    NACRE_TRY(auto attr, attr_of(ctx, *record));
    e->attr = std::make_unique<wire::AttrT>(std::move(attr));
  }
  if (!lacking.inos.empty()) return ctx.park(std::move(lacking));
  std::erase_if(page.entries, [](const auto& e) { return !e; });
  return {};
}

}  // namespace

Result<wire::ReaddirReplyT> readdir(OpContext& ctx, const wire::ReaddirRequestT& q) {
  NACRE_TRY(auto dir, ctx.inode(Ino(q.dir)));
  if (!is_dir(dir)) return Err(Errc::kNotDir);
  NACRE_CHECK_OK(check_access(ctx, dir, kMayRead));
  size_t room = std::clamp(q.max_bytes, kMinPage, kMaxPage);
  NACRE_TRY(auto page, names_after(ctx, Ino(q.dir), q.cookie, room, kEntryBytes + (q.plus ? kAttrBytes : 0)));
  wire::ReaddirReplyT reply;
  reply.end = page.end;
  reply.parent = dir.parent;
  if (q.plus) {
    uint64_t last = page.entries.empty() ? 0 : page.entries.back()->cookie;
    NACRE_CHECK_OK(add_attributes(ctx, page));
    // A page whose names have all gone meanwhile would look like the end: then go on behind it.
    if (page.entries.empty() && !page.end) {
      wire::ReaddirRequestT next = q;
      next.cookie = last;
      return readdir(ctx, next);
    }
  }
  reply.entries = std::move(page.entries);
  return reply;
}

}  // namespace nacre::mds::ops
