// SPDX-License-Identifier: Apache-2.0
// Bytes of released records: what an earlier version wrote must read back the same for ever. A failure means that the format
// changed: give the record a new format number or an incompat bit, and keep the old bytes here.
#include <gtest/gtest.h>

#include "common/schema/codec.h"

namespace nacre {
namespace {

std::string unhex(std::string_view text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) out.push_back(static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return out;
}
std::string hex(std::string_view s) {
  std::string out;
  for (char c : s) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

constexpr std::string_view kGoldenInode =
    "01380000000000320070002000040008000c001000280030000000380040004800500058001400180000000000000060001c0000000000680032000000a4810000e8030000640000000100"
    "000001000000010000005400000022110000000000003930000000000000004000000000000001002a36fe9c971701002a36fe9c971701002a36fe9c971701002a36fe9c9717fbffffffff"
    "ffffff010000000000000003000000000000000400000066696c65";
constexpr std::string_view kGoldenDentry = "01140000000000000000000a0014000c00070008000a00000000000002020000000500000000000000";
constexpr std::string_view kGoldenReply = "01100000000c0010000800060000000c000c0000000000180007000000040000000300000001020300";
constexpr std::string_view kGoldenUsage = "010c0000000800140004000c000800000000100000000000000200000000000000";
constexpr std::string_view kGoldenSuper =
    "0120000000000000000000160018000800000000000000000007000c00000010001600000000000001240000000c0000000900000000000000100000000102030405060708090a0b0c0d0e"
    "0f10100000000102030405060708090a0b0c0d0e0f10";

template <class T>
T expect_golden(const T& value, std::string_view golden) {
  std::string bytes = encode_record(value);
  EXPECT_EQ(hex(bytes), golden);
  auto back = decode_record<T>(unhex(golden));
  EXPECT_TRUE(back.has_value());
  return back ? std::move(*back) : T{};
}

TEST(Golden, Inode) {
  schema::InodeRecordT r;
  r.ino = 0x1122;
  r.mode = 0100644;
  r.uid = 1000;
  r.gid = 100;
  r.nlink = 1;
  r.size = 12345;
  r.allocated = 16384;
  r.atime = r.mtime = r.ctime = r.btime = 1'700'000'000'000'000'001;
  r.content_time = -5;
  r.fileset = 1;
  r.birth_epoch = 1;
  r.parent = 1;
  r.name = as_bytes("file");
  r.change = 3;
  auto back = expect_golden(r, kGoldenInode);
  EXPECT_EQ(back.size, 12345u);
  EXPECT_EQ(back.content_time, -5);
  EXPECT_EQ(as_text(back.name), "file");
  EXPECT_EQ(back.generation, 1u);
}

TEST(Golden, Dentry) {
  schema::DentryRecordT r;
  r.ino = 5;
  r.type = schema::FileType::Directory;
  r.birth_epoch = 2;
  EXPECT_EQ(expect_golden(r, kGoldenDentry).type, schema::FileType::Directory);
}

TEST(Golden, ReplyUsageSuper) {
  schema::ReplyRecordT reply;
  reply.sequence = 7;
  reply.method = 24;
  reply.body = {1, 2, 3};
  EXPECT_EQ(expect_golden(reply, kGoldenReply).body.size(), 3u);
  schema::UsageRecordT usage;
  usage.bytes = 4096;
  usage.inodes = 2;
  EXPECT_EQ(expect_golden(usage, kGoldenUsage).bytes, 4096);
  schema::MetaSuperT super;
  super.cluster_id = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  super.hash_key = super.cluster_id;
  super.incarnation = 9;
  super.clean = true;
  EXPECT_EQ(expect_golden(super, kGoldenSuper).incarnation, 9u);
}

TEST(Golden, NewerFormatAndDamageAreRefused) {
  std::string bytes = encode_record(schema::DentryRecordT{});
  bytes[0] = 2;
  EXPECT_EQ(decode_record<schema::DentryRecordT>(bytes).error().code, Errc::kVersion);
  EXPECT_EQ(decode_record<schema::DentryRecordT>("").error().code, Errc::kCorrupt);
  EXPECT_EQ(decode_record<schema::DentryRecordT>(std::string("\1\xff\xff\xff\x7f", 5)).error().code, Errc::kCorrupt);
}

}  // namespace
}  // namespace nacre
