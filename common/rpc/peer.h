// SPDX-License-Identifier: Apache-2.0
// Peer: one authenticated connection on which both ends call each other, many requests in flight.
// Lives on one loop; all calls are made there. When the connection ends every pending call returns kDisconnected.
#pragma once
#include <any>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/io/buffer.h"
#include "common/rpc/transport.h"
#include "common/runtime/sync.h"
#include "common/schema/codec.h"
#include "common/wire/frame.h"

namespace nacre::rpc {

enum class Method : uint16_t {
#define NACRE_METHOD(name, number, req, rep, flags) k##name = number,
#include "common/rpc/methods.def"
#undef NACRE_METHOD
};
inline constexpr uint32_t kIdem = 1, kOnce = 2, kPush = 4;

template <Method M>
struct MethodTraits;
#define NACRE_METHOD(name, number, req, rep, fl) \
  template <>                                    \
  struct MethodTraits<Method::k##name> {         \
    using Request = wire::req##T;                \
    using Reply = wire::rep##T;                  \
    static constexpr uint32_t flags = fl;        \
    static constexpr const char* name_ = #name;  \
  };
#include "common/rpc/methods.def"
#undef NACRE_METHOD
const char* method_name(uint16_t method);  ///< "Lookup"; "unknown" for numbers this build doesn't know
uint32_t method_flags(uint16_t method);

struct Request {
  wire::FrameHeader header;
  Bytes body;
  Buffer payload;
};
struct Reply {
  Errc status = Errc::kOk;
  std::string detail;  ///< goes with an error status, at most 512 bytes
  Bytes body;
  Buffer payload;
  uint64_t journal = 0;  ///< FrameHeader.journal
};

struct CallOptions {
  Nanos deadline = kForever;  ///< boot time
  CancelPtr cancel;
  uint64_t session = 0;
  uint16_t slot = 0;
  uint32_t sequence = 0;
  Buffer payload;             ///< sent with the request
  Buffer receive_into;        ///< the reply's payload is received here if it fits, else into a pooled buffer
};

class Peer;
using PeerPtr = std::shared_ptr<Peer>;
using Handler = std::function<Task<Reply>(PeerPtr, Request)>;

struct PeerInfo {  ///< what HELLO and AUTH told; set before the first request reaches a handler
  uint8_t role = 0;
  int cpu = -1;
  std::string host;
  std::string address;
  bool trusted = false;
  uint32_t uid = 65534;
  uint64_t features = 0;
  uint64_t incarnation = 0;  ///< of the server (client side)
  Nanos server_time = 0;     ///< the server's clock at HELLO (client side)
};

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  virtual ~Peer() = default;
  /// Sends a request and waits for its reply. Errors: the reply's status (with its detail), kDisconnected, kDeadline, the cancel's.
  virtual Task<Result<Reply>> call(Method method, Bytes body, CallOptions options) = 0;
  virtual void close(Error why) = 0;
  virtual bool closed() const = 0;
  virtual Loop& loop() = 0;
  virtual const PeerInfo& info() const = 0;
  /// Called once on the loop when the connection has ended.
  virtual void on_close(std::function<void(Error)> fn) = 0;
  std::any context;  ///< the server's session, set by its handlers
};

/// Typed call.
template <Method M>
Task<Result<typename MethodTraits<M>::Reply>> call(PeerPtr peer, typename MethodTraits<M>::Request request, CallOptions options = {}) {
  auto reply = co_await peer->call(M, encode(request), std::move(options));
  if (!reply) co_return std::unexpected(std::move(reply).error());
  co_return decode<typename MethodTraits<M>::Reply>(reply->body);
}

template <class T>
Reply ok(const T& message, Buffer payload = {}) { return Reply{Errc::kOk, {}, encode(message), std::move(payload)}; }
inline Reply fail(Error e) { return Reply{e.code, std::move(e.detail), {}, {}}; }

inline constexpr uint32_t kMaxInFlight = 1024;              ///< requests per connection and direction; more are refused with kRetryLater
inline constexpr uint64_t kMaxQueuedBytes = 64ull << 20;    ///< of replies and requests waiting for the socket; callers wait beyond

}  // namespace nacre::rpc
