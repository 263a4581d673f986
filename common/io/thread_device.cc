// SPDX-License-Identifier: Apache-2.0
// The device for machines where io_uring is refused: pread and pwrite on workers. A buffered read that the page cache can
// answer is done on the loop itself (RWF_NOWAIT never waits for the disk).
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "common/io/file_device.h"

namespace nacre::io_detail {
namespace {
class ThreadDevice final : public BlockDevice {
 public:
  explicit ThreadDevice(LockedFile file) : file_(std::move(file)) {}

  Task<Result<void>> read(uint64_t offset, Buffer into) override {
    CO_CHECK_OK(file_.check(offset, into.size(), into.data()));
    const size_t done = file_.direct() ? 0 : read_cached(offset, into);
    if (done == into.size()) co_return Result<void>{};
    co_return co_await run_blocking([this, offset, into, done] { return move_all(true, offset, into, done); });
  }

  Task<Result<void>> write(uint64_t offset, Buffer from) override {
    CO_CHECK_OK(file_.check(offset, from.size(), from.data()));
    co_return co_await run_blocking([this, offset, from] { return move_all(false, offset, from, 0); });
  }

  Task<Result<void>> sync() override {
    co_return co_await run_blocking([this]() -> Result<void> {
      if (::fdatasync(file_.fd()) != 0) return Err(file_.error("syncing", 0, file_.size(), errno));
      return {};
    });
  }

  Task<Result<void>> punch(uint64_t offset, uint64_t length) override {
    CO_CHECK_OK(file_.check(offset, length, nullptr));
    if (length == 0) co_return Result<void>{};
    co_return co_await run_blocking([this, offset, length] { return file_.punch(offset, length); });
  }

  Task<void> prefetch(uint64_t offset, uint64_t length) override {
    if (file_.direct() || length == 0 || !file_.check(offset, length, nullptr)) co_return;
    co_await run_blocking([this, offset, length] { return ::posix_fadvise(file_.fd(), static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED); });
  }

  uint64_t size() const override { return file_.size(); }
  uint64_t backing_free() const override { return file_.backing_free(); }
  std::string kind() const override { return file_.direct() ? "threads direct" : "threads buffered"; }

 private:
  /// Bytes that the page cache had, in whole blocks.
  size_t read_cached(uint64_t offset, const Buffer& into) const {
    iovec v{into.data(), into.size()};
    const ssize_t n = ::preadv2(file_.fd(), &v, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    return n > 0 ? static_cast<size_t>(n) / 4096 * 4096 : 0;
  }

  Result<void> move_all(bool is_read, uint64_t offset, const Buffer& b, size_t done) const {
    int retries = 0;
    while (done < b.size()) {
      const size_t left = b.size() - done;
      const auto at = static_cast<off_t>(offset + done);
      const ssize_t n = is_read ? ::pread(file_.fd(), b.data() + done, left, at) : ::pwrite(file_.fd(), b.data() + done, left, at);
      if (n < 0 && (errno == EINTR || errno == EAGAIN) && ++retries < kMaxRetries) continue;
      if (n < 0 || (n == 0 && !is_read)) return Err(file_.error(is_read ? "reading" : "writing", offset, b.size(), n < 0 ? errno : EIO));
      const Progress p = advance(is_read, file_.direct(), done, b.size(), static_cast<size_t>(n));
      done = p.done;
      if (p.at_end) {
        std::memset(b.data() + done, 0, b.size() - done);
        break;
      }
    }
    return {};
  }

  LockedFile file_;
};
}  // namespace

std::unique_ptr<BlockDevice> thread_device(LockedFile file) { return std::make_unique<ThreadDevice>(std::move(file)); }
}  // namespace nacre::io_detail
