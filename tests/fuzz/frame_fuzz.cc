// SPDX-License-Identifier: Apache-2.0
// Frames from the network: whatever the bytes, parsing ends with a frame inside its limits or an error that says why.
#include <cstdlib>

#include "common/wire/frame.h"

using namespace nacre;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < sizeof(wire::FrameHeader)) return 0;
  auto bytes = std::span<const uint8_t, sizeof(wire::FrameHeader)>(data, sizeof(wire::FrameHeader));
  std::span<const uint8_t> body(data + sizeof(wire::FrameHeader), size - sizeof(wire::FrameHeader));
  if (auto h = wire::parse_header(bytes)) {
    if (h->body_size > wire::kMaxBody || h->payload_size > wire::kMaxPayload) std::abort();
    if (h->body_size <= body.size()) (void)wire::check_body(*h, body.first(h->body_size));
  } else if (h.error().message().empty()) {
    std::abort();
  }
  // The same bytes with right sums: what lies behind the checksums is reached too.
  wire::FrameHeader sealed;
  std::memcpy(&sealed, data, sizeof sealed);
  if (sealed.body_size > body.size()) sealed.body_size = static_cast<uint32_t>(body.size());
  wire::seal(sealed, body.first(sealed.body_size));
  std::array<uint8_t, sizeof sealed> again;
  std::memcpy(again.data(), &sealed, sizeof sealed);
  if (auto h = wire::parse_header(again); h && !wire::check_body(*h, body.first(h->body_size))) std::abort();
  return 0;
}
