// SPDX-License-Identifier: Apache-2.0
// Opening and closing, fsync, fallocate. An open whose caller gave up is closed again when its answer comes after all.
#include <fcntl.h>
#include <linux/falloc.h>

#include "client/core/filesystem_impl.h"
#include "common/log/log.h"

namespace nacre::client {

namespace {
bool opens_for_change(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC); }

/// Tells the server that nobody uses this handle.
Task<void> close_unwanted(std::shared_ptr<Core> core, Ino ino, uint64_t handle) {
  wire::CloseRequestT request;
  request.ino = ino.v;
  request.handle = handle;
  auto op = make_op(core, "Close", Caller{});
  op->unlimited();
  (void)co_await core->mds.call<rpc::Method::kClose>(std::move(request), op);
}

std::function<void(Result<rpc::Reply>)> close_when_answered(std::shared_ptr<Core> core, uint64_t handle) {
  return [core, handle](Result<rpc::Reply> reply) {
    if (!reply) return;
    auto opened = decode<wire::OpenReplyT>(reply->body);
    if (opened && opened->attr) Loop::current()->spawn(close_unwanted(core, Ino(opened->attr->ino), handle));
  };
}
}  // namespace

Task<Result<OpenResult>> FilesystemImpl::opened(std::unique_ptr<wire::AttrT> attr, wire::OpenReplyT reply, FileHandlePtr handle, bool crossed_restart, OpPtr op) {
  core_->adopt(*handle->inode(), reply.layout.get(), reply.cap.get());
  handle->inode()->add(handle);
  if (crossed_restart) {
    // The open was made before the server's restart and is not in what was reclaimed.
    auto known = co_await core_->mds.reclaim_open(handle->ino(), handle->number(), handle->flags(), op);
    if (!known) {
      handle->inode()->remove(handle);
      co_return std::unexpected(std::move(known).error());
    }
  }
  OpenResult out;
  out.attr = core_->shown(std::move(attr));
  out.created = reply.created;
  out.handle = handle;
  co_return out;
}

Task<Result<OpenResult>> FilesystemImpl::create(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint32_t flags, Caller caller) {
  CO_CHECK_OK(may_change());
  if (!name.empty()) CO_CHECK_OK(check_name(name));
  auto op = begin("Create", std::move(caller));
  wire::CreateRequestT request;
  request.parent = parent.v;
  request.name = as_bytes(name);
  request.mode = mode;
  request.umask = umask;
  request.flags = flags;
  uint64_t number = request.handle = core_->next_handle();
  bool crossed = false;
  CallExtra extra;
  extra.crossed_restart = &crossed;
  extra.abandoned = close_when_answered(core_, number);
  const uint64_t losses = core_->mds.losses();
  CO_TRY(wire::OpenReplyT reply, co_await core_->mds.call<rpc::Method::kCreate>(std::move(request), op, std::move(extra)));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Create reply without attributes");
  auto attr = std::move(reply.attr);
  Ino ino(attr->ino);
  auto handle = std::make_shared<FileHandle>(core_->inodes.get(ino), ino, number, flags, core_->mds.session(), false);
  handle->losses_seen = losses;
  co_return co_await opened(std::move(attr), std::move(reply), handle, crossed, op);
}

Task<Result<OpenResult>> FilesystemImpl::open(Ino ino, uint32_t flags, Caller caller) {
  if (opens_for_change(flags)) CO_CHECK_OK(may_change());
  auto op = begin("Open", std::move(caller));
  wire::OpenRequestT request;
  request.ino = ino.v;
  request.flags = flags;
  uint64_t number = request.handle = core_->next_handle();
  bool crossed = false;
  CallExtra extra;
  extra.crossed_restart = &crossed;
  extra.abandoned = close_when_answered(core_, number);
  if (flags & O_TRUNC) {
    if (auto inode = core_->inodes.find(ino)) inode->mark_unsure();
  }
  const uint64_t losses = core_->mds.losses();
  CO_TRY(wire::OpenReplyT reply, co_await core_->mds.call<rpc::Method::kOpen>(std::move(request), op, std::move(extra)));
  if (!reply.attr) co_return Err(Errc::kProtocol, "an Open reply without attributes");
  auto attr = std::move(reply.attr);
  auto inode = core_->inodes.get(ino);
  if (flags & O_TRUNC) inode->forget_reports();
  auto handle = std::make_shared<FileHandle>(inode, ino, number, flags, core_->mds.session(), false);
  handle->losses_seen = losses;
  co_return co_await opened(std::move(attr), std::move(reply), handle, crossed, op);
}

Task<Result<void>> Core::close_handle(std::shared_ptr<Core> self, FileHandlePtr handle, uint64_t flock_owner, Nanos deadline) {
  if (handle->is_directory() || handle->released.exchange(true)) co_return Result<void>{};
  auto inode = handle->inode();
  if (handle->stale) {
    inode->remove(handle);
    co_return Result<void>{};
  }
  wire::CloseRequestT request;
  request.ino = handle->ino().v;
  request.handle = handle->number();
  if (handle->writable()) {
    request.objects = inode->reports();
    request.unsure = inode->unsure();
  }
  request.lock_owner = flock_owner;
  request.unlock_flock = flock_owner != 0;
  Nanos atime = request.atime = atimes.of(handle->ino());
  auto op = make_op(self, "Close", Caller{});
  op->limit(deadline);
  CallExtra extra;
  extra.session = handle->session();
  auto reply = co_await mds.call<rpc::Method::kClose>(std::move(request), op, std::move(extra));
  inode->remove(handle);
  if (flock_owner) locks.forget_owner(handle->ino(), flock_owner, true);
  if (!reply && reply.error().code == Errc::kStale) co_return Result<void>{};  // evicted: nothing is open there any more
  if (!reply) co_return std::unexpected(std::move(reply).error());
  if (atime) atimes.reported({wire::AtimeReport(handle->ino().v, atime)});
  co_return Result<void>{};
}

