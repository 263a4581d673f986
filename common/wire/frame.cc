// SPDX-License-Identifier: Apache-2.0
#include "common/wire/frame.h"

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace nacre::wire {
namespace {
static_assert(std::endian::native == std::endian::little, "the header is laid out in memory as it goes over the wire");
constexpr size_t kSummed = offsetof(FrameHeader, header_sum);
static_assert(kSummed == 64);

uint64_t header_sum(const void* header) { return XXH3_64bits(header, kSummed); }
}  // namespace

void seal(FrameHeader& header, std::span<const uint8_t> body) {
  assert(header.body_size == body.size());
  header.body_sum = XXH3_64bits(body.data(), body.size());
  header.header_sum = header_sum(&header);
}

Result<FrameHeader> parse_header(std::span<const uint8_t, sizeof(FrameHeader)> bytes) {
  FrameHeader h;
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.magic != kFrameMagic) return Err(Errc::kProtocol, fmt::format("a frame begins with {:#010x} instead of Nacre's magic: the other end doesn't speak this protocol", h.magic));
  if (h.version != kFrameVersion)
    return Err(Errc::kVersion, fmt::format("the other end sends frames of version {}, this build speaks version {}: run the same release on both ends", h.version, kFrameVersion));
  if (h.header_sum != header_sum(bytes.data())) return Err(Errc::kChecksum, "a frame header was damaged on its way");
  if (h.kind != FrameKind::kRequest && h.kind != FrameKind::kReply) return Err(Errc::kProtocol, fmt::format("a frame of unknown kind {}", static_cast<unsigned>(h.kind)));
  if (h.flags != 0 || h.reserved0 != 0 || h.reserved1 != 0) return Err(Errc::kProtocol, "a frame header has reserved bits set");
  if (h.kind == FrameKind::kRequest && h.status != 0) return Err(Errc::kProtocol, fmt::format("a request carries the status {}", h.status));
  if (h.kind == FrameKind::kRequest && h.journal != 0) return Err(Errc::kProtocol, "a request carries a journal number");
  if (h.body_size > kMaxBody) return Err(Errc::kTooBig, fmt::format("a frame announces a body of {} bytes, the limit is {}", h.body_size, kMaxBody));
  if (h.payload_size > kMaxPayload) return Err(Errc::kTooBig, fmt::format("a frame announces a payload of {} bytes, the limit is {}", h.payload_size, kMaxPayload));
  return h;
}

Result<void> check_body(const FrameHeader& header, std::span<const uint8_t> body) {
  if (body.size() != header.body_size) return Err(Errc::kProtocol, fmt::format("a body of {} bytes came where {} were announced", body.size(), header.body_size));
  if (XXH3_64bits(body.data(), body.size()) != header.body_sum) return Err(Errc::kChecksum, fmt::format("the body of a frame (method {}, {} bytes) was damaged on its way", header.method, body.size()));
  return {};
}

}  // namespace nacre::wire
