// SPDX-License-Identifier: Apache-2.0
// Between a stream and a Peer: single frames for the handshake, and the making of a Peer once it is done.
// Inside rpc/ and tests. All on the stream's loop.
#pragma once
#include <memory>

#include "common/rpc/peer.h"

namespace nacre::rpc {

inline constexpr uint64_t kMaxInFlightBytes = 256ull << 20;  ///< payload of requests being handled, per connection; more are refused with kRetryLater
inline constexpr uint32_t kMaxHandshakeBody = 4096;          ///< nothing larger is read before the other end has proven the key
inline constexpr size_t kMaxDetail = 512;                    ///< of an error, bytes

struct Frame {
  wire::FrameHeader header;
  Bytes body;
};
/// Reads exactly one frame without payload. Errors: kDisconnected, and those of parse_header and check_body.
Task<Result<Frame>> read_frame(Stream& stream);
Task<Result<void>> write_frame(Stream& stream, wire::FrameHeader header, Bytes body);

/// Takes the stream over. The peer lives until the connection ends. `before_start` runs before the first request is read.
PeerPtr start_peer(Loop& loop, std::unique_ptr<Stream> stream, PeerInfo info, Handler handler, std::function<void(PeerPtr)> before_start = nullptr);

std::string printable(std::span<const uint8_t> text);  ///< at most kMaxDetail bytes, control characters as '?'

}  // namespace nacre::rpc
