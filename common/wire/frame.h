// SPDX-License-Identifier: Apache-2.0
// The frame: a fixed header of 72 bytes, then `body_size` bytes of FlatBuffer, then `payload_size` raw bytes.
// Little-endian. The header carries its own checksum and the body's; the payload is covered by the per-block sums in the body.
#pragma once
#include <cstdint>
#include <span>

#include "common/base/error.h"

namespace nacre::wire {

inline constexpr uint32_t kFrameMagic = 0x4E616372;  // "Nacr"
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint32_t kMaxBody = 2 * 1024 * 1024;
inline constexpr uint32_t kMaxPayload = 1024 * 1024 + 8192;  // kMaxIo plus a partial block at either end

enum class FrameKind : uint8_t { kRequest = 1, kReply = 2 };

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  FrameKind kind = FrameKind::kRequest;
  uint8_t flags = 0;             // reserved, zero
  uint16_t method = 0;
  uint16_t status = 0;           // replies: Errc number
  uint32_t request = 0;          // unique among the requests in flight of the sender
  uint64_t session = 0;          // requests within a session, else 0
  uint32_t sequence = 0;         // exactly-once: number within the slot, from 1; 0 = not slotted
  uint16_t slot = 0;
  uint16_t reserved0 = 0;
  uint32_t timeout_ms = 0;       // requests: how long the caller will wait; 0 = no limit
  uint32_t body_size = 0;
  uint32_t payload_size = 0;
  uint32_t reserved1 = 0;
  uint64_t body_sum = 0;         // XXH3-64 of the body
  uint64_t journal = 0;          // replies of the metadata server to slotted requests: the newest number of its journal, else 0
  uint64_t header_sum = 0;       // XXH3-64 of the first 64 bytes
};
static_assert(sizeof(FrameHeader) == 72);

/// Fills body_sum and header_sum.
void seal(FrameHeader& header, std::span<const uint8_t> body);
/// Checks magic, version, kind, sizes, reserved bytes and header sum. Errors: kProtocol, kVersion, kTooBig, kChecksum, each with a sentence.
Result<FrameHeader> parse_header(std::span<const uint8_t, sizeof(FrameHeader)> bytes);
Result<void> check_body(const FrameHeader& header, std::span<const uint8_t> body);

}  // namespace nacre::wire
