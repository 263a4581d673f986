// SPDX-License-Identifier: Apache-2.0
// chmod, chown, truncate, utimensat: who may, what goes with it.
#include "tests/unit/metadata/ops/acl_text.h"
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

using wire::kSetAtime, wire::kSetAtimeNow, wire::kSetGid, wire::kSetMode, wire::kSetMtime, wire::kSetMtimeNow, wire::kSetUid;

struct SetattrTest : testing::Test {
  World w;
  Ino f;
  void SetUp() override {
    f = must(w.create(kRoot, kRootIno, "f", 0644, 0, O_EXCL, 1));
    w.change(f, [](auto& r) {
      r.uid = 1000;
      r.gid = 100;
    });
  }
  void TearDown() override { check_namespace(*w.store, *w.journal); }
  uint32_t mode() { return w.record(f).mode & 07777; }
  Result<wire::SetattrReplyT> chown(const wire::CredT& who, uint32_t uid, uint32_t gid) {
    uint32_t valid = (uid != UINT32_MAX ? kSetUid : 0) | (gid != UINT32_MAX ? kSetGid : 0);
    return w.setattr(who, f, valid, [&](auto& q) {
      q.uid = uid;
      q.gid = gid;
    });
  }
};

TEST_F(SetattrTest, Chmod) {
  auto before = w.record(f);
  must(w.chmod(kAlice, f, 0750));
  EXPECT_EQ(mode(), 0750u);
  EXPECT_GT(w.record(f).ctime, before.ctime);
  EXPECT_EQ(w.record(f).mtime, before.mtime);
  EXPECT_CODE(w.chmod(kBob, f, 0777), kPerm);
  must(w.chmod(kRoot, f, 07777));
  EXPECT_EQ(mode(), 07777u);
  must(w.chmod(kAlice, f, 06755));
  EXPECT_EQ(mode(), 06755u);
  w.change(f, [](auto& r) { r.gid = 300; });
  must(w.chmod(kAlice, f, 06755));
  EXPECT_EQ(mode(), 04755u) << "set-group-ID goes for a group one isn't in";
  must(w.chmod(user(1000, 100, {300}), f, 06755));
  EXPECT_EQ(mode(), 06755u);
  EXPECT_CODE(w.chmod(user(1000, 100, {}, false), f, 06755), kNeedGroups);
}

TEST_F(SetattrTest, ChmodMovesTheAclsMask) {
  must(w.xattr_set(kAlice, f, std::string(kAccessAcl), acl_bytes("u::rw- u:5:rwx g::r-x m::rwx o::r--")));
  EXPECT_EQ(mode(), 0674u);
  must(w.chmod(kAlice, f, 0640));
  EXPECT_EQ(mode(), 0640u);
  EXPECT_EQ(must(w.xattr_get(kAlice, f, std::string(kAccessAcl))), acl_bytes("u::rw- u:5:rwx g::r-x m::r-- o::---"));
}

TEST_F(SetattrTest, Chown) {
  constexpr uint32_t kKeep = UINT32_MAX;
  EXPECT_CODE(chown(kAlice, 2000, kKeep), kPerm);
  EXPECT_CODE(chown(kAlice, 1000, kKeep), kOk);
  EXPECT_CODE(chown(kAlice, kKeep, 300), kPerm);
  EXPECT_CODE(chown(user(1000, 100, {300}), kKeep, 300), kOk);
  EXPECT_CODE(chown(user(1000, 100, {}, false), kKeep, 301), kNeedGroups);
  EXPECT_CODE(chown(kBob, 2000, 200), kPerm);
  EXPECT_CODE(chown(kBob, kKeep, 200), kPerm);
  must(w.chmod(kRoot, f, 06755));
  must(chown(user(1000, 100, {300}), kKeep, 100));
  EXPECT_EQ(mode(), 0755u);
  must(w.chmod(kRoot, f, 06745));
  must(chown(kRoot, 3000, 400));
  EXPECT_EQ(mode(), 02745u) << "set-group-ID without group execute is a lock mark, and root's chown leaves it";
  w.change(f, [](auto& r) { r.allocated = 4096; });
  must(chown(kRoot, 1000, 100));
  EXPECT_EQ(w.journal->usage({Subject::Kind::kFilesetUser, FilesetId(1), "", 1000}).bytes, 4096);
  EXPECT_EQ(w.journal->usage({Subject::Kind::kFilesetUser, FilesetId(1), "", 3000}).inodes, 0);
  Ino d = must(w.mkdir(kRoot, kRootIno, "d", 0755));
  w.change(d, [](auto& r) { r.mode |= S_ISGID; });
  must(w.setattr(kRoot, d, kSetGid, [](auto& q) { q.gid = 7; }));
  EXPECT_EQ(w.record(d).mode & 07777, 02755u) << "a directory keeps it";
}

