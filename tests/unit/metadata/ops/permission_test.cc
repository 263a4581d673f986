// SPDX-License-Identifier: Apache-2.0
// Who may what: mode classes without fall-through, ACLs, groups that must be asked for, root.
#include "tests/unit/metadata/ops/acl_text.h"
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

constexpr uint32_t R = 4, W = 2, X = 1;

struct Row {
  uint32_t mode, uid, gid;  // of the file
  wire::CredT who;
  uint32_t mask;
  Errc expect;
};

TEST(Permission, FirstMatchingClassDecides) {
  World w;
  Ino f = must(w.create(kRoot, kRootIno, "f"));
  const auto alice = user(1000, 100), in_500 = user(1000, 100, {500}), unknown = user(1000, 100, {}, false);
  const std::vector<Row> rows = {
      {0400, 1000, 1, alice, R, Errc::kOk},
      {0400, 1000, 1, alice, W, Errc::kAccess},
      {0077, 1000, 100, alice, R, Errc::kAccess},      // the owner has nothing, though his group and others have all
      {0707, 1, 100, alice, R, Errc::kAccess},         // the group has nothing, though others have all
      {0070, 1, 100, alice, R | W | X, Errc::kOk},
      {0070, 1, 500, in_500, R | W, Errc::kOk},
      {0707, 1, 500, in_500, R, Errc::kAccess},
      {0007, 1, 1, alice, R | W | X, Errc::kOk},
      {0770, 1, 1, alice, R, Errc::kAccess},
      {0770, 1, 500, unknown, R, Errc::kNeedGroups},   // the answer hangs on groups that weren't sent
      {0707, 1, 500, unknown, R, Errc::kNeedGroups},
      {0777, 1, 500, unknown, R, Errc::kOk},           // whatever they are
      {0700, 1, 500, unknown, R, Errc::kAccess},
      {0070, 1, 100, unknown, R, Errc::kOk},           // his own group is known
      {0000, 1, 1, kRoot, R | W, Errc::kOk},
      {0000, 1, 1, kRoot, X, Errc::kAccess},           // root executes only what somebody may
      {0010, 1, 1, kRoot, X, Errc::kOk},
      {0000, 1, 1, alice, 0, Errc::kOk},
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    w.change(f, [&](auto& r) {
      r.mode = S_IFREG | rows[i].mode;
      r.uid = rows[i].uid;
      r.gid = rows[i].gid;
    });
    EXPECT_EQ(name_of(code(w.access(rows[i].who, f, rows[i].mask))), name_of(rows[i].expect)) << "row " << i;
  }
  EXPECT_CODE(w.access(kRoot, f, 8), kInval);
  EXPECT_CODE(w.access(kRoot, Ino(999'999), 4), kStale);
}

TEST(Permission, AccessAcl) {
  World w;
  Ino f = must(w.create(kRoot, kRootIno, "f", 0600));
  w.change(f, [](auto& r) {
    r.uid = 1;
    r.gid = 10;
  });
  must(w.xattr_set(kRoot, f, std::string(kAccessAcl), acl_bytes("u::--- u:1000:rwx u:1001:--- g::r-- g:500:-w- g:501:r-- m::rw- o::rwx")));
  struct Case { wire::CredT who; uint32_t mask; Errc expect; } const cases[] = {
      {user(1, 10), R, Errc::kAccess},                  // owner: ---
      {user(1000, 9), R | W, Errc::kOk},
      {user(1000, 9), X, Errc::kAccess},                // the mask takes x
      {user(1001, 500), R, Errc::kAccess},              // the user entry decides, whatever the groups say
      {user(1002, 10), R, Errc::kOk},
      {user(1002, 10), W, Errc::kAccess},
      {user(1002, 10, {500}), W, Errc::kOk},            // any group entry that grants
      {user(1002, 10, {500}), R | W, Errc::kAccess},    // but none that grants both
      {user(1002, 10), X, Errc::kAccess},               // a group matched: others' x doesn't count
      {user(1003, 9), R | W | X, Errc::kOk},            // other, without the mask
      {user(1003, 9, {}, false), R, Errc::kNeedGroups},
      {kRoot, R | W, Errc::kOk},
  };
  for (size_t i = 0; i < std::size(cases); ++i) EXPECT_EQ(name_of(code(w.access(cases[i].who, f, cases[i].mask))), name_of(cases[i].expect)) << "case " << i;
}

TEST(Permission, StickyAndSearch) {
  World w;
  Ino d = must(w.mkdir(kRoot, kRootIno, "d", 01777));
  Ino f = must(w.create(kAlice, d, "f", 0666));
  EXPECT_CODE(w.unlink(kBob, d, "f"), kPerm);
  EXPECT_CODE(w.rename(kBob, d, "f", d, "g"), kPerm);
  must(w.chmod(kRoot, d, 0755));
  EXPECT_CODE(w.unlink(kAlice, d, "f"), kAccess);
  must(w.chmod(kRoot, d, 01777));
  w.change(d, [](auto& r) { r.uid = 2000; });
  EXPECT_CODE(w.rename(kBob, d, "f", d, "g"), kOk);  // the directory's owner may
  must(w.chmod(kRoot, d, 0666));
  EXPECT_CODE(w.lookup(kAlice, d, "g"), kAccess);
  EXPECT_CODE(w.create(kAlice, d, "new"), kAccess);
  EXPECT_CODE(w.mkdir(kAlice, d, "new"), kAccess);
  EXPECT_CODE(w.link(kAlice, f, d, "new"), kAccess);
  must(w.chmod(kRoot, d, 0333));
  EXPECT_CODE(w.readdir(kAlice, d), kAccess);
  EXPECT_CODE(w.lookup(kAlice, d, "g"), kOk);
}

}  // namespace
}  // namespace nacre::mds::test
