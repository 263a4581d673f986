// SPDX-License-Identifier: Apache-2.0
// create, mknod, mkdir, symlink, lookup, readlink.
#include "tests/unit/metadata/ops/acl_text.h"
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct CreateTest : testing::Test {
  World w;
  void TearDown() override { check_namespace(*w.store, *w.journal); }
};

TEST_F(CreateTest, EveryTypeIsFoundAgainAsItWasMade) {
  struct { const char* name; uint32_t type; uint64_t rdev; } const rows[] = {
      {"file", S_IFREG, 0}, {"dir", S_IFDIR, 0}, {"fifo", S_IFIFO, 0}, {"socket", S_IFSOCK, 0}, {"char", S_IFCHR, 0x0102}, {"block", S_IFBLK, 0x0fffff00abcd}};
  for (const auto& row : rows) {
    Ino ino = must(w.make(kRoot, kRootIno, row.name, row.type | 0640, 0, row.rdev));
    EXPECT_EQ(must(w.lookup(kRoot, kRootIno, row.name)), ino);
    auto a = must(w.getattr(ino));
    EXPECT_EQ(a.mode, row.type | 0640) << row.name;
    EXPECT_EQ(a.rdev, row.rdev);
    EXPECT_EQ(a.nlink, row.type == S_IFDIR ? 2u : 1u);
    EXPECT_EQ(a.uid, 0u);
    EXPECT_EQ(a.fileset, 1u);
    EXPECT_EQ(a.btime, a.mtime);
    EXPECT_EQ(a.generation, 1u);
    EXPECT_CODE(w.make(kRoot, kRootIno, row.name, row.type | 0640), kExist);
  }
  EXPECT_CODE(w.make(kAlice, kRootIno, "c", S_IFCHR | 0600), kAccess);
  must(w.chmod(kRoot, kRootIno, 0777));
  EXPECT_CODE(w.make(kAlice, kRootIno, "c", S_IFCHR | 0600), kPerm);
  EXPECT_CODE(w.make(kAlice, kRootIno, "p", S_IFIFO | 0600), kOk);
  EXPECT_CODE(w.make(kRoot, kRootIno, "x", 0030000 | 0600), kInval);
}

TEST_F(CreateTest, SymlinksKeepEveryByteOfTheirTarget) {
  EXPECT_CODE(w.symlink(kRoot, kRootIno, "empty", ""), kNoEnt);
  EXPECT_CODE(w.symlink(kRoot, kRootIno, "long", std::string(4096, 'x')), kNameTooLong);
  for (std::string target : {std::string("t"), std::string(4095, 'x'), std::string("/a/../\xff\xfe b")}) {
    Ino ino = must(w.symlink(kAlice.uid ? kRoot : kRoot, kRootIno, "l" + std::to_string(target.size()), target));
    auto a = must(w.getattr(ino));
    EXPECT_EQ(a.mode, S_IFLNK | 0777u);
    EXPECT_EQ(a.size, target.size());
    wire::ReadlinkRequestT q;
    q.ino = ino.v;
    EXPECT_EQ(as_text(must(w.run(kRoot, [&](OpContext& c) { return ops::readlink(c, q); })).target), target);
  }
  wire::ReadlinkRequestT q;
  q.ino = kRootIno.v;
  EXPECT_CODE(w.run(kRoot, [&](OpContext& c) { return ops::readlink(c, q); }), kInval);
}

TEST_F(CreateTest, NamesThatAreRefused) {
  Ino file = must(w.create(kRoot, kRootIno, "file"));
  EXPECT_CODE(w.create(kRoot, kRootIno, std::string(255, 'n')), kOk);
  EXPECT_CODE(w.create(kRoot, kRootIno, "\xc3\x28 not utf-8"), kOk);
  struct { std::string name; Errc expect; } const rows[] = {{std::string(256, 'n'), Errc::kNameTooLong}, {".", Errc::kInval}, {"..", Errc::kInval}, {"a/b", Errc::kInval},
                                                            {std::string("a\0b", 3), Errc::kInval},     {".snapshot", Errc::kPerm}, {".snapshots", Errc::kPerm}, {".purged", Errc::kPerm}};
  for (const auto& row : rows) {
    EXPECT_EQ(code(w.create(kRoot, kRootIno, row.name)), row.expect) << row.name;
    EXPECT_EQ(code(w.mkdir(kRoot, kRootIno, row.name)), row.expect) << row.name;
    EXPECT_EQ(code(w.symlink(kRoot, kRootIno, row.name, "t")), row.expect) << row.name;
    EXPECT_EQ(code(w.link(kRoot, file, kRootIno, row.name)), row.expect) << row.name;
    EXPECT_EQ(code(w.rename(kRoot, kRootIno, "file", kRootIno, row.name)), row.expect) << row.name;
  }
  EXPECT_CODE(w.mkdir(kRoot, kRootIno, ""), kNoEnt);
  EXPECT_CODE(w.create(kRoot, file, "x"), kNotDir);
  EXPECT_CODE(w.mkdir(kRoot, file, "x"), kNotDir);
  EXPECT_CODE(w.lookup(kRoot, file, "x"), kNotDir);
  EXPECT_CODE(w.lookup(kRoot, kRootIno, "nothing"), kNoEnt);
  EXPECT_CODE(w.lookup(kRoot, Ino(1 << 20), "x"), kStale);
  EXPECT_CODE(w.lookup(kRoot, kRootIno, std::string(256, 'n')), kNameTooLong);
}