TEST_F(SetattrTest, KillPrivilegesAndCapability) {
  must(w.xattr_set(kRoot, f, "security.capability", {1, 2}));
  must(w.chmod(kRoot, f, 06775));
  EXPECT_TRUE(w.record(f).flags & wire::kHasCapability);
  must(w.setattr(kBob, f, 0, [](auto& q) { q.kill_priv = true; }));
  EXPECT_EQ(mode(), 0775u);
  EXPECT_FALSE(w.record(f).flags & wire::kHasCapability);
  EXPECT_CODE(w.xattr_get(kRoot, f, "security.capability"), kNoData);
}

TEST_F(SetattrTest, KillCapabilityAlone) {
  must(w.xattr_set(kRoot, f, "security.capability", {1, 2}));
  must(w.chmod(kRoot, f, 06775));
  must(w.setattr(kRoot, f, 0, [](auto& q) { q.kill_capability = true; }));
  EXPECT_EQ(mode(), 06775u) << "root keeps suid and sgid";
  EXPECT_CODE(w.xattr_get(kRoot, f, "security.capability"), kNoData);
}

TEST_F(SetattrTest, NothingToClearChangesNoTimes) {
  const auto before = w.record(f);
  must(w.setattr(kRoot, f, 0, [](auto& q) { q.kill_capability = true; }));
  EXPECT_EQ(w.record(f).ctime, before.ctime);
}

TEST_F(SetattrTest, Times) {
  auto set = [&](const wire::CredT& who, uint32_t valid, int64_t atime, int64_t mtime) {
    return w.setattr(who, f, valid, [&](auto& q) {
      q.atime = atime;
      q.mtime = mtime;
    });
  };
  must(set(kAlice, kSetAtime | kSetMtime, -5 * kSecond, (int64_t{1} << 33) * kSecond + 7));
  EXPECT_EQ(w.record(f).atime, -5 * kSecond);
  EXPECT_EQ(w.record(f).mtime, (int64_t{1} << 33) * kSecond + 7);
  must(set(kAlice, kSetMtime, 1, 0));
  EXPECT_EQ(w.record(f).atime, -5 * kSecond) << "UTIME_OMIT";
  EXPECT_EQ(w.record(f).mtime, 0);
  EXPECT_EQ(w.record(f).ctime, w.clock.real());
  EXPECT_CODE(set(kBob, kSetAtime, 1, 1), kPerm);
  EXPECT_CODE(set(kBob, kSetAtime | kSetAtimeNow | kSetMtime | kSetMtimeNow, 1, 1), kAccess);
  must(w.chmod(kRoot, f, 0666));
  must(set(kBob, kSetAtime | kSetAtimeNow | kSetMtime | kSetMtimeNow, 1, 1));
  EXPECT_EQ(w.record(f).atime, w.clock.real());
  EXPECT_EQ(w.record(f).mtime, w.clock.real());
  EXPECT_CODE(set(kBob, kSetMtime, 1, 1), kPerm);
}

