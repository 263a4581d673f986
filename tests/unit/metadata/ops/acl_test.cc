// SPDX-License-Identifier: Apache-2.0
#include "metadata/ops/acl.h"

#include "tests/unit/metadata/ops/acl_text.h"

namespace nacre::mds {
namespace {
using test::acl_bytes;

TEST(Acl, BytesAreTheKernels) {
  Bytes bytes = acl_bytes("u::rw- u:1000:r-x g::r-- m::r-x o::---");
  EXPECT_EQ(bytes.size(), 4u + 5 * 8);
  Bytes begin(bytes.begin(), bytes.begin() + 20);
  EXPECT_EQ(begin, (Bytes{2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 5, 0, 0xe8, 3, 0, 0}));
  auto acl = test::must(Acl::parse(bytes));
  ASSERT_TRUE(acl);
  EXPECT_EQ(acl->serialize(), bytes);
  EXPECT_EQ(acl->mode(), 0650u) << "the group's bits show the mask";
  EXPECT_FALSE(acl->minimal());
}

TEST(Acl, WhatBreaksTheRulesIsRefused) {
  for (const char* bad : {"u::rwx g::rwx", "g::rwx u::rwx o::---", "u::rwx u:5:rwx g::rwx o::---" /* no mask */, "u::rwx g::rwx m::rwx", "u::rwx g::r-x o::r-x o::r-x",
                          "u::rwx g::r-x g:7:r-x o::r-x", "u::rwx u::rwx g::rwx o::---"})
    EXPECT_FALSE(Acl::parse(acl_bytes(bad)).has_value()) << bad;
  Bytes version = acl_bytes("u::rwx g::rwx o::rwx");
  version[0] = 1;
  EXPECT_EQ(Acl::parse(version).error().code, Errc::kOpNotSupp);
  Bytes perm = acl_bytes("u::rwx g::rwx o::rwx");
  perm[6] = 8;
  EXPECT_EQ(Acl::parse(perm).error().code, Errc::kInval);
  perm.pop_back();
  EXPECT_EQ(Acl::parse(perm).error().code, Errc::kInval);
  EXPECT_EQ(Acl::parse(Bytes(4 + 8 * (kMaxAclEntries + 1), 2)).error().code, Errc::kOpNotSupp);
  Bytes many = {2, 0, 0, 0};
  many.resize(4 + 8 * (kMaxAclEntries + 1));
  EXPECT_EQ(Acl::parse(many).error().code, Errc::kNoSpc);
  EXPECT_FALSE(*Acl::parse(Bytes{2, 0, 0, 0})) << "no entries: no ACL";
  EXPECT_FALSE(*Acl::parse(Bytes{}));
}

TEST(Acl, ChmodSetsTheMaskAndInheritanceTakesAway) {
  auto acl = *test::must(Acl::parse(acl_bytes("u::rwx u:1000:rwx g::rwx m::rwx o::rwx")));
  auto inherited = acl;
  acl.set_mode(0750);
  EXPECT_EQ(acl.serialize(), acl_bytes("u::rwx u:1000:rwx g::rwx m::r-x o::---"));
  EXPECT_EQ(inherited.inherit(0100640), 0100640u);
  EXPECT_EQ(inherited.serialize(), acl_bytes("u::rw- u:1000:rwx g::rwx m::r-- o::---"));
}

}  // namespace
}  // namespace nacre::mds
