// SPDX-License-Identifier: Apache-2.0
// The disk seam: an addressable file of bytes with asynchronous reads and writes. Implementations: io_uring (one ring per
// loop), pread/pwrite on workers (where io_uring is refused), memory with faults (tests). Calls are made on the loop that
// opened the device's handle; offsets and lengths of data I/O are multiples of 4 KiB, buffers 4 KiB-aligned.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/io/buffer.h"
#include "common/runtime/loop.h"
#include "common/runtime/task.h"

namespace nacre {

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  /// Reads into.size() bytes at `offset`. A short read past the end of the file is filled with zeros. Errors: kIo with errno text.
  virtual Task<Result<void>> read(uint64_t offset, Buffer into) = 0;
  /// Writes all of `from` at `offset`.
  virtual Task<Result<void>> write(uint64_t offset, Buffer from) = 0;
  /// fdatasync(2). An error is final: the caller must end the process (P1.12).
  virtual Task<Result<void>> sync() = 0;
  /// Gives [offset, offset + length) back to the filesystem (FALLOC_FL_PUNCH_HOLE).
  virtual Task<Result<void>> punch(uint64_t offset, uint64_t length) = 0;
  /// The range will probably be read soon: a buffered device lets the page cache fetch it. Says nothing of the outcome.
  virtual Task<void> prefetch(uint64_t offset, uint64_t length) {
    (void)offset, (void)length;
    co_return;
  }
  virtual uint64_t size() const = 0;        ///< capacity in bytes
  virtual uint64_t backing_free() const = 0;///< bytes the backing filesystem can still give
  virtual std::string kind() const = 0;     ///< "io_uring buffered", "threads direct", …
};

struct FileDeviceOptions {
  std::string path;
  bool direct = false;        ///< O_DIRECT
  bool allow_uring = true;    ///< false = workers
  uint32_t queue_depth = 256; ///< submissions in flight per ring
  /// How long to wait for the lock, in a sleep of the calling thread. The kernel takes the rings of a dead process apart in its own
  /// time, and its last requests hold the lock until then: a restart that didn't wait would be refused, or write beside them.
  Nanos lock_wait = 0;
};

/// Opens (never creates) the file. The device serves calls from every loop of `runtime`, each with its own ring.
/// Errors: kNoEnt, kIo, kInUse (an exclusive flock is taken).
Result<std::unique_ptr<BlockDevice>> open_file_device(Runtime& runtime, FileDeviceOptions options);

}  // namespace nacre
