// SPDX-License-Identifier: Apache-2.0
// The namespace operations, one source file each (lookup.cc, create.cc, …). Each is run by the Driver: those marked "read"
// through Driver::read, the others through Driver::once or Driver::change. Semantics are those of Linux's local filesystems.
#pragma once
#include "metadata/ops/op.h"

namespace nacre::mds::ops {

Result<wire::EntryReplyT> lookup(OpContext& ctx, const wire::LookupRequestT& request);        // read; name "..": the parent
Result<wire::AttrReplyT> getattr(OpContext& ctx, const wire::GetattrRequestT& request);       // read
Result<wire::SetattrReplyT> setattr(OpContext& ctx, const wire::SetattrRequestT& request);    // parks for glimpses and partial truncates; `cap` is the service's
Result<wire::EntryReplyT> mknod(OpContext& ctx, const wire::MknodRequestT& request);          // directories, symlinks, special and plain files
/// A new regular file (or O_TMPFILE with an empty name) with its open registered through OpHooks::created. If the name exists
/// and O_EXCL isn't given: created = false and attr.ino = what it names; nothing else has been checked or done: the service opens that.
Result<wire::OpenReplyT> create(OpContext& ctx, const wire::CreateRequestT& request);
Result<wire::EmptyT> unlink(OpContext& ctx, const wire::UnlinkRequestT& request);             // files
Result<wire::EmptyT> rmdir(OpContext& ctx, const wire::UnlinkRequestT& request);              // directories
Result<wire::EmptyT> rename(OpContext& ctx, const wire::RenameRequestT& request);
Result<wire::EntryReplyT> link(OpContext& ctx, const wire::LinkRequestT& request);
Result<wire::ReadlinkReplyT> readlink(OpContext& ctx, const wire::ReadlinkRequestT& request); // read
Result<wire::ReaddirReplyT> readdir(OpContext& ctx, const wire::ReaddirRequestT& request);    // read
Result<wire::EmptyT> access(OpContext& ctx, const wire::AccessRequestT& request);             // read
Result<wire::XattrGetReplyT> xattr_get(OpContext& ctx, const wire::XattrGetRequestT& request);    // read
Result<wire::EmptyT> xattr_set(OpContext& ctx, const wire::XattrSetRequestT& request);
Result<wire::XattrListReplyT> xattr_list(OpContext& ctx, const wire::XattrListRequestT& request); // read
Result<wire::EmptyT> xattr_remove(OpContext& ctx, const wire::XattrRemoveRequestT& request);
Result<wire::PathOfReplyT> path_of(OpContext& ctx, const wire::PathOfRequestT& request);      // read

}  // namespace nacre::mds::ops
