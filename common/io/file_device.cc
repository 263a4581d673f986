// SPDX-License-Identifier: Apache-2.0
// Opens a file as a block device and chooses how it is read and written.
#include "common/io/file_device.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "common/base/units.h"
#include "common/log/log.h"

namespace nacre {
namespace io_detail {
namespace {
constexpr Nanos kLockPause = 10 * kMillisecond;

/// flock(2), tried again until `wait` is over. 0 or an errno.
int lock(int fd, Nanos wait) {
  for (;; wait -= kLockPause) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
    if (errno != EWOULDBLOCK || wait <= 0) return errno;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLockPause));
  }
}
}  // namespace

Result<LockedFile> LockedFile::open(const std::string& path, bool direct, Nanos lock_wait) {
  LockedFile f;
  f.path_ = path;
  f.direct_ = direct;
  f.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (f.fd_ < 0) {
    const int err = errno;
    if (err == EINVAL && direct) return Err(Errc::kConfig, fmt::format("the filesystem of {} refuses O_DIRECT: set io = \"buffered\"", path));
    return Err(err == ENOENT ? Errc::kNoEnt : from_errno(err), fmt::format("{} can't be opened: {}", path, std::strerror(err)));
  }
  struct stat st {};
  if (::fstat(f.fd_, &st) != 0) return Err(Errc::kIo, fmt::format("{} can't be examined: {}", path, std::strerror(errno)));
  if (!S_ISREG(st.st_mode)) return Err(Errc::kConfig, fmt::format("{} is no regular file", path));
  const int refused = lock(f.fd_, lock_wait);
  if (refused == EWOULDBLOCK) return Err(Errc::kInUse, fmt::format("{} is in use by another process: a second server on the same data would destroy it", path));
  if (refused != 0) return Err(Errc::kIo, fmt::format("{} can't be locked: {}", path, std::strerror(refused)));
  f.size_ = static_cast<uint64_t>(st.st_size);
  return f;
}

LockedFile::LockedFile(LockedFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), direct_(other.direct_), path_(std::move(other.path_)), size_(other.size_) {}

LockedFile::~LockedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void LockedFile::unlock() const { (void)::flock(fd_, LOCK_UN); }

uint64_t LockedFile::backing_free() const {
  struct statvfs s {};
  if (::fstatvfs(fd_, &s) != 0) return 0;
  return static_cast<uint64_t>(s.f_bavail) * s.f_frsize;
}

Result<void> LockedFile::check(uint64_t offset, uint64_t length, const void* memory) const {
  if (offset % kBlockSize != 0 || length % kBlockSize != 0 || reinterpret_cast<uintptr_t>(memory) % kBlockSize != 0)
    return Err(Errc::kInval, fmt::format("{}: {} bytes at {} are not aligned to 4 KiB", path_, length, offset));
  if (offset > size_ || length > size_ - offset) return Err(Errc::kInval, fmt::format("{}: {} bytes at {} lie past the capacity of {}", path_, length, offset, size_));
  return {};
}

Error LockedFile::error(const char* what, uint64_t offset, uint64_t length, int err) const {
  return {err == ENOSPC ? Errc::kNoSpc : Errc::kIo, fmt::format("{} of {} bytes at {} of {} failed: {}", what, length, offset, path_, std::strerror(err))};
}

Result<void> LockedFile::punch(uint64_t offset, uint64_t length) const {
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0)
    return Err(error("punching", offset, length, errno));
  return {};
}

Progress advance(bool is_read, bool direct, size_t done, size_t total, size_t result) {
  done = std::min(done + result, total);
  if (result == 0) return {done, is_read};
  if (direct && done < total && done % kBlockSize != 0) return {is_read ? done : round_down(done, kBlockSize), is_read};
  return {done, false};
}
}  // namespace io_detail

Result<std::unique_ptr<BlockDevice>> open_file_device(Runtime& runtime, FileDeviceOptions options) {
  NACRE_TRY(io_detail::LockedFile file, io_detail::LockedFile::open(options.path, options.direct, options.lock_wait));
  if (options.allow_uring) {
    std::string why;
    if (auto device = io_detail::uring_device(runtime, file, options.queue_depth, why)) return device;
    log::warn("{}: io_uring is not available ({}); blocks are read and written by workers, which costs throughput", options.path, why);
  }
  return io_detail::thread_device(std::move(file));
}
}  // namespace nacre
