// SPDX-License-Identifier: Apache-2.0
#include "common/base/units.h"

#include <gtest/gtest.h>

namespace nacre {
namespace {

TEST(ParseSize, AllSuffixesAreBinary) {
  for (const char* text : {"64K", "64k", "64KB", "64KiB", "64 KiB", " 64K ", "65536", "65536B"}) {
    auto n = parse_size(text);
    ASSERT_TRUE(n) << text << ": " << n.error().message();
    EXPECT_EQ(*n, 65536u) << text;
  }
  EXPECT_EQ(*parse_size("1.5TiB"), 3 * TiB / 2);
  EXPECT_EQ(*parse_size("0"), 0u);
  EXPECT_EQ(*parse_size("0.5K"), 512u);
}

TEST(ParseSize, WholeNumbersAreExactBeyondDoubles) {
  EXPECT_EQ(*parse_size("9007199254740993"), 9007199254740993u);  // 2^53 + 1
  EXPECT_EQ(*parse_size("9223372036854775807"), 9223372036854775807u);
}

TEST(ParseSize, RefusesWithASentence) {
  for (const char* text : {"", "K", "-1", "12Q", "1e3", "nan", "inf", "9223372036854775808", "8E", "1.2.3", "10 GB/s", "0x10"}) {
    auto n = parse_size(text);
    ASSERT_FALSE(n) << text << " gave " << *n;
    EXPECT_EQ(n.error().code, Errc::kInval);
    EXPECT_NE(n.error().detail.find(text), std::string::npos);
  }
}

TEST(FormatSize, OneDecimalBinaryUnits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(3 * TiB / 2), "1.5 TiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16 EiB");
}

TEST(ParseDuration, Units) {
  EXPECT_EQ(*parse_duration_ms("500ms"), 500u);
  EXPECT_EQ(*parse_duration_ms("30"), 30'000u);
  EXPECT_EQ(*parse_duration_ms("1.5h"), 5'400'000u);
  EXPECT_EQ(*parse_duration_ms("2w"), 2u * 7 * 86'400'000);
  for (const char* text : {"", "s", "-1s", "1y", "99999999999999999999w"}) EXPECT_FALSE(parse_duration_ms(text)) << text;
}

}  // namespace
}  // namespace nacre
