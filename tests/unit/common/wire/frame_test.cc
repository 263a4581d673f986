// SPDX-License-Identifier: Apache-2.0
#include "common/wire/frame.h"

#include <gtest/gtest.h>

#include "tests/unit/common/wire/golden.h"

namespace nacre::wire {
namespace {

using Raw = std::array<uint8_t, sizeof(FrameHeader)>;

FrameHeader sample() {
  FrameHeader h;
  h.method = 24;
  h.request = 0x01020304;
  h.session = 0x1122334455667788;
  h.sequence = 7;
  h.slot = 3;
  h.timeout_ms = 5000;
  h.body_size = 5;
  h.payload_size = 4096;
  return h;
}
const std::vector<uint8_t> kBody{'h', 'e', 'l', 'l', 'o'};

Raw raw(const FrameHeader& h) {
  Raw out;
  std::memcpy(out.data(), &h, sizeof h);
  return out;
}
/// Seals again after a change, so that a check behind the sum is reached.
Raw resealed(FrameHeader h) {
  std::vector<uint8_t> body(h.body_size);
  seal(h, body);
  return raw(h);
}

TEST(Frame, GoldenHeader) {
  FrameHeader h = sample();
  seal(h, kBody);
  EXPECT_EQ(testing::hex(raw(h)), testing::golden("frame_header_v1.hex"));
}

TEST(Frame, RoundTrip) {
  FrameHeader h = sample();
  seal(h, kBody);
  auto back = parse_header(raw(h));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(0, std::memcmp(&*back, &h, sizeof h));
  EXPECT_TRUE(check_body(*back, kBody));
}

TEST(Frame, EveryFlippedBitIsRefused) {
  FrameHeader h = sample();
  seal(h, kBody);
  for (size_t bit = 0; bit < sizeof h * 8; ++bit) {
    Raw bytes = raw(h);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(parse_header(bytes)) << "bit " << bit;
  }
  for (size_t bit = 0; bit < kBody.size() * 8; ++bit) {
    auto body = kBody;
    body[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    auto checked = check_body(h, body);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code, Errc::kChecksum);
  }
}

TEST(Frame, RefusalsSayWhy) {
  auto code = [](FrameHeader h) {
    auto r = parse_header(resealed(h));
    EXPECT_FALSE(r);
    if (r) return Errc::kOk;
    EXPECT_FALSE(r.error().detail.empty());
    return r.error().code;
  };
  FrameHeader h = sample();
  h.magic = 0x47455420;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.version = 2;
  EXPECT_EQ(code(h), Errc::kVersion);
  h = sample(), h.kind = static_cast<FrameKind>(3);
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.flags = 1;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.reserved0 = 1;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.reserved1 = 1;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.journal = 1;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.status = 5;
  EXPECT_EQ(code(h), Errc::kProtocol);
  h = sample(), h.body_size = kMaxBody + 1;
  EXPECT_EQ(code(h), Errc::kTooBig);
  h = sample(), h.payload_size = kMaxPayload + 1;
  EXPECT_EQ(code(h), Errc::kTooBig);
  h = sample(), h.body_size = kMaxBody, h.payload_size = kMaxPayload;
  EXPECT_TRUE(parse_header(resealed(h)));
}

TEST(Frame, ShortBodyIsRefused) {
  FrameHeader h = sample();
  seal(h, kBody);
  auto r = check_body(h, std::span(kBody).first(4));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::kProtocol);
}

}  // namespace
}  // namespace nacre::wire
