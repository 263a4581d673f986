// SPDX-License-Identifier: Apache-2.0
// The transport over io_uring: one ring per loop, which holds the kernel's queues of the CPUs that this loop serves. An
// entry carries one request at a time; its memory is where a READ's data is received and a WRITE's data is sent from.
// Once the INIT reply has accepted the ring, the kernel holds every request back until each possible CPU has an entry, so
// all that can fail by itself happens in prepare(), before.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "client/fuse/transport.h"

namespace nacre::fuse {

class RingTransport {
 public:
  struct Options {
    int fd = -1;              ///< of the mount; stays the caller's
    uint32_t depth = 4;       ///< entries per CPU
    uint32_t max_io = 0;      ///< most data of one request
  };
  /// Rings and memory. Error: what this machine refused. Any thread.
  static Result<std::shared_ptr<RingTransport>> prepare(Runtime& runtime, Dispatcher& dispatcher, Options options);
  virtual ~RingTransport() = default;
  /// Registers all entries; then calls `done` on a loop, with an empty text or with the kernel's refusal, after which it serves
  /// through /dev/fuse. After the INIT reply.
  virtual void start(std::function<void(std::string)> done) = 0;
  /// Waits until the kernel has given the entries back, as it does when the connection ends, and the loops are done with them.
  /// Not from a loop.
  virtual void stop() = 0;
};

/// Queues the kernel makes: one per possible CPU, whether online or not. Reads /sys; 0 if that is not there.
uint32_t possible_cpus();
uint32_t parse_possible(std::string_view text);  ///< "0-3,8-11" gives 12

}  // namespace nacre::fuse
