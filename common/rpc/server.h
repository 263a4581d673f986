// SPDX-License-Identifier: Apache-2.0
// Server: listens, authenticates (HELLO, AUTH: HMAC challenge both ways over the cluster key), and hands requests to a handler.
// A connection from the same host is served by the loop of the CPU that HELLO names, others are spread evenly.
// Nobody without the key gets past AUTH: the connection is closed after one reply that says why.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "common/rpc/peer.h"
#include "common/wire/capability.h"

namespace nacre::rpc {

struct ServerOptions {
  std::string address;                 ///< "HOST:PORT", port 0 = any
  std::array<uint8_t, 16> cluster_id{};
  wire::Key key{};
  uint64_t incarnation = 0;
  uint32_t max_connections = 20'000;
  Nanos handshake_timeout = 10 * kSecond;
};

class Server {
 public:
  virtual ~Server() = default;
  virtual std::string address() const = 0;
  /// Refuses new connections and closes all; handlers in progress end by themselves.
  virtual void stop() = 0;
};
/// `handler` runs as a coroutine on the connection's loop, one per request; `on_peer` is called when one is authenticated.
Result<std::unique_ptr<Server>> serve(Runtime& runtime, Transport& transport, ServerOptions options, Handler handler,
                                      std::function<void(PeerPtr)> on_peer = nullptr);

struct ConnectOptions {
  std::string address;
  std::array<uint8_t, 16> cluster_id{};
  wire::Key key{};
  uint8_t role = 1;
  int cpu = -1;                        ///< -1 = of the calling loop
  std::string host;
  Nanos deadline = kForever;
};
/// Connects and authenticates on the calling loop. `handler` serves what the other end calls (may be null).
/// Errors: kUnavailable, kDeadline, kAuth (wrong key), kNotOurs (another cluster), kVersion.
Task<Result<PeerPtr>> connect(Transport& transport, ConnectOptions options, Handler handler);

/// A connection that is made again when it breaks. One loop.
class Channel {
 public:
  struct Options {
    std::vector<std::string> addresses;                          ///< tried in turn
    ConnectOptions connect;                                      ///< address and deadline are filled in
    Nanos attempt_timeout = 5 * kSecond;
    Nanos backoff_min = 20 * kMillisecond, backoff_max = 1 * kSecond;  ///< doubles, with jitter
    std::function<Task<Result<void>>(PeerPtr)> on_connected;     ///< e.g. binds the session; an error closes and tries again
  };
  Channel(Transport& transport, Options options, Handler handler);
  ~Channel();
  /// The live, bound peer; connects if needed and keeps trying until `deadline` or `cancel`. Callers share one attempt.
  Task<Result<PeerPtr>> get(Nanos deadline = kForever, CancelPtr cancel = nullptr);
  PeerPtr peek() const;                                          ///< the live peer or null, without trying
  void set_addresses(std::vector<std::string> addresses);
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace nacre::rpc
