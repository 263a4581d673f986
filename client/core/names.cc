// SPDX-License-Identifier: Apache-2.0
// Operations on names: lookup, mknod, mkdir, symlink, unlink, rmdir, rename, link, readlink.
#include <sys/stat.h>

#include "client/core/filesystem_impl.h"

namespace nacre::client {

Task<Result<Attr>> FilesystemImpl::lookup(Ino parent, std::string name, Caller caller) {
  CO_CHECK_OK(check_name(name));
  wire::LookupRequestT request;
  request.parent = parent.v;
  request.name = as_bytes(name);
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kLookup>(std::move(request), begin("Lookup", std::move(caller))));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Lookup reply without attributes");
  co_return core_->shown(std::move(reply.attr));
}

namespace {
Task<Result<Attr>> make_entry(std::shared_ptr<Core> core, wire::MknodRequestT request, OpPtr op) {
  CO_TRY(auto reply, co_await core->mds.call<rpc::Method::kMknod>(std::move(request), op));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Mknod reply without attributes");
  co_return core->shown(std::move(reply.attr));
}
}  // namespace

Task<Result<Attr>> FilesystemImpl::mknod(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint64_t rdev, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(name));
  wire::MknodRequestT request;
  request.parent = parent.v;
  request.name = as_bytes(name);
  request.mode = mode;
  request.umask = umask;
  request.rdev = rdev;
  co_return co_await make_entry(core_, std::move(request), begin("Mknod", std::move(caller)));
}

Task<Result<Attr>> FilesystemImpl::mkdir(Ino parent, std::string name, uint32_t mode, uint32_t umask, Caller caller) {
  return mknod(parent, std::move(name), (mode & ~static_cast<uint32_t>(S_IFMT)) | S_IFDIR, umask, 0, std::move(caller));
}

Task<Result<Attr>> FilesystemImpl::symlink(Ino parent, std::string name, std::string target, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(name));
  if (target.empty()) co_return Err(Errc::kNoEnt);
  if (target.size() > kMaxSymlink) co_return Err(Errc::kNameTooLong);
  wire::MknodRequestT request;
  request.parent = parent.v;
  request.name = as_bytes(name);
  request.mode = S_IFLNK | 0777;
  request.symlink = as_bytes(target);
  co_return co_await make_entry(core_, std::move(request), begin("Symlink", std::move(caller)));
}

namespace {
Task<Result<void>> remove_entry(std::shared_ptr<Core> core, Ino parent, std::string name, bool directory, OpPtr op) {
  wire::UnlinkRequestT request;
  request.parent = parent.v;
  request.name = as_bytes(name);
  request.rmdir = directory;
  CO_CHECK_OK(co_await core->mds.call<rpc::Method::kUnlink>(std::move(request), op));
  co_return Result<void>{};
}
}  // namespace

Task<Result<void>> FilesystemImpl::unlink(Ino parent, std::string name, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(name));
  co_return co_await remove_entry(core_, parent, std::move(name), false, begin("Unlink", std::move(caller)));
}

Task<Result<void>> FilesystemImpl::rmdir(Ino parent, std::string name, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(name));
  co_return co_await remove_entry(core_, parent, std::move(name), true, begin("Rmdir", std::move(caller)));
}

/// Programs that replace a file by writing a new one and renaming it count on the new data being there after a crash,
/// fsync or not (P1.24).
Task<Result<void>> FilesystemImpl::commit_before_rename(RenameArgs args, OpPtr op) {
  constexpr uint32_t kNoReplace = 1, kExchange = 2;
  if ((args.flags & (kNoReplace | kExchange)) || core_->retained_total.load(std::memory_order_relaxed) == 0) co_return Result<void>{};
  wire::LookupRequestT source;
  source.parent = args.parent.v;
  source.name = as_bytes(args.name);
  auto found = co_await core_->mds.call<rpc::Method::kLookup>(std::move(source), op);
  if (!found || !found->attr || !S_ISREG(found->attr->mode)) co_return Result<void>{};  // the rename itself tells what is wrong
  auto inode = core_->inodes.find(Ino(found->attr->ino));
  if (!inode) co_return Result<void>{};
  bool unstable = false;
  for (auto& t : core_->targets()) unstable = unstable || t->retains(inode->ino);
  if (!unstable) co_return Result<void>{};
  wire::LookupRequestT target;
  target.parent = args.new_parent.v;
  target.name = as_bytes(args.new_name);
  auto replaced = co_await core_->mds.call<rpc::Method::kLookup>(std::move(target), op);
  if (!replaced) co_return Result<void>{};
  co_return co_await core_->commit_inode(inode, op);
}

Task<Result<void>> FilesystemImpl::rename(RenameArgs args, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(args.name));
  CO_CHECK_OK(check_name(args.new_name));
  auto op = begin("Rename", std::move(caller));
  CO_CHECK_OK(co_await commit_before_rename(args, op));
  wire::RenameRequestT request;
  request.parent = args.parent.v;
  request.name = as_bytes(args.name);
  request.new_parent = args.new_parent.v;
  request.new_name = as_bytes(args.new_name);
  request.flags = args.flags;
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kRename>(std::move(request), op));
  co_return Result<void>{};
}

Task<Result<Attr>> FilesystemImpl::link(Ino ino, Ino new_parent, std::string new_name, Caller caller) {
  CO_CHECK_OK(may_change());
  CO_CHECK_OK(check_name(new_name));
  wire::LinkRequestT request;
  request.ino = ino.v;
  request.new_parent = new_parent.v;
  request.new_name = as_bytes(new_name);
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kLink>(std::move(request), begin("Link", std::move(caller))));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Link reply without attributes");
  co_return core_->shown(std::move(reply.attr));
}

Task<Result<std::string>> FilesystemImpl::readlink(Ino ino, Caller caller) {
  wire::ReadlinkRequestT request;
  request.ino = ino.v;
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kReadlink>(std::move(request), begin("Readlink", std::move(caller))));
  co_return std::string(as_text(reply.target));
}

}  // namespace nacre::client
