// SPDX-License-Identifier: Apache-2.0
// Attributes, extended attributes, access, statfs.
#include "client/core/filesystem_impl.h"

namespace nacre::client {

namespace {
constexpr size_t kMaxStatfs = 64;
constexpr Nanos kStatfsLimit = 1 * kSecond;
}  // namespace

Task<Result<Attr>> FilesystemImpl::getattr(Ino ino, Caller caller) {
  wire::GetattrRequestT request;
  request.ino = ino.v;
  if (auto inode = core_->inodes.find(ino)) request.unwritten = !inode->ever_written.load();
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kGetattr>(std::move(request), begin("Getattr", std::move(caller))));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Getattr reply without attributes");
  co_return core_->shown(std::move(reply.attr));
}

Task<Result<Attr>> FilesystemImpl::setattr(Ino ino, SetAttr change, Caller caller) {
  CO_CHECK_OK(may_change());
  if ((change.valid & wire::kSetSize) && change.size > kMaxFileSize) co_return Err(Errc::kFBig);
  auto file = as_file(change.handle);
  if (file && file->stale) co_return Err(Errc::kStale, "the file was open in a session that the metadata server has evicted");
  if (change.valid & (wire::kSetAtime | wire::kSetAtimeNow)) core_->atimes.forget(ino);
  wire::SetattrRequestT request;
  request.ino = ino.v;
  request.valid = change.valid;
  request.mode = change.mode;
  request.uid = change.uid;
  request.gid = change.gid;
  request.size = change.size;
  request.atime = change.atime;
  request.mtime = change.mtime;
  request.handle = file ? file->number() : 0;
  request.kill_priv = change.kill_priv;
  CallExtra extra;
  if (file) extra.session = file->session();
  auto op = begin(change.valid & wire::kSetSize ? "truncate" : "Setattr", std::move(caller));
  auto reply = co_await core_->mds.call<rpc::Method::kSetattr>(std::move(request), op, std::move(extra));
  if (change.valid & wire::kSetSize) {
    // The objects have been cut, or (without an answer) may have been: what this client knew of their sizes is void.
    if (auto inode = core_->inodes.find(ino)) {
      inode->forget_reports();
      inode->mark_unsure();
    }
  }
  if (!reply) co_return std::unexpected(std::move(reply).error());
  core_->adopt_if_open(ino, reply->layout.get(), reply->cap.get());
  if (!reply->attr) co_return Err(Errc::kProtocol, "a Setattr reply without attributes");
  co_return core_->shown(std::move(reply->attr));
}

Task<Result<void>> FilesystemImpl::access(Ino ino, uint32_t mask, Caller caller) {
  wire::AccessRequestT request;
  request.ino = ino.v;
  request.mask = mask;
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kAccess>(std::move(request), begin("Access", std::move(caller))));
  co_return Result<void>{};
}

Task<Result<std::string>> FilesystemImpl::xattr_get(Ino ino, std::string name, Caller caller) {
  wire::XattrGetRequestT request;
  request.ino = ino.v;
  request.name = std::move(name);
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kXattrGet>(std::move(request), begin("XattrGet", std::move(caller))));
  co_return std::string(as_text(reply.value));
}

Task<Result<void>> FilesystemImpl::xattr_set(Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid, Caller caller) {
  CO_CHECK_OK(may_change());
  if (name.empty() || name.size() > kMaxName) co_return Err(Errc::kRange, "a name of an extended attribute has 1 to 255 bytes");
  if (value.size() > kMaxXattrValue) co_return Err(Errc::kTooBig, fmt::format("an extended attribute of {} bytes, the limit is {}", value.size(), kMaxXattrValue));
  wire::XattrSetRequestT request;
  request.ino = ino.v;
  request.name = std::move(name);
  request.value = as_bytes(value);
  request.flags = flags;
  request.kill_sgid = kill_sgid;
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kXattrSet>(std::move(request), begin("XattrSet", std::move(caller))));
  co_return Result<void>{};
}

Task<Result<std::vector<std::string>>> FilesystemImpl::xattr_list(Ino ino, Caller caller) {
  wire::XattrListRequestT request;
  request.ino = ino.v;
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kXattrList>(std::move(request), begin("XattrList", std::move(caller))));
  co_return std::move(reply.names);
}

Task<Result<void>> FilesystemImpl::xattr_remove(Ino ino, std::string name, Caller caller) {
  CO_CHECK_OK(may_change());
  wire::XattrRemoveRequestT request;
  request.ino = ino.v;
  request.name = std::move(name);
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kXattrRemove>(std::move(request), begin("XattrRemove", std::move(caller))));
  co_return Result<void>{};
}

Task<Result<wire::StatfsReplyT>> FilesystemImpl::statfs(Ino ino, Caller caller) {
  auto op = begin("Statfs", std::move(caller));
  op->limit(core_->clock().boot() + kStatfsLimit);
  wire::StatfsRequestT request;
  request.ino = ino.v;
  auto reply = co_await core_->mds.call<rpc::Method::kStatfs>(std::move(request), op);
  std::lock_guard lock(mutex_);
  if (reply) {
    if (last_statfs_.size() >= kMaxStatfs && !last_statfs_.contains(ino.v)) last_statfs_.erase(last_statfs_.begin());
    last_statfs_[ino.v] = *reply;
    co_return std::move(*reply);
  }
  if (reply.error().code == Errc::kNoEnt || reply.error().code == Errc::kStale) co_return std::move(reply);
  if (auto it = last_statfs_.find(ino.v); it != last_statfs_.end()) co_return it->second;
  if (!last_statfs_.empty()) co_return last_statfs_.begin()->second;
  co_return Err(Errc::kUnavailable, "statfs: the metadata server doesn't answer and there are no earlier figures");
}

}  // namespace nacre::client
