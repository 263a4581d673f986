// SPDX-License-Identifier: Apache-2.0
// Namespaces of extended attributes and who may do what in them. Rules: xattr(7), capabilities(7).
#pragma once
#include "metadata/ops/op.h"

namespace nacre::mds {

enum class XattrKind { kUser, kTrusted, kSecurity, kAccessAcl, kDefaultAcl };

inline constexpr uint32_t kXattrCreate = 1, kXattrReplace = 2;
inline constexpr size_t kMaxXattrList = 64 * 1024;       ///< bytes of all names with their ends, XATTR_LIST_MAX
inline constexpr size_t kMaxXattrBytes = 1024 * 1024;    ///< of all names and values of an inode
inline constexpr std::string_view kCapabilityXattr = "security.capability";

/// Errors: kOpNotSupp (unknown namespace), kInval (nothing behind the prefix, NUL), kRange (longer than 255 bytes).
Result<XattrKind> xattr_kind(std::string_view name);
/// May the caller set or remove it? Errors: kPerm, kAccess, kOpNotSupp, kNeedGroups.
Result<void> check_xattr_write(OpContext& ctx, const schema::InodeRecordT& record, XattrKind kind, std::string_view name);

}  // namespace nacre::mds
