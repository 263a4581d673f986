// SPDX-License-Identifier: Apache-2.0
// What a storage target's index looks like, byte for byte. A difference means that the format changed: it needs a new
// format number and a conversion (docs/ondisk.md), not a new golden file.
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "storage/object/chunk.h"
#include "storage/object/keys.h"
#include "storage/object/object_table.h"
#include "storage/object/superblock.h"

namespace nacre::storage {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (char c : bytes) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}
std::string unhex(const std::string& digits) {
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return out;
}

/// Lines "name digits" of tests/golden/ondisk_storage_v1.txt.
const std::map<std::string, std::string>& golden() {
  static const std::map<std::string, std::string> lines = [] {
    std::map<std::string, std::string> out;
    std::ifstream in("tests/golden/ondisk_storage_v1.txt");
    std::string line;
    while (std::getline(in, line)) {
      if (line.empty() || line[0] == '#') continue;
      const size_t space = line.find(' ');
      out[line.substr(0, space)] = line.substr(space + 1);
    }
    return out;
  }();
  return lines;
}
void expect(const std::string& name, std::string_view bytes) {
  auto it = golden().find(name);
  EXPECT_EQ(it == golden().end() ? "no line of that name" : it->second, hex(bytes)) << name;
}
std::string stored(const std::string& name) {
  auto it = golden().find(name);
  return it == golden().end() ? std::string() : unhex(it->second);
}

const ObjectId kObject{Ino(0x0000010203040506), Generation(0x0708090a), 0x0b0c, 0x0d0e};

TEST(OndiskStorage, Keys) {
  expect("key.object", object_key(kObject).view());
  expect("key.chunk", chunk_key(kObject, 0x1122334455).view());
  expect("key.undo", undo_key(0x99, kObject, 0x1122334455).view());
  expect("key.fence", fence_key(SessionId(0x1234)).view());
  expect("key.epoch", epoch_key(FilesetId(0x1234)).view());
  expect("key.allocator", allocator_key(0x1234));
  ObjectId object;
  uint64_t chunk = 0, txg = 0;
  ASSERT_TRUE(parse_undo_key(stored("key.undo"), txg, object, chunk));
  EXPECT_EQ(object, kObject);
  EXPECT_EQ(txg, 0x99u);
  EXPECT_EQ(chunk, 0x1122334455u);
}

TEST(OndiskStorage, Chunks) {
  Chunk c;
  storage::Run data;
  data.first = 1, data.length = 3, data.birth = 2, data.at = 0x123456789a, data.wseq = 0xabcdef;
  const uint32_t sums[] = {0x11111111, 0x22222222, 0x33333333};
  c.insert(data, sums);
  storage::Run ahead;
  ahead.first = 8, ahead.length = 4, ahead.birth = 2, ahead.at = 0x1000, ahead.unwritten = 1;
  c.insert(ahead, nullptr);
  std::string value;
  c.encode(value);
  expect("record.chunk", value);
  auto back = Chunk::decode(stored("record.chunk"), uint64_t{1} << 40);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(*back, c);
  c.encode_undo(value);
  expect("record.undo", value);
  auto undo = Chunk::decode_undo(stored("record.undo"), uint64_t{1} << 40);
  ASSERT_TRUE(undo);
  EXPECT_EQ(*undo, c);
  Chunk().encode_undo(value);
  expect("record.undo_of_nothing", value);
}

TEST(OndiskStorage, Objects) {
  ObjectState s;
  s.size = 0x1234567, s.allocated = 0x1235000, s.fileset = FilesetId(3), s.changed = 1'700'000'000'123'456'789, s.command = CmdSeq(77);
  s.wseq = WSeq(1'000'001), s.truncate_wseq = WSeq(999);
  std::string value;
  s.encode(value);
  expect("record.object", value);
  auto back = ObjectState::decode(stored("record.object"));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->size, s.size);
  EXPECT_EQ(back->changed, s.changed);
  EXPECT_EQ(back->truncate_wseq, s.truncate_wseq);
}

TEST(OndiskStorage, Superblock) {
  schema::OstSuperT s;
  s.cluster_id.assign(16, 0xc1);
  s.uuid.assign(16, 0x0d);
  s.ost = 5, s.capacity = 64 << 20, s.created = 1'700'000'000'000'000'000, s.clean = true, s.incarnation = 9, s.wseq_high = 3'000'000, s.txg = 4'711;
  expect("record.super", encode_super(s));
  auto back = decode_super(stored("record.super"), "DIR");
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(encode_super(*back), encode_super(s));
}

TEST(OndiskStorage, SmallRecords) {
  schema::TombstoneRecordT tombstone;
  tombstone.until = 1'700'000'000'000'000'000, tombstone.command = 12;
  expect("record.tombstone", encode_record(tombstone));
  schema::FenceRecordT fence;
  fence.until = 1'700'000'000'000'000'000, fence.since = 1'600'000'000'000'000'000;
  expect("record.fence", encode_record(fence));
  schema::EpochRecordT epoch;
  epoch.epoch = 7;
  expect("record.epoch", encode_record(epoch));
  schema::RangeRecordT range;
  range.high = 0x123456;
  expect("record.range", encode_record(range));
  schema::AllocatorRecordT allocator;
  allocator.free = {0, 10, 100, 5}, allocator.txg = 9, allocator.objects = 3;
  expect("record.allocator", encode_record(allocator));
  auto back = decode_record<schema::AllocatorRecordT>(stored("record.allocator"));
  ASSERT_TRUE(back);
  EXPECT_EQ(encode_record(*back), encode_record(allocator));
}

}  // namespace
}  // namespace nacre::storage