TEST_F(CreateTest, UmaskDefaultAclAndSetgidDirectories) {
  Ino plain = must(w.mkdir(kRoot, kRootIno, "plain", 0777));
  EXPECT_EQ(w.record(must(w.create(kAlice, plain, "f", 0666, 027))).mode, S_IFREG | 0640u);
  EXPECT_EQ(w.record(must(w.mkdir(kAlice, plain, "d", 0777, 027))).mode, S_IFDIR | 0750u);
  EXPECT_EQ(w.record(must(w.mkdir(kAlice, plain, "s", 07777, 0))).mode, S_IFDIR | 01777u) << "mkdir takes the sticky bit only";
  EXPECT_EQ(w.record(must(w.create(kAlice, plain, "x", 07777, 0))).mode, S_IFREG | 07777u);

  Ino group = must(w.mkdir(kRoot, kRootIno, "group", 0777));
  w.change(group, [](auto& r) {
    r.mode |= S_ISGID;
    r.gid = 300;
  });
  auto f = w.record(must(w.create(kAlice, group, "f", 02775)));
  EXPECT_EQ(f.gid, 300u);
  EXPECT_EQ(f.mode, S_IFREG | 0775u) << "no set-group-ID file for a group one isn't in";
  EXPECT_EQ(w.record(must(w.create(user(1000, 100, {300}), group, "g", 02775))).mode, S_IFREG | 02775u);
  EXPECT_EQ(w.record(must(w.create(kAlice, group, "h", 02765))).mode, S_IFREG | 02765u);
  auto d = w.record(must(w.mkdir(kAlice, group, "d", 0755)));
  EXPECT_EQ(d.gid, 300u);
  EXPECT_EQ(d.mode, S_IFDIR | 02755u);
  EXPECT_CODE(w.create(user(1000, 100, {}, false), group, "k", 02775), kNeedGroups);

  Ino acl = must(w.mkdir(kRoot, kRootIno, "acl", 0777));
  must(w.xattr_set(kRoot, acl, std::string(kDefaultAcl), acl_bytes("u::rwx u:1000:rwx g::rwx m::rwx o::r-x")));
  Ino file = must(w.create(kAlice, acl, "f", 0666, 077));
  EXPECT_EQ(w.record(file).mode, S_IFREG | 0664u) << "the default ACL, not the umask";
  EXPECT_EQ(must(w.xattr_get(kAlice, file, std::string(kAccessAcl))), acl_bytes("u::rw- u:1000:rwx g::rwx m::rw- o::r--"));
  EXPECT_CODE(w.xattr_get(kAlice, file, std::string(kDefaultAcl)), kNoData);
  Ino sub = must(w.mkdir(kAlice, acl, "d", 0777, 077));
  EXPECT_EQ(w.record(sub).mode, S_IFDIR | 0775u);
  EXPECT_EQ(must(w.xattr_get(kAlice, sub, std::string(kDefaultAcl))), acl_bytes("u::rwx u:1000:rwx g::rwx m::rwx o::r-x"));
  must(w.xattr_set(kRoot, acl, std::string(kDefaultAcl), acl_bytes("u::rwx g::r-x o::---")));
  Ino minimal = must(w.create(kAlice, acl, "m", 0666, 077));
  EXPECT_EQ(w.record(minimal).mode, S_IFREG | 0640u);
  EXPECT_CODE(w.xattr_get(kAlice, minimal, std::string(kAccessAcl)), kNoData);
}

