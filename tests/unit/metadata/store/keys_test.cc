// SPDX-License-Identifier: Apache-2.0
// Golden bytes of every key, round trips, refusal of foreign bytes, and the name hash against SipHash's published vectors.
#include <gtest/gtest.h>

#include "common/schema/codec.h"
#include "metadata/store/keys.h"

namespace nacre::mds {
namespace {

std::string hex(std::string_view s) {
  std::string out;
  for (char c : s) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

TEST(Keys, GoldenBytes) {
  EXPECT_EQ(hex(inode_key(Ino(0x0102030405))), "0000000102030405");
  EXPECT_EQ(hex(dentry_key(Ino(1), 0x7fffffffffffffff, "ab")), "00000000000000017fffffffffffffff6162");
  EXPECT_EQ(hex(dentry_from(Ino(1), 3)), "00000000000000010000000000000003");
  EXPECT_EQ(hex(link_key(Ino(2), Ino(1), "n")), "000000000000000200000000000000016e");
  EXPECT_EQ(hex(xattr_key(Ino(2), "user.a")), "0000000000000002757365722e61");
  EXPECT_EQ(hex(history_key(Family::kInode, inode_key(Ino(7)), Epoch(9))), "01000000000000000700000009");
  EXPECT_EQ(hex(history_by_epoch_key(FilesetId(1), Epoch(9), Family::kDentry, "k")), "0000000100000009026b");
  EXPECT_EQ(hex(fileset_key(FilesetId(258))), "00000102");
  EXPECT_EQ(hex(snapshot_key(FilesetId(1), Epoch(2))), "0000000100000002");
  EXPECT_EQ(hex(usage_key(FilesetId(1), 1000, 100)), "00000001000003e800000064");
  EXPECT_EQ(hex(age_key(FilesetId(1), 20000, Ino(5))), "0000000100004e200000000000000005");
  EXPECT_EQ(hex(orphan_key(Ino(5))), "0000000000000005");
  EXPECT_EQ(hex(owed_key(OstId(3), CmdSeq(4))), "000000030000000000000004");
  EXPECT_EQ(hex(session_key(SessionId(6))), "0000000000000006");
  EXPECT_EQ(hex(reply_key(SessionId(6), 0x1234)), "00000000000000061234");
  EXPECT_EQ(hex(open_key(SessionId(6), Ino(5))), "00000000000000060000000000000005");
  EXPECT_EQ(hex(range_key("ino")), "696e6f");
  EXPECT_EQ(hex(changelog_key(1)), "0000000000000001");
  EXPECT_EQ(hex(ost_key(OstId(1))), "00000001");
  EXPECT_EQ(hex(quota_key({Subject::Kind::kFileset, FilesetId(1), "", 0})), "0100000001");
  EXPECT_EQ(hex(quota_key({Subject::Kind::kTierUser, FilesetId(), "scratch", 1000})), "020773637261746368000003e8");
  EXPECT_EQ(hex(quota_key({Subject::Kind::kTierGroup, FilesetId(), "", 1})), "030000000001");
  EXPECT_EQ(hex(quota_key({Subject::Kind::kFilesetUser, FilesetId(2), "", 1})), "040000000200000001");
}

TEST(Keys, FamilyNamesAreFixed) {
  const char* names[] = {"default", "inode", "dentry", "link", "xattr", "history", "history_by_epoch", "fileset", "snapshot", "quota",
                         "usage", "age", "orphan", "owed", "session", "reply", "open", "range", "changelog", "ost"};
  ASSERT_EQ(std::size(names), kFamilies);
  for (size_t i = 0; i < kFamilies; ++i) EXPECT_EQ(family_name(static_cast<Family>(i)), names[i]);
}

TEST(Keys, ParseGivesBackWhatWasBuilt) {
  EXPECT_EQ(parse_inode_key(inode_key(Ino(77))), Ino(77));
  std::string dentry = dentry_key(Ino(1), 9, "name");
  auto d = parse_dentry_key(dentry);
  ASSERT_TRUE(d);
  EXPECT_EQ(d->parent, Ino(1));
  EXPECT_EQ(d->hash, 9u);
  EXPECT_EQ(d->name, "name");
  std::string link = link_key(Ino(3), Ino(1), "x");
  auto l = parse_link_key(link);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->ino, Ino(3));
  EXPECT_EQ(l->parent, Ino(1));
  EXPECT_EQ(l->name, "x");
  std::string xattr = xattr_key(Ino(3), "user.b");
  EXPECT_EQ(parse_xattr_key(xattr)->name, "user.b");
  std::string history = history_key(Family::kXattr, xattr, Epoch(4));
  auto h = parse_history_key(history);
  ASSERT_TRUE(h);
  EXPECT_EQ(h->family, Family::kXattr);
  EXPECT_EQ(h->key, xattr);
  EXPECT_EQ(h->last, Epoch(4));
  std::string by_epoch = history_by_epoch_key(FilesetId(2), Epoch(4), Family::kXattr, xattr);
  auto e = parse_history_by_epoch_key(by_epoch);
  ASSERT_TRUE(e);
  EXPECT_EQ(e->key, xattr);
  EXPECT_EQ(e->last, Epoch(4));
  EXPECT_EQ(parse_fileset_key(fileset_key(FilesetId(8))), FilesetId(8));
  EXPECT_EQ(parse_snapshot_key(snapshot_key(FilesetId(8), Epoch(2)))->epoch, Epoch(2));
  auto u = parse_usage_key(usage_key(FilesetId(1), 5, 6));
  ASSERT_TRUE(u);
  EXPECT_EQ(u->uid, 5u);
  EXPECT_EQ(u->gid, 6u);
  EXPECT_EQ(parse_age_key(age_key(FilesetId(1), 3, Ino(4)))->ino, Ino(4));
  EXPECT_EQ(parse_orphan_key(orphan_key(Ino(4))), Ino(4));
  EXPECT_EQ(parse_owed_key(owed_key(OstId(0), CmdSeq(8)))->command, CmdSeq(8));
  EXPECT_EQ(parse_session_key(session_key(SessionId(8))), SessionId(8));
  EXPECT_EQ(parse_reply_key(reply_key(SessionId(8), 65535))->slot, 65535);
  EXPECT_EQ(parse_open_key(open_key(SessionId(8), Ino(2)))->ino, Ino(2));
  EXPECT_EQ(parse_changelog_key(changelog_key(8)), 8u);
  EXPECT_EQ(parse_ost_key(ost_key(OstId(8))), OstId(8));
  for (const Subject& s : {Subject{Subject::Kind::kFileset, FilesetId(1), "", 0}, Subject{Subject::Kind::kTierUser, FilesetId(), "home", 7},
                           Subject{Subject::Kind::kTierGroup, FilesetId(), std::string(255, 't'), 7}, Subject{Subject::Kind::kFilesetUser, FilesetId(2), "", 9}}) {
    auto back = parse_quota_key(quota_key(s));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, s);
  }
}

TEST(Keys, ForeignBytesAreRefused) {
  for (std::string bytes : {std::string(), std::string(3, 'x'), std::string(7, '\0'), std::string(9, '\xff'), std::string(15, 'a'), std::string(16, '\0')}) {
    EXPECT_FALSE(parse_inode_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_dentry_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_link_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_usage_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_reply_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_owed_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_quota_key(bytes)) << bytes.size();
    EXPECT_FALSE(parse_ost_key(bytes)) << bytes.size();
  }
  EXPECT_FALSE(parse_history_key(std::string(1, '\x63') + "key0000"));
  EXPECT_FALSE(parse_quota_key(std::string("\x02\x05" "abc\0\0\0\0", 9)));
}

TEST(Keys, OrderIsCookieOrder) {
  EXPECT_LT(dentry_key(Ino(1), 5, "zzz"), dentry_key(Ino(1), 6, "a"));
  EXPECT_LT(dentry_key(Ino(1), ~uint64_t{0} >> 1, "z"), dentry_prefix(Ino(2)));
  EXPECT_LT(dentry_from(Ino(1), 6), dentry_key(Ino(1), 6, "a"));
  EXPECT_EQ(prefix_end(inode_key(Ino(255))), std::string("\0\0\0\0\0\0\1", 7));
  EXPECT_EQ(prefix_end("\xff\xff"), "");
}

TEST(NameHash, MatchesSipHashAndKeepsReservedCookiesFree) {
  std::array<uint8_t, 16> key;
  for (size_t i = 0; i < 16; ++i) key[i] = static_cast<uint8_t>(i);
  NameHash hash(key);
  std::string in;
  for (int i = 0; i < 15; ++i) in.push_back(static_cast<char>(i));
  EXPECT_EQ(hash(in), 0xa129ca6149be45e5ull & ~(uint64_t{1} << 63));  // the paper's test vector for 00 01 … 0e
  EXPECT_EQ(hash(""), 0x726fdb47dd0e0e31ull);
  for (int i = 0; i < 1000; ++i) {
    uint64_t h = hash("name" + std::to_string(i));
    EXPECT_GE(h, kFirstNameHash);
    EXPECT_EQ(h >> 63, 0u);
  }
  key[0] ^= 1;
  EXPECT_NE(NameHash(key)("name"), hash("name"));
}

}  // namespace
}  // namespace nacre::mds
