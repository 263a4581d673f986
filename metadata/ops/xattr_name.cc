// SPDX-License-Identifier: Apache-2.0
// See xattr_name.h.
#include "metadata/ops/xattr_name.h"

#include <sys/stat.h>

#include "common/base/units.h"
#include "metadata/ops/acl.h"
#include "metadata/ops/common.h"
#include "metadata/ops/permission.h"

namespace nacre::mds {

Result<XattrKind> xattr_kind(std::string_view name) {
  if (name.size() > kMaxName) return Err(Errc::kRange, "an attribute's name has at most 255 bytes");
  if (name.find('\0') != name.npos) return Err(Errc::kInval);
  if (name == kAccessAcl) return XattrKind::kAccessAcl;
  if (name == kDefaultAcl) return XattrKind::kDefaultAcl;
  for (auto [prefix, kind] : {std::pair<std::string_view, XattrKind>{"user.", XattrKind::kUser}, {"trusted.", XattrKind::kTrusted}, {"security.", XattrKind::kSecurity}}) {
    if (!name.starts_with(prefix)) continue;
    if (name.size() == prefix.size()) return Err(Errc::kInval);
    return kind;
  }
  return Err(Errc::kOpNotSupp);
}

Result<void> check_xattr_write(OpContext& ctx, const schema::InodeRecordT& r, XattrKind kind, std::string_view name) {
  switch (kind) {
    case XattrKind::kUser:
      if (name.starts_with("user.nacre.")) return Err(Errc::kPerm, "attributes user.nacre.* are answered by the filesystem, not set");
      if (!is_file(r) && !is_dir(r)) return Err(Errc::kPerm);
      if (is_dir(r) && r.mode & S_ISVTX) NACRE_CHECK_OK(check_owner(ctx, r));
      return check_access(ctx, r, kMayWrite);
    case XattrKind::kTrusted:
    case XattrKind::kSecurity:
      if (!is_root(ctx.cred())) return Err(Errc::kPerm);
      return {};
    case XattrKind::kAccessAcl:
    case XattrKind::kDefaultAcl:
      if (is_symlink(r)) return Err(Errc::kOpNotSupp);
      return check_owner(ctx, r);
  }
  return Err(Errc::kOpNotSupp);
}

}  // namespace nacre::mds
