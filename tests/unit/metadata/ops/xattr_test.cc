// SPDX-License-Identifier: Apache-2.0
#include "metadata/ops/xattr_name.h"
#include "tests/unit/metadata/ops/acl_text.h"
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct XattrTest : testing::Test {
  World w;
  Ino f, d, l;
  void SetUp() override {
    must(w.chmod(kRoot, kRootIno, 0777));
    f = must(w.create(kAlice, kRootIno, "f", 0644));
    d = must(w.mkdir(kAlice, kRootIno, "d", 0755));
    l = must(w.symlink(kAlice, kRootIno, "l", "t"));
  }
  void TearDown() override { check_namespace(*w.store, *w.journal); }
};

TEST_F(XattrTest, CreateReplaceRemove) {
  EXPECT_CODE(w.xattr_get(kAlice, f, "user.a"), kNoData);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.a", {1}, kXattrReplace), kNoData);
  auto before = w.record(f);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.a", {1}, kXattrCreate), kOk);
  EXPECT_GT(w.record(f).ctime, before.ctime);
  EXPECT_EQ(w.record(f).mtime, before.mtime);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.a", {2}, kXattrCreate), kExist);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.a", {2, 3}, kXattrReplace), kOk);
  EXPECT_EQ(must(w.xattr_get(kAlice, f, "user.a")), (Bytes{2, 3}));
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.empty", {}), kOk);
  EXPECT_EQ(must(w.xattr_list(kAlice, f)), (std::vector<std::string>{"user.a", "user.empty"}));
  EXPECT_TRUE(must(w.xattr_get(kAlice, f, "user.empty")).empty());
  EXPECT_CODE(w.xattr_remove(kAlice, f, "user.a"), kOk);
  EXPECT_CODE(w.xattr_remove(kAlice, f, "user.a"), kNoData);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.a", {1}, 4), kInval);
}

TEST_F(XattrTest, NamespacesAndRights) {
  struct { std::string name; Errc set_alice, set_root, get_alice; } const rows[] = {
      {"user.x", Errc::kOk, Errc::kOk, Errc::kOk},           {"trusted.x", Errc::kPerm, Errc::kOk, Errc::kNoData}, {"security.x", Errc::kPerm, Errc::kOk, Errc::kOk},
      {"user.", Errc::kInval, Errc::kInval, Errc::kInval},   {"other.x", Errc::kOpNotSupp, Errc::kOpNotSupp, Errc::kOpNotSupp},
      {"system.x", Errc::kOpNotSupp, Errc::kOpNotSupp, Errc::kOpNotSupp}, {"x", Errc::kOpNotSupp, Errc::kOpNotSupp, Errc::kOpNotSupp},
      {"user." + std::string(251, 'n'), Errc::kRange, Errc::kRange, Errc::kRange}, {"user." + std::string(250, 'n'), Errc::kOk, Errc::kOk, Errc::kOk},
      {"user.nacre.expires", Errc::kPerm, Errc::kPerm, Errc::kNoData}};
  for (const auto& row : rows) {
    EXPECT_EQ(name_of(code(w.xattr_set(kAlice, f, row.name, {1}))), name_of(row.set_alice)) << row.name;
    EXPECT_EQ(name_of(code(w.xattr_set(kRoot, f, row.name, {1}))), name_of(row.set_root)) << row.name;
    EXPECT_EQ(name_of(code(w.xattr_get(kAlice, f, row.name))), name_of(row.get_alice)) << row.name;
  }
  EXPECT_EQ(must(w.xattr_list(kRoot, f)).size(), must(w.xattr_list(kAlice, f)).size() + 1) << "trusted names are root's";
  EXPECT_CODE(w.xattr_remove(kAlice, f, "trusted.x"), kPerm);
  EXPECT_CODE(w.xattr_set(kBob, f, "user.b", {1}), kAccess);
  must(w.chmod(kAlice, f, 0600));
  EXPECT_CODE(w.xattr_get(kBob, f, "user.x"), kAccess);
  EXPECT_CODE(w.xattr_set(kRoot, l, "user.x", {1}), kPerm) << "user attributes belong to files and directories";
  EXPECT_CODE(w.xattr_set(kRoot, l, "trusted.x", {1}), kOk);
  must(w.chmod(kAlice, d, 01777));
  EXPECT_CODE(w.xattr_set(kBob, d, "user.b", {1}), kPerm) << "sticky directory of another";
}

