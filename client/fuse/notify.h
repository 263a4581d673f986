// SPDX-License-Identifier: Apache-2.0
// What the client tells the kernel unasked. Notifications that take a page's lock can wait for a request which this very
// process has to answer, so they are sent by a thread of their own, never by a loop.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "common/base/error.h"

namespace nacre::fuse {

class Notifier {
 public:
  Notifier();
  ~Notifier();  ///< ends the thread; a notification in progress is waited for
  Notifier(const Notifier&) = delete;
  /// Until this is called, and after fd -1, notifications are dropped. The descriptor stays the caller's; it is not in use any
  /// more when set_device(-1) returns.
  void set_device(int fd);

  /// Makes the kernel know that the file has at least `size` > 0 bytes. Returns when it does; in the rare case that a page of the
  /// file is locked, after kPatience, and it happens as soon as it can. Any thread.
  void size_grew(uint64_t nodeid, uint64_t size);
  /// Makes the kernel look up every cached name again before it uses it. Takes no lock. Error: kOpNotSupp on older kernels.
  Result<void> drop_names();

  static constexpr size_t kMaxQueued = 1024;  ///< a notification more is dropped and logged: the size is then learned with the next stat

 private:
  struct Item { uint64_t nodeid, size, number; };
  void run();
  static void store(int fd, const Item& item);
  std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Item> queue_;
  uint64_t next_ = 1, finished_ = 0;
  int fd_ = -1;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nacre::fuse