TEST_F(SetattrTest, TruncateErrors) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d")), fifo = must(w.make(kRoot, kRootIno, "p", S_IFIFO | 0666));
  EXPECT_CODE(w.truncate(kRoot, d, 0), kIsDir);
  EXPECT_CODE(w.truncate(kRoot, fifo, 0), kInval);
  EXPECT_CODE(w.truncate(kRoot, f, (uint64_t{1} << 60) + 1), kFBig);
  EXPECT_CODE(w.truncate(kBob, f, 0), kAccess);
  must(w.chmod(kRoot, f, 0));
  EXPECT_CODE(w.truncate(kAlice, f, 10), kAccess);
  w.hooks.handles.insert(9);
  EXPECT_CODE(w.truncate(kAlice, f, 10, 9), kOk) << "the handle was opened for writing: the mode isn't asked again";
  EXPECT_CODE(w.truncate(kAlice, f, 10, 10), kAccess) << "no handle of his";
}

TEST_F(SetattrTest, TruncateUpIsMetadataAndTakesPrivileges) {
  must(w.chmod(kRoot, f, 06777));
  auto before = w.record(f);
  auto reply = must(w.truncate(kBob, f, 1'000'000));
  EXPECT_EQ(reply.attr->size, 1'000'000u);
  EXPECT_EQ(mode(), 0777u);
  auto after = w.record(f);
  EXPECT_GT(after.mtime, before.mtime);
  EXPECT_GT(after.ctime, before.ctime);
  EXPECT_EQ(after.content_time, after.mtime);
  EXPECT_TRUE(w.hooks.destroyed.empty());
}

TEST_F(SetattrTest, TruncateToNothingTakesANewGeneration) {
  w.change(f, [](auto& r) {
    r.size = 100;
    r.allocated = 4096;
  });
  auto reply = must(w.truncate(kAlice, f, 0));
  EXPECT_EQ(reply.attr->size, 0u);
  EXPECT_EQ(reply.layout->generation, 2u);
  EXPECT_FALSE(reply.layout->components[0]->instantiated);
  EXPECT_EQ(w.hooks.destroyed, std::vector<Ino>{f});
  EXPECT_EQ(w.journal->usage_total().bytes, 0);
  must(w.truncate(kAlice, f, 0));
  EXPECT_EQ(w.record(f).layout->generation, 2u) << "there was nothing to drop";
}

TEST_F(SetattrTest, TruncateDownAsksTheObjectsFirst) {
  w.change(f, [](auto& r) { r.size = 100; });
  int calls = 0;
  w.hooks.do_truncate = [&](Ino ino, uint64_t size) -> Result<void> {
    ++calls;
    w.change(ino, [&](auto& r) { r.size = size; });
    return {};
  };
  EXPECT_EQ(must(w.truncate(kAlice, f, 40)).attr->size, 40u);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(must(w.truncate(kAlice, f, 40)).attr->size, 40u);
  EXPECT_EQ(calls, 1) << "already so";
  w.hooks.sessions[f] = {2};  // somebody else has it open: no new generation
  EXPECT_EQ(must(w.truncate(kAlice, f, 0)).attr->size, 0u);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(w.record(f).layout->generation, 1u);
  w.hooks.do_truncate = [](Ino, uint64_t) -> Result<void> { return Err(Errc::kOstInactive); };
  w.change(f, [](auto& r) { r.size = 100; });
  EXPECT_CODE(w.truncate(kAlice, f, 50), kOstInactive);
  EXPECT_EQ(w.record(f).size, 100u);
}

TEST_F(SetattrTest, AnIntentMustBeFinishedFirst) {
  w.change(f, [](auto& r) { r.truncate_intent = std::make_unique<schema::TruncateIntentT>(); });
  EXPECT_CODE(w.chmod(kAlice, f, 0600), kBusy);  // what this world's hook says
  EXPECT_CODE(w.getattr(f), kBusy);
  EXPECT_CODE(w.lookup(kRoot, kRootIno, "f"), kBusy);
  EXPECT_CODE(w.readdir(kRoot, kRootIno, 0, true), kBusy);
  EXPECT_CODE(w.readdir(kRoot, kRootIno, 0, false), kOk);
  EXPECT_CODE(w.unlink(kRoot, kRootIno, "f"), kOk) << "a target that can't be reached doesn't keep a name alive";
}

}  // namespace
}  // namespace nacre::mds::test
