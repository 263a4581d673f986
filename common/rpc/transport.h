// SPDX-License-Identifier: Apache-2.0
// The network seam: byte streams between addresses. Implementations: TCP (tcp_transport.h) and memory with delay, loss of
// connection and reordering across connections (testing/memory_transport.h). A stream belongs to one loop.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/runtime/loop.h"
#include "common/runtime/task.h"

namespace nacre::rpc {

class Stream {
 public:
  virtual ~Stream() = default;
  /// Reads 1 … out.size() bytes. 0 bytes never: an orderly end is kDisconnected.
  virtual Task<Result<size_t>> read_some(std::span<std::byte> out) = 0;
  /// Writes all parts, in order.
  virtual Task<Result<void>> write(std::vector<std::span<const std::byte>> parts) = 0;
  /// Ends both directions; pending reads and writes return kDisconnected. Idempotent; loop thread only.
  virtual void close() = 0;
  virtual std::string remote() const = 0;  ///< "10.99.0.2:41234"
  virtual bool same_host() const = 0;      ///< both ends have the same address
  /// Moves the idle stream (no call pending) to another loop of the same runtime.
  virtual Result<std::unique_ptr<Stream>> move_to(Loop& loop) = 0;
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual std::string address() const = 0;  ///< with the port that was bound
  virtual void close() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// address: "HOST:PORT". On the calling loop. Errors: kUnavailable, kDeadline.
  virtual Task<Result<std::unique_ptr<Stream>>> connect(std::string address, Nanos deadline) = 0;
  /// `on_stream` is called on `loop` for each accepted stream. Errors: kInUse, kConfig.
  virtual Result<std::unique_ptr<Acceptor>> listen(Loop& loop, std::string address, std::function<void(std::unique_ptr<Stream>)> on_stream) = 0;
};

struct TcpOptions {
  std::string congestion = "cubic";  ///< TCP_CONGESTION; empty = the system's. BBR costs a factor 2-5 on local links.
  bool nodelay = true;
  int keepalive_s = 10;              ///< TCP_KEEPIDLE, and TCP_USER_TIMEOUT of three times it
};
std::unique_ptr<Transport> tcp_transport(Runtime& runtime, TcpOptions options = {});

}  // namespace nacre::rpc