TEST_F(CreateTest, ParentsMoveTheirTimesAndCounts) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  auto before = w.record(d);
  must(w.create(kRoot, d, "f"));
  auto after = w.record(d);
  EXPECT_GT(after.mtime, before.mtime);
  EXPECT_EQ(after.ctime, after.mtime);
  EXPECT_EQ(after.atime, before.atime);
  EXPECT_EQ(after.entries, 1u);
  EXPECT_EQ(after.nlink, 2u);
  must(w.mkdir(kRoot, d, "sub"));
  EXPECT_EQ(w.record(d).nlink, 3u);
  EXPECT_EQ(must(w.getattr(d)).nlink, 3u);
}

TEST_F(CreateTest, CreateOpensRegistersAndTakesTheLayoutOfItsDirectory) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  w.change(d, [&](auto& r) {
    r.layout = std::make_unique<schema::LayoutT>(w.hooks.cluster_layout());
    r.layout->components[0]->stripe_size = 7 << 16;
  });
  w.dir_layouts.forget();
  Ino sub = must(w.mkdir(kRoot, d, "sub"));
  auto made = must(w.open_new(kRoot, sub, "f", 0444, 0, O_RDWR | O_CREAT, 77));
  EXPECT_TRUE(made.created);
  EXPECT_EQ(made.layout->components[0]->stripe_size, 7u << 16);
  EXPECT_TRUE(made.layout->components[0]->instantiated);
  EXPECT_EQ(w.record(Ino(made.attr->ino)).layout->components[0]->osts.size(), 1u);
  auto again = must(w.open_new(kRoot, sub, "f", 0444, 0, O_RDWR | O_CREAT, 78));
  EXPECT_FALSE(again.created);
  EXPECT_EQ(again.attr->ino, made.attr->ino);
  EXPECT_CODE(w.open_new(kRoot, sub, "f", 0444, 0, O_RDWR | O_CREAT | O_EXCL, 78), kExist);
  auto outside = must(w.open_new(kRoot, kRootIno, "f", 0444, 0, O_RDWR | O_CREAT, 79));
  EXPECT_EQ(outside.layout->components[0]->stripe_size, 1u << 20);
}

TEST_F(CreateTest, TmpfileIsAnOrphanThatLinkMayName) {
  auto made = must(w.open_new(kAlice, must(w.mkdir(kRoot, kRootIno, "d", 0777)), "", 0600, 0, O_RDWR | O_TMPFILE, 5));
  Ino ino(made.attr->ino);
  EXPECT_EQ(made.attr->nlink, 0u);
  EXPECT_EQ(w.hooks.orphans, std::vector<Ino>{ino});
  check_namespace(*w.store, *w.journal);
  must(w.link(kRoot, ino, kRootIno, "named"));
  EXPECT_EQ(must(w.getattr(ino)).nlink, 1u);
  EXPECT_FALSE(must(w.view().get(Family::kOrphan, orphan_key(ino))));
  auto sealed = must(w.open_new(kRoot, kRootIno, "", 0600, 0, O_RDWR | O_TMPFILE | O_EXCL, 6));
  EXPECT_CODE(w.link(kRoot, Ino(sealed.attr->ino), kRootIno, "x"), kNoEnt);
}

TEST_F(CreateTest, FewRowsPerCreate) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  wire::CreateRequestT q;
  q.parent = d.v;
  q.name = as_bytes("f");
  q.mode = 0644;
  OpContext ctx(*w.services, kRoot);
  size_t rows = 0, charges = 0;
  must(DirectRunner::run(ctx, [&](OpContext& c) {
    auto r = ops::create(c, q);
    rows = c.batch().rows().size();
    charges = c.batch().charges().size();
    return r;
  }, nullptr));
  EXPECT_EQ(rows, 3u) << "inode, name, parent";
  EXPECT_EQ(charges, 1u);
}

TEST_F(CreateTest, NothingIsMadeInARemovedDirectory) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  w.hooks.kept.insert(d);
  must(w.rmdir(kRoot, kRootIno, "d"));
  EXPECT_EQ(must(w.getattr(d)).nlink, 0u);
  EXPECT_CODE(w.create(kRoot, d, "f"), kNoEnt);
  EXPECT_CODE(w.mkdir(kRoot, d, "f"), kNoEnt);
  EXPECT_CODE(w.open_new(kRoot, d, "", 0600, 0, O_TMPFILE, 1), kNoEnt);
}

}  // namespace
}  // namespace nacre::mds::test
