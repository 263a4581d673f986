// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

TEST(PathOf, AllNamesAndOnlyWhatTheCallerCouldFind) {
  World w;
  Ino open = must(w.mkdir(kRoot, kRootIno, "open", 0777)), hidden = must(w.mkdir(kRoot, kRootIno, "hidden", 0711)), closed = must(w.mkdir(kRoot, kRootIno, "closed", 0700));
  Ino f = must(w.create(kAlice, open, "f"));
  must(w.link(kRoot, f, hidden, "g"));
  must(w.link(kRoot, f, closed, "h"));
  auto paths = [&](const wire::CredT& who, Ino ino, uint32_t most = 16) -> Result<std::set<std::string>> {
    wire::PathOfRequestT q;
    q.ino = ino.v;
    q.max_paths = most;
    auto r = w.run(who, [&](OpContext& c) { return ops::path_of(c, q); });
    if (!r) return std::unexpected(r.error());
    return std::set<std::string>(r->paths.begin(), r->paths.end());
  };
  using Paths = std::set<std::string>;
  EXPECT_EQ(must(paths(kRoot, f)), (Paths{"/open/f", "/hidden/g", "/closed/h"}));
  EXPECT_EQ(must(paths(kRoot, f, 1)).size(), 1u);
  EXPECT_EQ(must(paths(kAlice, f)), (Paths{"/open/f", "/hidden/g"})) << "her own file's name in a directory she may search";
  EXPECT_EQ(must(paths(kBob, f)), (Paths{"/open/f"}));
  EXPECT_EQ(must(paths(kBob, kRootIno)), (Paths{"/"}));
  EXPECT_EQ(must(paths(kBob, closed)), (Paths{"/closed"}));
  Ino deep = must(w.create(kRoot, closed, "deep"));
  EXPECT_CODE(paths(kAlice, deep), kAccess);
  EXPECT_CODE(paths(kAlice, Ino(4711)), kNoEnt);
  Ino sub = must(w.mkdir(kRoot, open, "sub")), below = must(w.mkdir(kRoot, sub, "below"));
  must(w.rename(kRoot, open, "sub", kRootIno, "moved"));
  EXPECT_EQ(must(paths(kBob, below)), (Paths{"/moved/below"}));
  w.hooks.kept.insert(f);
  must(w.unlink(kRoot, open, "f"));
  must(w.unlink(kRoot, hidden, "g"));
  must(w.unlink(kRoot, closed, "h"));
  EXPECT_TRUE(must(paths(kAlice, f)).empty()) << "no name any more";
}

}  // namespace
}  // namespace nacre::mds::test
