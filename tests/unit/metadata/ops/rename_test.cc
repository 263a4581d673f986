// SPDX-License-Identifier: Apache-2.0
// rename: every pair of kinds, flags, trees, rights, links, filesets.
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

constexpr uint32_t kNoReplace = 1, kExchange = 2;

struct RenameTest : testing::Test {
  World w;
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  void TearDown() override { check_namespace(*w.store, *w.journal); }
  Ino at(Ino dir, std::string_view name) {
    auto r = w.lookup(kRoot, dir, name);
    return r ? *r : Ino(0);
  }
};

TEST_F(RenameTest, KindOntoKind) {
  struct { const char *source, *target; Errc expect; } const rows[] = {
      {"file", "", Errc::kOk},      {"file", "file", Errc::kOk},         {"file", "link", Errc::kOk},         {"file", "empty", Errc::kIsDir}, {"file", "full", Errc::kIsDir},
      {"link", "file", Errc::kOk},  {"link", "empty", Errc::kIsDir},     {"empty", "", Errc::kOk},            {"empty", "file", Errc::kNotDir}, {"empty", "link", Errc::kNotDir},
      {"empty", "empty", Errc::kOk}, {"empty", "full", Errc::kNotEmpty}, {"full", "empty", Errc::kOk},        {"full", "full", Errc::kNotEmpty}, {"full", "", Errc::kOk},
      {"fifo", "file", Errc::kOk},  {"fifo", "empty", Errc::kIsDir}};
  for (bool across : {false, true}) {
    for (const auto& row : rows) {
      SCOPED_TRACE(fmt::format("{} onto '{}', across {}", row.source, row.target, across));
      Ino top = must(w.mkdir(kRoot, kRootIno, "top"));
      Ino to = across ? must(w.mkdir(kRoot, top, "to")) : top;
      auto make = [&](std::string kind, Ino dir, const char* name) {
        if (kind == "file") return must(w.create(kRoot, dir, name));
        if (kind == "link") return must(w.symlink(kRoot, dir, name, "t"));
        if (kind == "fifo") return must(w.make(kRoot, dir, name, S_IFIFO | 0644));
        Ino made = must(w.mkdir(kRoot, dir, name));
        if (kind == "full") must(w.create(kRoot, made, "inside"));
        return made;
      };
      Ino source = make(row.source, top, "s"), target(0);
      if (*row.target) target = make(row.target, to, "t");
      EXPECT_EQ(name_of(code(w.rename(kRoot, top, "s", to, "t"))), name_of(row.expect));
      bool done = row.expect == Errc::kOk;
      EXPECT_EQ(at(to, "t"), done ? source : target);
      EXPECT_EQ(at(top, "s"), done ? Ino(0) : source);
      if (done && target) EXPECT_FALSE(w.exists(target));
      check_namespace(*w.store, *w.journal);
      std::string gone = fmt::format("old{}{}", &row - rows, across);
      must(w.rename(kRoot, kRootIno, "top", kRootIno, gone));
    }
  }
}

TEST_F(RenameTest, FlagsAndMissingNames) {
  Ino a = must(w.create(kRoot, d, "a")), b = must(w.mkdir(kRoot, d, "b"));
  EXPECT_CODE(w.rename(kRoot, d, "a", d, "b", kNoReplace), kExist);
  EXPECT_CODE(w.rename(kRoot, d, "a", d, "a", kNoReplace), kExist);
  EXPECT_CODE(w.rename(kRoot, d, "a", d, "c", kExchange), kNoEnt);
  EXPECT_CODE(w.rename(kRoot, d, "c", d, "a"), kNoEnt);
  EXPECT_CODE(w.rename(kRoot, d, "a", d, "b", kNoReplace | kExchange), kInval);
  EXPECT_CODE(w.rename(kRoot, d, "a", d, "b", 4), kInval);
  must(w.rename(kRoot, d, "a", d, "c", kNoReplace));
  must(w.rename(kRoot, d, "c", kRootIno, "d2", kNoReplace));
  must(w.rename(kRoot, d, "b", kRootIno, "d2", kExchange));
  EXPECT_EQ(at(kRootIno, "d2"), b);
  EXPECT_EQ(at(d, "b"), a);
  EXPECT_EQ(w.record(kRootIno).subdirs, 2u);
  EXPECT_EQ(w.record(d).subdirs, 0u);
  EXPECT_EQ(w.record(b).parent, 1u);
  must(w.rename(kRoot, d, "b", d, "b"));  // onto itself
  EXPECT_EQ(at(d, "b"), a);
}

TEST_F(RenameTest, ADirectoryNeverMovesIntoItself) {
  Ino e = must(w.mkdir(kRoot, d, "e")), f = must(w.mkdir(kRoot, e, "f"));
  EXPECT_CODE(w.rename(kRoot, kRootIno, "d", d, "x"), kInval);
  EXPECT_CODE(w.rename(kRoot, kRootIno, "d", f, "x"), kInval);
  EXPECT_CODE(w.rename(kRoot, e, "f", kRootIno, "d"), kNotEmpty);  // the target is an ancestor
  EXPECT_CODE(w.rename(kRoot, e, "f", kRootIno, "d", kExchange), kInval);
  EXPECT_CODE(w.rename(kRoot, kRootIno, "d", e, "f", kExchange), kInval);
  must(w.rename(kRoot, e, "f", kRootIno, "f"));
  must(w.rename(kRoot, kRootIno, "d", f, "d"));
  EXPECT_EQ(w.record(d).parent, f.v);
  EXPECT_EQ(w.record(kRootIno).nlink, 3u);
}

