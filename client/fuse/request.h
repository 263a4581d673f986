// SPDX-License-Identifier: Apache-2.0
// One request of the kernel, from the moment it was read until its answer went out. Belongs to the loop that read it: made,
// answered and destroyed there. Whoever drops it without an answer has answered EIO, so that no application hangs.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <string>

#include "client/core/filesystem.h"
#include "client/fuse/kernel.h"
#include "common/io/buffer.h"
#include "common/runtime/sync.h"

namespace nacre::fuse {

/// Where answers go: the descriptor a request was read from, or its entry of the ring.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Sends header (iov[0], a fuse_out_header with len filled in) and data. 0 or -errno.
  virtual int send(const iovec* iov, int count) = 0;
  /// Memory for the data of an answer of `size` bytes; the transport's own where that saves a copy.
  virtual Buffer answer_buffer(size_t size) = 0;
};

/// A message as it was read. `memory` keeps `bytes` alive; it may be given away with what follows `bytes.data()`.
struct Incoming {
  std::span<std::byte> bytes;
  Buffer memory;
  bool retainable = false;  ///< payload may be kept after the answer without wasting memory
  std::shared_ptr<Sink> sink;
};

class Request;
using RequestPtr = std::shared_ptr<Request>;

/// The requests of one loop that wait for their answer. Only that loop touches it; count() is for anybody.
class Running {
 public:
  void add(Request* r);
  void remove(Request* r);
  Request* find(uint64_t unique) const;
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  uint32_t weight() const { return weight_.load(std::memory_order_relaxed); }
  template <class F>
  void each(F f) const;

 private:
  Request* head_ = nullptr;
  std::atomic<uint32_t> count_{0}, weight_{0};
};

class Request : public std::enable_shared_from_this<Request> {
 public:
  /// `req` null: a request libfuse doesn't know; then the answer is written without it.
  Request(std::shared_ptr<Running> running, const Incoming& in, fuse_req_t req, uint32_t umask);
  ~Request();
  Request(const Request&) = delete;

  uint32_t opcode() const { return header_.opcode; }
  uint64_t unique() const { return header_.unique; }
  int32_t pid() const { return static_cast<int32_t>(header_.pid); }
  uint32_t umask() const { return umask_; }
  bool answered() const { return answered_; }
  /// Who asks, for the core.
  client::Caller caller() const;
  const CancelPtr& cancel() const { return cancel_; }
  /// True from the second call on: it has been running since the last look around.
  bool seen_before() { return std::exchange(seen_, true); }

  // Answers: exactly one, on the loop's thread.
  void error(int err);                             ///< errno value, 0 = success without data
  void error(const Error& e);
  void data(std::span<const std::byte> bytes);
  template <class T>
  void value(const T& t) { data(std::as_bytes(std::span(&t, 1))); }
  void text(std::string_view s) { data(std::as_bytes(std::span(s))); }
  Buffer answer_buffer(size_t size) { return sink_->answer_buffer(size); }

  /// The sink that libfuse's writes belong to right now, nullptr outside an answer or a dispatch.
  static Sink* current_sink();

 private:
  friend class Running;
  void send(int err, std::span<const std::byte> bytes);
  std::shared_ptr<Running> running_;
  Request* next_ = nullptr;
  Request** link_ = nullptr;
  fuse_req_t req_;
  fuse_in_header header_;
  uint32_t umask_;
  uint32_t weight_ = 1;
  bool answered_ = false, seen_ = false;
  std::shared_ptr<Sink> sink_;
  CancelPtr cancel_;
};

template <class F>
void Running::each(F f) const {
  for (Request* r = head_; r != nullptr;) {
    Request* next = r->next_;
    f(*r);
    r = next;
  }
}

/// Sets what current_sink() returns, for the duration of a scope.
class SinkScope {
 public:
  explicit SinkScope(Sink* sink);
  ~SinkScope();
  SinkScope(const SinkScope&) = delete;

 private:
  Sink* before_;
};

}  // namespace nacre::fuse
