// SPDX-License-Identifier: Apache-2.0
// What the two file devices (uring_device.cc, thread_device.cc) share: the open, locked file and its arithmetic. Private to common/io.
#pragma once
#include <memory>
#include <string>

#include "common/io/block_device.h"

namespace nacre::io_detail {

inline constexpr int kMaxRetries = 100;  ///< of one request that the kernel answers with EAGAIN or EINTR

/// The file, exclusively locked while this lives.
class LockedFile {
 public:
  /// Waits for the lock as long as told, in a sleep of this thread.
  static Result<LockedFile> open(const std::string& path, bool direct, Nanos lock_wait);
  LockedFile(LockedFile&& other) noexcept;
  LockedFile& operator=(LockedFile&&) = delete;
  ~LockedFile();

  /// Lets the lock go before the last descriptor does: an io_uring that has the file registered is one.
  void unlock() const;
  int fd() const { return fd_; }
  bool direct() const { return direct_; }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t backing_free() const;
  /// kInval for data I/O that is misaligned or past the capacity.
  Result<void> check(uint64_t offset, uint64_t length, const void* memory) const;
  Error error(const char* what, uint64_t offset, uint64_t length, int err) const;
  Result<void> punch(uint64_t offset, uint64_t length) const;

 private:
  LockedFile() = default;
  int fd_ = -1;
  bool direct_ = false;
  std::string path_;
  uint64_t size_ = 0;
};

/// What to do after the kernel has moved `result` (≥ 0) more bytes of a request of which `done` of `total` were there.
/// Direct I/O goes on at whole blocks only; a read that ends inside one has met the end of the file.
struct Progress { size_t done; bool at_end; };
Progress advance(bool is_read, bool direct, size_t done, size_t total, size_t result);

/// nullptr where the kernel refuses io_uring or lacks an operation; `why` then says so.
std::unique_ptr<BlockDevice> uring_device(Runtime& runtime, LockedFile& file, uint32_t queue_depth, std::string& why);
std::unique_ptr<BlockDevice> thread_device(LockedFile file);

}  // namespace nacre::io_detail
