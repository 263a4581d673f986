// SPDX-License-Identifier: Apache-2.0
// Directory handles and pages. A directory handle is no state at the server: a page is asked for by cookie, with the
// rights of whoever opened the directory.
#include "client/core/filesystem_impl.h"

namespace nacre::client {

Task<Result<HandlePtr>> FilesystemImpl::opendir(Ino ino, uint32_t flags, Caller caller) {
  auto handle = std::make_shared<FileHandle>(nullptr, ino, core_->next_handle(), flags, core_->mds.session(), true);
  handle->losses_seen = core_->mds.losses();
  handle->opener_uid = caller.uid;
  handle->opener_gid = caller.gid;
  co_return HandlePtr(handle);
}

Task<Result<wire::ReaddirReplyT>> FilesystemImpl::readdir(HandlePtr dir, uint64_t cookie, uint32_t max_bytes, bool plus, Caller caller) {
  auto handle = as_file(dir);
  caller.uid = handle->opener_uid;
  caller.gid = handle->opener_gid;
  wire::ReaddirRequestT request;
  request.dir = handle->ino().v;
  request.cookie = cookie;
  request.max_bytes = std::min<uint32_t>(max_bytes, 1 * MiB);
  request.plus = plus;
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kReaddir>(std::move(request), begin("Readdir", std::move(caller))));
  for (auto& entry : reply.entries) {
    if (!entry) co_return Err(Errc::kProtocol, "a directory page with an empty entry");
    if (entry->name.empty() || entry->name.size() > kMaxName || std::ranges::any_of(entry->name, [](uint8_t c) { return c == 0 || c == '/'; }))
      co_return Err(Errc::kProtocol, fmt::format("a page of directory {} with a name that is none", handle->ino()));
    if (entry->attr) entry->attr = std::make_unique<wire::AttrT>(core_->shown(std::move(entry->attr)));
  }
  co_return std::move(reply);
}

Task<Result<void>> FilesystemImpl::releasedir(HandlePtr) { co_return Result<void>{}; }

Task<Result<void>> FilesystemImpl::fsyncdir(HandlePtr dir, Caller caller) {
  wire::SyncRequestT request;
  request.ino = dir->ino().v;
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kSync>(std::move(request), begin("Sync", std::move(caller))));
  co_return core_->mds.nothing_lost(as_file(dir)->losses_seen);
}

}  // namespace nacre::client