Task<void> Core::close_later(std::shared_ptr<Core> self, FileHandlePtr handle) { (void)co_await self->close_handle(self, handle, 0); }

Task<Result<void>> FilesystemImpl::release(HandlePtr file, uint64_t flock_owner) {
  co_return co_await core_->close_handle(core_, as_file(file), flock_owner);
}

Task<Result<void>> FilesystemImpl::flush(HandlePtr handle, uint64_t lock_owner, Caller caller) {
  auto file = as_file(handle);
  if (file->is_directory()) co_return Result<void>{};
  if (!file->stale && core_->locks.holds(file->ino(), lock_owner, false)) {
    // POSIX: the first close of any descriptor frees the process's locks, and has done so when it returns.
    wire::CloseRequestT request;
    request.ino = file->ino().v;
    request.handle = file->number();
    request.flush_only = true;
    request.lock_owner = lock_owner;
    caller.cancel = nullptr;
    CallExtra extra;
    extra.session = file->session();
    auto freed = co_await core_->mds.call<rpc::Method::kClose>(std::move(request), begin("Flush", std::move(caller)), std::move(extra));
    if (freed) core_->locks.forget_owner(file->ino(), lock_owner, false);
    if (!freed) log::warn("inode {}: locks of a closing process were not freed: {}", file->ino(), freed.error().message());
  }
  if (auto error = file->inode()->take_error(*file)) co_return Err(std::move(*error));
  co_return Result<void>{};
}

Task<Result<void>> Core::commit_inode(InodePtr inode, OpPtr op) {
  std::vector<Task<Result<void>>> commits;
  auto commit = [](TargetPtr t, uint64_t wseq, OpPtr op) -> Task<Result<void>> { co_return co_await t->commit(wseq, op); };
  for (auto& [ost, wseq] : inode->written_up_to()) {
    auto t = target(OstId(ost));
    if (t) commits.push_back(commit(t, wseq, op));
  }
  Result<void> out;
  for (auto& done : co_await when_all(std::move(commits)))
    if (!done && out) out = done;
  co_return out;
}

Task<Result<void>> Core::commit_all(OpPtr op) {
  std::vector<Task<Result<void>>> commits;
  auto commit = [](TargetPtr t, OpPtr op) -> Task<Result<void>> { co_return co_await t->commit(0, op); };
  for (auto& t : targets())
    if (t->retained_bytes() > 0) commits.push_back(commit(t, op));
  Result<void> out;
  for (auto& done : co_await when_all(std::move(commits)))
    if (!done && out) out = done;
  co_return out;
}

Task<Result<void>> FilesystemImpl::fsync(HandlePtr handle, bool, Caller caller) {
  // fdatasync needs the journal too: without it the size and the objects' names could be lost.
  auto file = as_file(handle);
  if (file->is_directory()) co_return co_await fsyncdir(handle, std::move(caller));
  if (file->stale) co_return Err(Errc::kStale, "the file was open in a session that the metadata server has evicted");
  auto op = begin("fsync", std::move(caller));
  auto sync = [](std::shared_ptr<Core> core, Ino ino, OpPtr op) -> Task<Result<void>> {
    wire::SyncRequestT request;
    request.ino = ino.v;
    CO_CHECK_OK(co_await core->mds.call<rpc::Method::kSync>(std::move(request), op));
    co_return Result<void>{};
  };
  std::vector<Task<Result<void>>> both;
  both.push_back(core_->commit_inode(file->inode(), op));
  both.push_back(sync(core_, file->ino(), op));
  Result<void> out;
  for (auto& done : co_await when_all(std::move(both)))
    if (!done && out) out = done;
  if (file->stale) co_return Err(Errc::kStale, "the file's open was lost in a restart of the metadata server");
  if (out) out = core_->mds.nothing_lost(file->losses_seen);
  if (auto error = file->inode()->take_error(*file); error && out) co_return Err(std::move(*error));
  co_return out;
}

Task<Result<void>> FilesystemImpl::fallocate(HandlePtr handle, uint32_t mode, uint64_t offset, uint64_t length, Caller caller) {
  CO_CHECK_OK(may_change());
  auto file = as_file(handle);
  if (!file->writable()) co_return Err(Errc::kBadF);
  if (file->stale) co_return Err(Errc::kStale, "the file was open in a session that the metadata server has evicted");
  if (mode & ~static_cast<uint32_t>(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) co_return Err(Errc::kOpNotSupp);
  if ((mode & FALLOC_FL_PUNCH_HOLE) && (!(mode & FALLOC_FL_KEEP_SIZE) || (mode & FALLOC_FL_ZERO_RANGE))) co_return Err(Errc::kOpNotSupp);
  if (length == 0) co_return Err(Errc::kInval);
  if (offset > kMaxFileSize || length > kMaxFileSize - offset) co_return Err(Errc::kFBig);
  wire::FallocateRequestT request;
  request.ino = file->ino().v;
  request.handle = file->number();
  request.mode = mode;
  request.offset = offset;
  request.length = length;
  CallExtra extra;
  extra.session = file->session();
  auto reply = co_await core_->mds.call<rpc::Method::kFallocate>(std::move(request), begin("fallocate", std::move(caller)), std::move(extra));
  file->inode()->forget_reports();
  file->inode()->mark_unsure();
  if (!reply) co_return std::unexpected(std::move(reply).error());
  core_->adopt(*file->inode(), reply->layout.get(), reply->cap.get());
  co_return Result<void>{};
}

}  // namespace nacre::client
