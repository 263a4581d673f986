// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/notify.h"

#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "client/fuse/kernel.h"
#include "common/log/log.h"

namespace nacre::fuse {
namespace {
/// How long a loop may be held up. What is waited for takes a microsecond; only a page that is just being read is locked longer.
constexpr auto kPatience = std::chrono::milliseconds(5);

/// 0 or -errno.
template <class T>
int notify(int fd, int32_t code, const T& body, std::string_view data = {}) {
  fuse_out_header header{};
  header.len = static_cast<uint32_t>(sizeof header + sizeof body + data.size());
  header.error = code;
  const iovec iov[3] = {{&header, sizeof header}, {const_cast<T*>(&body), sizeof body}, {const_cast<char*>(data.data()), data.size()}};
  return ::writev(fd, iov, data.empty() ? 2 : 3) < 0 ? -errno : 0;
}
}  // namespace

Notifier::Notifier() : thread_([this] { run(); }) { (void)pthread_setname_np(thread_.native_handle(), "nacre-notify"); }

Notifier::~Notifier() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void Notifier::set_device(int fd) {
  std::unique_lock lock(mutex_);
  fd_ = fd;
  if (fd < 0) done_.wait(lock, [&] { return !busy_; });
}

void Notifier::size_grew(uint64_t nodeid, uint64_t size) {
  std::unique_lock lock(mutex_);
  if (fd_ < 0 || size == 0 || stopping_) return;
  if (queue_.size() >= kMaxQueued) {
    log::warn("the kernel was not told that inode {} grew to {} bytes: {} such notes wait for pages that are being read", nodeid, size, queue_.size());
    return;
  }
  const uint64_t number = next_++;
  queue_.push_back({nodeid, size, number});
  work_.notify_one();
  (void)done_.wait_for(lock, kPatience, [&] { return finished_ >= number; });
}

Result<void> Notifier::drop_names() {
  std::lock_guard lock(mutex_);
  if (fd_ < 0) return {};
  fuse_out_header header{};
  header.len = sizeof header;
  header.error = kernel::kNotifyIncEpoch;
  if (::write(fd_, &header, sizeof header) < 0) return Err(errno == EINVAL ? Errc::kOpNotSupp : from_errno(errno), "the kernel can't drop cached names");
  return {};
}

void Notifier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Item item = queue_.front();
    queue_.pop_front();
    const int fd = fd_;
    busy_ = true;
    lock.unlock();
    if (fd >= 0) store(fd, item);
    lock.lock();
    busy_ = false;
    finished_ = item.number;
    done_.notify_all();
  }
}

/// Storing a byte at the end makes the kernel take the new size (it does for nothing less). The byte is not the file's: the page
/// is dropped at once, which only mappings of the file notice, by reading it again.
void Notifier::store(int fd, const Item& item) {
  fuse_notify_store_out store{};
  store.nodeid = item.nodeid;
  store.offset = item.size - 1;
  store.size = 1;
  const int r = notify(fd, FUSE_NOTIFY_STORE, store, std::string_view("\0", 1));
  if (r == -ENOENT) return;  // the kernel has forgotten the inode: it will ask
  if (r < 0) log::debug("the kernel did not take the new size of inode {}: {}", item.nodeid, std::strerror(-r));
  fuse_notify_inval_inode_out inval{};
  inval.ino = item.nodeid;
  inval.off = static_cast<int64_t>(item.size - 1);
  inval.len = 1;
  (void)notify(fd, FUSE_NOTIFY_INVAL_INODE, inval);
}

}  // namespace nacre::fuse
