// SPDX-License-Identifier: Apache-2.0
// How requests get from the kernel to the loops and answers back. Two ways: /dev/fuse, which every kernel has, and a ring per
// loop (FUSE over io_uring). A transport hands each message to the dispatcher on the loop that read it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "client/fuse/request.h"
#include "common/runtime/loop.h"

namespace nacre::fuse {

/// What transports call. Any loop.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  virtual void dispatch(Loop& loop, Incoming in) = 0;
  virtual std::shared_ptr<Running> running(size_t loop) = 0;
  /// The kernel has ended the connection (unmounted, aborted), or it can't be served any more: then `why` is not empty.
  virtual void connection_ended(std::string why) = 0;
};

/// Room before a message's payload: the payload of a WRITE begins at a page's start, behind headers of 80 bytes.
inline constexpr size_t kPrefix = 4096;
inline constexpr size_t kWriteHeaders = sizeof(fuse_in_header) + sizeof(fuse_write_in);
static_assert(kWriteHeaders == 80);

/// Reads /dev/fuse. One loop at a time waits for the device (a wake-up of all loops for each request would cost more than the
/// request); a loop that has more to do than another hands the waiting over before it works on what it has read.
class Classic {
 public:
  /// `fd`: the mount's descriptor, non-blocking; stays the caller's and must outlive the object.
  static std::shared_ptr<Classic> make(Runtime& runtime, Dispatcher& dispatcher, int fd, uint32_t max_io);
  virtual ~Classic() = default;
  /// Starts reading on the first loop, which reads alone until spread(): enough for INIT, and for what a ring leaves to the
  /// device (FORGET, INTERRUPT).
  virtual void start() = 0;
  /// Lets all loops read. Each gets its own descriptor of the connection (FUSE_DEV_IOC_CLONE), so that they don't contend for
  /// one table of requests; returns how many did, the others share. After the INIT reply, from any thread, once.
  virtual size_t spread() = 0;
  /// Stops reading; answers can still be sent. Waits for the loops, so not from a loop.
  virtual void stop() = 0;
};

}  // namespace nacre::fuse