TEST_F(RenameTest, TimesAndReplacedFile) {
  Ino a = must(w.create(kRoot, d, "a")), b = must(w.create(kRoot, kRootIno, "b"));
  auto before = w.record(a), dir = w.record(d), root = w.record(kRootIno);
  w.hooks.kept.insert(b);
  must(w.rename(kRoot, d, "a", kRootIno, "b"));
  EXPECT_EQ(w.record(a).mtime, before.mtime);
  EXPECT_GT(w.record(a).ctime, before.ctime);
  EXPECT_GT(w.record(d).mtime, dir.mtime);
  EXPECT_GT(w.record(kRootIno).mtime, root.mtime);
  EXPECT_EQ(must(w.getattr(b)).nlink, 0u) << "still reachable for who has just looked it up";
}

TEST_F(RenameTest, HardLinks) {
  Ino a = must(w.create(kRoot, d, "a"));
  must(w.link(kRoot, a, d, "b"));
  must(w.link(kRoot, a, kRootIno, "c"));
  must(w.rename(kRoot, d, "a", d, "b"));  // two names of one file: nothing happens
  EXPECT_EQ(at(d, "a"), a);
  EXPECT_EQ(at(d, "b"), a);
  must(w.rename(kRoot, d, "b", kRootIno, "b2"));
  must(w.rename(kRoot, d, "a", kRootIno, "a2"));
  check_namespace(*w.store, *w.journal);
  Ino other = must(w.create(kRoot, d, "o"));
  must(w.rename(kRoot, d, "o", kRootIno, "a2"));  // takes the first name of a file with three
  EXPECT_EQ(at(kRootIno, "a2"), other);
  EXPECT_EQ(w.record(a).nlink, 2u);
  must(w.rename(kRoot, kRootIno, "a2", kRootIno, "b2", kExchange));
  EXPECT_EQ(at(kRootIno, "a2"), a);
  EXPECT_EQ(at(kRootIno, "b2"), other);
}

TEST_F(RenameTest, Rights) {
  must(w.chmod(kRoot, kRootIno, 0777));
  Ino from = must(w.mkdir(kAlice, kRootIno, "from", 0777)), to = must(w.mkdir(kAlice, kRootIno, "to", 0777));
  Ino sub = must(w.mkdir(kAlice, from, "sub", 0755));
  must(w.create(kAlice, from, "f"));
  EXPECT_CODE(w.rename(kBob, from, "sub", to, "sub"), kAccess) << "'..' of another's directory";
  EXPECT_CODE(w.rename(kBob, from, "sub", from, "sub2"), kOk) << "the parent stays";
  must(w.chmod(kAlice, sub, 0777));
  EXPECT_CODE(w.rename(kBob, from, "sub2", to, "sub"), kOk);
  must(w.chmod(kAlice, to, 0555));
  EXPECT_CODE(w.rename(kAlice, from, "f", to, "f"), kAccess);
  must(w.chmod(kAlice, to, 01777));
  must(w.create(kAlice, to, "f"));
  must(w.create(kBob, from, "g"));
  EXPECT_CODE(w.rename(kBob, from, "g", to, "f"), kPerm) << "sticky: the target is another's";
  EXPECT_CODE(w.rename(kBob, from, "g", to, "f", kExchange), kPerm);
  EXPECT_CODE(w.rename(kBob, from, "g", to, "g"), kOk);
}

TEST_F(RenameTest, FilesetsAreCrossedByNothing) {
  Ino home = must(w.mkdir(kRoot, kRootIno, "home"));
  w.add_fileset(2, home);
  Ino inside = must(w.mkdir(kRoot, home, "x"));
  EXPECT_EQ(w.record(inside).fileset, 2u);
  must(w.create(kRoot, d, "f"));
  EXPECT_CODE(w.rename(kRoot, d, "f", home, "f"), kXDev);
  EXPECT_CODE(w.rename(kRoot, home, "x", d, "x"), kXDev);
  EXPECT_CODE(w.rename(kRoot, kRootIno, "home", d, "home"), kXDev);
}

TEST_F(RenameTest, LayoutsFollowTheNewParent) {
  Ino wide = must(w.mkdir(kRoot, kRootIno, "wide")), moving = must(w.mkdir(kRoot, kRootIno, "m"));
  w.change(wide, [&](auto& r) {
    r.layout = std::make_unique<schema::LayoutT>(w.hooks.cluster_layout());
    r.layout->components[0]->stripe_count = 8;
  });
  auto count = [&](const char* name) { return must(w.open_new(kRoot, moving, name, 0644, 0, O_CREAT, 1)).layout->components[0]->stripe_count; };
  EXPECT_EQ(count("a"), 1);
  must(w.rename(kRoot, kRootIno, "m", wide, "m"));
  EXPECT_EQ(count("b"), 8);
}

}  // namespace
}  // namespace nacre::mds::test
