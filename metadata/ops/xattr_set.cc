// SPDX-License-Identifier: Apache-2.0
// xattr_set: CREATE and REPLACE, limits, and ACLs, which move with the mode: an access ACL that a mode can say becomes that mode.
// Rules: setxattr(2), acl(5).
#include <sys/stat.h>

#include "common/base/units.h"
#include "metadata/ops/acl.h"
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"
#include "metadata/ops/xattr_name.h"

namespace nacre::mds::ops {
namespace {

Result<void> set_acl(OpContext& ctx, const wire::XattrSetRequestT& q, schema::InodeRecordT& r, bool default_acl) {
  NACRE_TRY(auto acl, Acl::parse(q.value));
  if (default_acl && !is_dir(r)) {
    if (acl) return Err(Errc::kAccess);
    return {};
  }
  store_acl(ctx, r, acl ? &*acl : nullptr, default_acl);
  if (default_acl || !acl) return {};
  if (r.mode & S_ISGID && !is_root(ctx.cred())) {
    NACRE_TRY(bool member, in_group(ctx.cred(), r.gid));
    if (!member) r.mode &= ~static_cast<uint32_t>(S_ISGID);
  }
  if (q.kill_sgid) r.mode &= ~static_cast<uint32_t>(S_ISGID);
  return {};
}

/// Room for one more name, or for a longer value?
Result<void> check_room(OpContext& ctx, const wire::XattrSetRequestT& q) {
  size_t names = q.name.size() + 1, bytes = q.name.size() + q.value.size();
  auto prefix = xattr_prefix(Ino(q.ino));
  NACRE_CHECK_OK(ctx.view().scan(Family::kXattr, prefix, prefix_end(prefix), [&](std::string_view key, std::string_view value) {
    auto parsed = parse_xattr_key(key);
    if (!parsed || parsed->name == q.name) return true;
    names += parsed->name.size() + 1;
    bytes += parsed->name.size() + value.size();
    return true;
  }));
  if (names > kMaxXattrList || bytes > kMaxXattrBytes)
    return Err(Errc::kNoSpc, fmt::format("attributes of one inode: at most {} bytes of names and {} in all", kMaxXattrList, kMaxXattrBytes));
  return {};
}

}  // namespace

Result<wire::EmptyT> xattr_set(OpContext& ctx, const wire::XattrSetRequestT& q) {
  Ino ino(q.ino);
  NACRE_TRY(auto kind, xattr_kind(q.name));
  if (q.value.size() > kMaxXattrValue) return Err(Errc::kNoSpc, "an attribute's value has at most 64 KiB");
  if (q.flags & ~(kXattrCreate | kXattrReplace)) return Err(Errc::kInval);
  NACRE_CHECK_OK(ctx.lock({ino}));
  NACRE_TRY(auto r, ctx.inode(ino));
  NACRE_TRY(auto fileset, ctx.fileset(r.fileset));
  NACRE_CHECK_OK(check_xattr_write(ctx, r, kind, q.name));
  bool exists = false;
  if (r.flags & kHasXattrs) {
    NACRE_TRY(auto row, ctx.view().xattr(ino, q.name));
    exists = row.has_value();
  }
  if (exists && q.flags & kXattrCreate) return Err(Errc::kExist);
  if (!exists && q.flags & kXattrReplace) return Err(Errc::kNoData);
  if (kind == XattrKind::kAccessAcl || kind == XattrKind::kDefaultAcl) {
    NACRE_CHECK_OK(set_acl(ctx, q, r, kind == XattrKind::kDefaultAcl));
  } else {
    if (r.flags & kHasXattrs) NACRE_CHECK_OK(check_room(ctx, q));
    schema::XattrRecordT row;
    row.value = q.value;
    ctx.batch().put_record(Family::kXattr, xattr_key(ino, q.name), row);
    r.flags |= kHasXattrs;
    if (q.name == kCapabilityXattr) r.flags |= wire::kHasCapability;
  }
  touch(ctx, r);
  ctx.put_inode(r);
  ctx.log(kLogXattr, ino, Ino(r.parent), as_text(r.name));
  return wire::EmptyT{};
}

}  // namespace nacre::mds::ops
