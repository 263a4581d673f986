// SPDX-License-Identifier: Apache-2.0
// A filesystem in memory behind the client core's interface, so that the FUSE front can be tried without servers. One mutex;
// any loop. Knobs make operations wait, so that interrupts and concurrency can be seen.
#pragma once
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/core/filesystem.h"

namespace nacre::test {

struct MemoryKnobs {
  std::atomic<int64_t> data_delay{0};     ///< ns that reads and writes take
  std::atomic<bool> hold_reads{false};    ///< reads wait until this is false, or are cancelled
  std::atomic<bool> hold_lookups{false};
  // what was seen
  std::atomic<int> writes_now{0}, writes_at_once{0};
  std::atomic<uint64_t> reads{0}, writes{0}, largest_read{0}, largest_write{0}, page_writes{0}, kill_priv{0}, unaligned{0}, lookups{0}, readdirs{0}, plus_readdirs{0};
  std::atomic<uint64_t> cancelled{0}, releases{0}, flushes{0}, groups_asked{0};
};

class MemoryFs final : public client::Filesystem {
 public:
  explicit MemoryFs(Runtime& runtime);
  ~MemoryFs() override;
  MemoryKnobs knobs;
  uint64_t ino_of(const std::string& name);  ///< of a name in the root, 0 = none
  void append_behind(const std::string& name, std::string_view bytes);  ///< as another client would
  size_t open_handles();

  Task<Result<void>> connect(Nanos, CancelPtr) override;
  Task<void> disconnect(Nanos) override;
  client::Attr root() const override;
  client::ClientStatus status() const override;
  Task<Result<client::Attr>> lookup(Ino parent, std::string name, client::Caller caller) override;
  Task<Result<client::Attr>> mknod(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint64_t rdev, client::Caller caller) override;
  Task<Result<client::Attr>> mkdir(Ino parent, std::string name, uint32_t mode, uint32_t umask, client::Caller caller) override;
  Task<Result<client::Attr>> symlink(Ino parent, std::string name, std::string target, client::Caller caller) override;
  Task<Result<void>> unlink(Ino parent, std::string name, client::Caller caller) override;
  Task<Result<void>> rmdir(Ino parent, std::string name, client::Caller caller) override;
  Task<Result<void>> rename(client::RenameArgs args, client::Caller caller) override;
  Task<Result<client::Attr>> link(Ino ino, Ino new_parent, std::string new_name, client::Caller caller) override;
  Task<Result<std::string>> readlink(Ino ino, client::Caller caller) override;
  Task<Result<client::Attr>> getattr(Ino ino, client::Caller caller) override;
  Task<Result<client::Attr>> setattr(Ino ino, client::SetAttr change, client::Caller caller) override;
  Task<Result<void>> access(Ino ino, uint32_t mask, client::Caller caller) override;
  Task<Result<std::string>> xattr_get(Ino ino, std::string name, client::Caller caller) override;
  Task<Result<void>> xattr_set(Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid, client::Caller caller) override;
  Task<Result<std::vector<std::string>>> xattr_list(Ino ino, client::Caller caller) override;
  Task<Result<void>> xattr_remove(Ino ino, std::string name, client::Caller caller) override;
  Task<Result<wire::StatfsReplyT>> statfs(Ino ino, client::Caller caller) override;
  Task<Result<client::HandlePtr>> opendir(Ino ino, uint32_t flags, client::Caller caller) override;
  Task<Result<wire::ReaddirReplyT>> readdir(client::HandlePtr dir, uint64_t cookie, uint32_t max_bytes, bool plus, client::Caller caller) override;
  Task<Result<void>> releasedir(client::HandlePtr dir) override;
  Task<Result<void>> fsyncdir(client::HandlePtr dir, client::Caller caller) override;
  Task<Result<client::OpenResult>> create(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint32_t flags, client::Caller caller) override;
  Task<Result<client::OpenResult>> open(Ino ino, uint32_t flags, client::Caller caller) override;
  Task<Result<uint64_t>> read(client::HandlePtr file, uint64_t offset, Buffer into, client::Caller caller) override;
  Task<Result<client::WriteResult>> write(client::HandlePtr file, uint64_t offset, Buffer data, client::WriteOptions options, client::Caller caller) override;
  Task<Result<void>> flush(client::HandlePtr file, uint64_t lock_owner, client::Caller caller) override;
  Task<Result<void>> release(client::HandlePtr file, uint64_t flock_owner) override;
  Task<Result<void>> fsync(client::HandlePtr file, bool data_only, client::Caller caller) override;
  Task<Result<void>> fallocate(client::HandlePtr file, uint32_t mode, uint64_t offset, uint64_t length, client::Caller caller) override;
  Task<Result<uint64_t>> lseek(client::HandlePtr file, uint64_t offset, client::Seek whence, client::Caller caller) override;
  Task<Result<uint64_t>> copy_file_range(client::HandlePtr in, client::HandlePtr out, client::CopyArgs args, client::Caller caller) override;
  Task<Result<wire::LockSpecT>> lock_test(client::HandlePtr file, wire::LockSpecT spec, client::Caller caller) override;
  Task<Result<void>> lock_set(client::HandlePtr file, wire::LockSpecT spec, bool wait, client::Caller caller) override;
  Task<Result<void>> sync_all(client::Caller caller) override;
  Task<Result<Bytes>> call_method(uint16_t method, Bytes body, client::Caller caller) override;

 private:
  struct Entry { std::string name; uint64_t ino; };
  struct Node {
    client::Attr attr;
    std::string data, target;
    std::map<uint64_t, Entry> children;            // by cookie
    std::map<std::string, uint64_t> names;         // name to cookie
    std::map<std::string, std::string> xattrs;
    uint64_t parent = 1;
    int opens = 0;
    std::list<wire::LockSpecT> locks;
    std::vector<Signal> lock_waiters;
  };
  using NodePtr = std::shared_ptr<Node>;
  struct MemoryHandle;

  NodePtr find(Ino ino);
  Result<NodePtr> child(Node& dir, const std::string& name);
  Result<client::Attr> make(Ino parent, const std::string& name, uint32_t mode, const client::Caller& caller, NodePtr* out = nullptr);
  void add_name(Node& dir, const std::string& name, uint64_t ino);
  void drop_name(Node& dir, const std::string& name);
  void forget_if_unused(const NodePtr& n);
  void touch(Node& n, bool data);
  void resize(Node& n, uint64_t size);
  client::HandlePtr handle(const NodePtr& n, uint32_t flags);
  bool conflicts(const Node& n, const wire::LockSpecT& want, wire::LockSpecT* found = nullptr);
  void put_lock(Node& n, const wire::LockSpecT& spec);
  void drop_locks(Node& n, bool flock, uint64_t owner);
  static void wake(Node& n);
  Task<Result<void>> held(std::atomic<bool>& hold, client::Caller caller);

  Runtime& runtime_;
  std::mutex mutex_;
  std::map<uint64_t, NodePtr> nodes_;
  uint64_t next_ino_ = 2, next_cookie_ = 16, next_handle_ = 1;
  size_t handles_ = 0;
};

}  // namespace nacre::test
