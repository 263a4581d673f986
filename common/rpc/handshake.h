// SPDX-License-Identifier: Apache-2.0
// HELLO and AUTH: both ends prove that they hold the cluster key by an HMAC over what both have said, with a nonce of
// each. The key itself never travels; a recorded exchange proves nothing later. On the stream's loop; inside rpc/.
//
//   client: Hello{cluster, versions, role, cpu, host, nonce}
//   server: HelloReply{version, nonce, time, incarnation, mac_server}     the client checks mac_server
//   client: Auth{mac_client}                                              the server checks mac_client
//   server: AuthReply, or an error with a sentence and the end of the connection
#pragma once
#include "common/rpc/connection.h"
#include "common/rpc/server.h"

namespace nacre::rpc {

inline constexpr size_t kNonceSize = 32;
inline constexpr size_t kMaxHost = 255;

struct ServerIdentity {
  std::array<uint8_t, 16> cluster_id{};
  wire::Key handshake_key{};   ///< derive_handshake_key(cluster key)
  uint64_t incarnation = 0;
};
wire::Key derive_handshake_key(const wire::Key& cluster_key);

/// The server's side. `full` makes it refuse with kRetryLater. After an error the stream is to be closed; the other end has been told.
Task<Result<PeerInfo>> accept_handshake(Stream& stream, ServerIdentity me, Nanos now_real, std::string full);
/// The client's side. Errors: kAuth, kNotOurs, kVersion, kRetryLater, kUnavailable.
Task<Result<PeerInfo>> connect_handshake(Stream& stream, ConnectOptions options, int cpu);

/// Closes the stream if it is not dismissed before `deadline`. Lies in the frame that owns the stream.
class StreamDeadline {
 public:
  StreamDeadline(Stream& stream, Nanos deadline);
  ~StreamDeadline();
  bool passed() const { return shared_->passed; }
  StreamDeadline(const StreamDeadline&) = delete;
  StreamDeadline& operator=(const StreamDeadline&) = delete;

 private:
  struct Shared { Stream* stream; bool passed = false; Signal done; };
  static Task<void> watch(std::shared_ptr<Shared> shared, Nanos deadline);
  std::shared_ptr<Shared> shared_;
};

}  // namespace nacre::rpc
