// SPDX-License-Identifier: Apache-2.0
// Filesystem over Core. The methods lie in names.cc, attributes.cc, directories.cc, files.cc, read.cc, write.cc, seek_copy.cc,
// lock_ops.cc and tools.cc; each is one operation.
#pragma once
#include <set>

#include "client/core/core.h"

namespace nacre::client {

/// File bytes on their way to the targets.
struct WriteJob {
  InodePtr inode;
  FileHandlePtr handle;
  Buffer data;
  uint64_t offset = 0;
  bool may_retain = false;
  OpPtr op;
};

class FilesystemImpl final : public Filesystem {
 public:
  explicit FilesystemImpl(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  ~FilesystemImpl() override { core_->stop->fire(Error(Errc::kShutdown)); }

  Task<Result<void>> connect(Nanos deadline, CancelPtr cancel) override;
  Task<void> disconnect(Nanos limit) override;
  Attr root() const override { return core_->mds.root(); }
  ClientStatus status() const override { return core_->status(); }

  Task<Result<Attr>> lookup(Ino parent, std::string name, Caller caller) override;
  Task<Result<Attr>> mknod(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint64_t rdev, Caller caller) override;
  Task<Result<Attr>> mkdir(Ino parent, std::string name, uint32_t mode, uint32_t umask, Caller caller) override;
  Task<Result<Attr>> symlink(Ino parent, std::string name, std::string target, Caller caller) override;
  Task<Result<void>> unlink(Ino parent, std::string name, Caller caller) override;
  Task<Result<void>> rmdir(Ino parent, std::string name, Caller caller) override;
  Task<Result<void>> rename(RenameArgs args, Caller caller) override;
  Task<Result<Attr>> link(Ino ino, Ino new_parent, std::string new_name, Caller caller) override;
  Task<Result<std::string>> readlink(Ino ino, Caller caller) override;

  Task<Result<Attr>> getattr(Ino ino, Caller caller) override;
  Task<Result<Attr>> setattr(Ino ino, SetAttr change, Caller caller) override;
  Task<Result<void>> access(Ino ino, uint32_t mask, Caller caller) override;
  Task<Result<std::string>> xattr_get(Ino ino, std::string name, Caller caller) override;
  Task<Result<void>> xattr_set(Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid, Caller caller) override;
  Task<Result<std::vector<std::string>>> xattr_list(Ino ino, Caller caller) override;
  Task<Result<void>> xattr_remove(Ino ino, std::string name, Caller caller) override;
  Task<Result<wire::StatfsReplyT>> statfs(Ino ino, Caller caller) override;

  Task<Result<HandlePtr>> opendir(Ino ino, uint32_t flags, Caller caller) override;
  Task<Result<wire::ReaddirReplyT>> readdir(HandlePtr dir, uint64_t cookie, uint32_t max_bytes, bool plus, Caller caller) override;
  Task<Result<void>> releasedir(HandlePtr dir) override;
  Task<Result<void>> fsyncdir(HandlePtr dir, Caller caller) override;

  Task<Result<OpenResult>> create(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint32_t flags, Caller caller) override;
  Task<Result<OpenResult>> open(Ino ino, uint32_t flags, Caller caller) override;
  Task<Result<uint64_t>> read(HandlePtr file, uint64_t offset, Buffer into, Caller caller) override;
  Task<Result<WriteResult>> write(HandlePtr file, uint64_t offset, Buffer data, WriteOptions options, Caller caller) override;
  Task<Result<void>> flush(HandlePtr file, uint64_t lock_owner, Caller caller) override;
  Task<Result<void>> release(HandlePtr file, uint64_t flock_owner) override;
  Task<Result<void>> fsync(HandlePtr file, bool data_only, Caller caller) override;
  Task<Result<void>> fallocate(HandlePtr file, uint32_t mode, uint64_t offset, uint64_t length, Caller caller) override;
  Task<Result<uint64_t>> lseek(HandlePtr file, uint64_t offset, Seek whence, Caller caller) override;
  Task<Result<uint64_t>> copy_file_range(HandlePtr in, HandlePtr out, CopyArgs args, Caller caller) override;

  Task<Result<wire::LockSpecT>> lock_test(HandlePtr file, wire::LockSpecT spec, Caller caller) override;
  Task<Result<void>> lock_set(HandlePtr file, wire::LockSpecT spec, bool wait, Caller caller) override;

  Task<Result<void>> sync_all(Caller caller) override;
  Task<Result<Bytes>> call_method(uint16_t method, Bytes body, Caller caller) override;

 private:
  OpPtr begin(const char* name, Caller caller) const { return make_op(core_, name, std::move(caller)); }
  Result<void> may_change() const;                      ///< kRoFs on a read-only mount
  Task<Result<OpenResult>> opened(std::unique_ptr<wire::AttrT> attr, wire::OpenReplyT reply, FileHandlePtr handle, bool crossed_restart, OpPtr op);
  Task<Result<uint64_t>> size_of(Ino ino, OpPtr op);
  Task<Result<void>> clear_privileges(FileHandlePtr file, bool suid_too, OpPtr op);
  Task<Result<WriteResult>> append(WriteJob job, uint64_t asked_offset);
  Task<Result<void>> commit_before_rename(RenameArgs args, OpPtr op);
  Task<Result<void>> lock_once(FileHandlePtr file, wire::LockSpecT spec, OpPtr op);
  Task<Result<void>> lock_wait(FileHandlePtr file, wire::LockSpecT spec, OpPtr op);
  Task<Result<Bytes>> migrate(wire::MigrateRequestT wish, Caller caller);  ///< migrate.cc
  Task<Result<wire::LayoutReplyT>> fresh_layout(FileHandlePtr file, OpPtr op);

  std::shared_ptr<Core> core_;
  mutable std::mutex mutex_;
  std::set<uint64_t> moved_;                            ///< inodes whose data this client is moving
  std::map<uint64_t, wire::StatfsReplyT> last_statfs_;  ///< by the inode asked about; at most kMaxStatfs
};

inline FileHandlePtr as_file(const HandlePtr& handle) { return std::static_pointer_cast<FileHandle>(handle); }
inline Result<void> check_name(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) return Err(Errc::kInval, "a name must not be empty or contain '/'");
  if (name.size() > kMaxName) return Err(Errc::kNameTooLong);
  return {};
}

/// Writes data at its offset: pieces in parallel, to wherever the layout says now. Returns the bytes written from the front.
Task<Result<uint64_t>> write_range(std::shared_ptr<Core> core, WriteJob job);
/// Reads into the buffer; returns the bytes up to the end of the file.
Task<Result<uint64_t>> read_range(std::shared_ptr<Core> core, FileHandlePtr handle, uint64_t offset, Buffer into, OpPtr op);

}  // namespace nacre::client