TEST_F(XattrTest, LimitsAreErrors) {
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.big", Bytes(64 * 1024, 7)), kOk);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.bigger", Bytes(64 * 1024 + 1, 7)), kNoSpc);
  Errc last = Errc::kOk;
  int i = 0;
  for (; i < 40 && last == Errc::kOk; ++i) last = code(w.xattr_set(kAlice, f, "user.v" + std::to_string(i), Bytes(64 * 1024, 7)));
  EXPECT_EQ(name_of(last), name_of(Errc::kNoSpc));
  EXPECT_EQ(i, 15);
  EXPECT_CODE(w.xattr_set(kAlice, f, "user.big", Bytes(10, 7)), kOk) << "a smaller value always fits";
}

TEST_F(XattrTest, AccessAclMovesTheMode) {
  std::string name(kAccessAcl);
  EXPECT_CODE(w.xattr_get(kAlice, f, name), kNoData);
  EXPECT_CODE(w.xattr_set(kBob, f, name, acl_bytes("u::rwx g::rwx o::rwx")), kPerm);
  must(w.xattr_set(kAlice, f, name, acl_bytes("u::rw- u:5:rw- g::r-- m::rw- o::---")));
  EXPECT_EQ(must(w.getattr(f)).mode & 0777, 0660u);
  EXPECT_TRUE(must(w.getattr(f)).flags & wire::kHasAcl);
  EXPECT_EQ(must(w.xattr_list(kAlice, f)), std::vector<std::string>{name});
  must(w.xattr_set(kAlice, f, name, acl_bytes("u::rwx g::r-x o::r--")));
  EXPECT_EQ(must(w.getattr(f)).mode & 0777, 0754u) << "what a mode can say becomes the mode";
  EXPECT_CODE(w.xattr_get(kAlice, f, name), kNoData);
  must(w.xattr_set(kAlice, f, name, acl_bytes("u::rw- u:5:rw- g::r-- m::rw- o::---")));
  must(w.xattr_remove(kAlice, f, name));
  EXPECT_EQ(must(w.getattr(f)).mode & 0777, 0660u);
  EXPECT_CODE(w.xattr_remove(kAlice, f, name), kOk);
  EXPECT_CODE(w.xattr_set(kAlice, f, name, acl_bytes("u::rwx g::rwx")), kInval);
  EXPECT_CODE(w.xattr_set(kAlice, l, name, acl_bytes("u::rwx g::rwx o::rwx")), kOpNotSupp);
  w.change(f, [](auto& r) {
    r.mode = S_IFREG | 02755;
    r.gid = 300;
  });
  must(w.xattr_set(kAlice, f, name, acl_bytes("u::rwx g::r-x o::r-x")));
  EXPECT_EQ(w.record(f).mode & 07777, 0755u) << "set-group-ID goes for a group one isn't in";
}

TEST_F(XattrTest, DefaultAclBelongsToDirectories) {
  std::string name(kDefaultAcl);
  EXPECT_CODE(w.xattr_set(kAlice, f, name, acl_bytes("u::rwx g::rwx o::rwx")), kAccess);
  must(w.xattr_set(kAlice, d, name, acl_bytes("u::rwx g::rwx o::rwx")));
  EXPECT_EQ(must(w.getattr(d)).mode & 0777, 0755u);
  EXPECT_EQ(must(w.xattr_get(kAlice, d, name)), acl_bytes("u::rwx g::rwx o::rwx"));
  must(w.xattr_set(kAlice, d, name, {2, 0, 0, 0}));
  EXPECT_CODE(w.xattr_get(kAlice, d, name), kNoData);
  EXPECT_FALSE(w.record(d).flags & wire::kHasDefaultAcl);
}

}  // namespace
}  // namespace nacre::mds::test
