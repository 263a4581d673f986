// SPDX-License-Identifier: Apache-2.0
// Names, attributes, listings and tools through a real mount.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "client/fuse/ioctl.h"
#include "tests/unit/client_fuse/mounted.h"

namespace nacre::test {
namespace {

class FrontNames : public Mounted {};
INSTANTIATE_TEST_SUITE_P(Modes, FrontNames, testing::Values(Mode{"classic", ""}, Mode{"plus", "", false, true}, Mode{"ring", "", true}), [](auto& i) { return i.param.name; });

TEST_P(FrontNames, ProcMountsShowsSourceAndType) {
  std::ifstream f("/proc/mounts");
  std::string line;
  bool found = false;
  while (std::getline(f, line)) found = found || line.starts_with("memory,with:commas " + point_ + " fuse.nacre rw,relatime,");
  EXPECT_TRUE(found) << "and neither nosuid nor nodev";
}

TEST_P(FrontNames, ListingHasEachNameOnceWithItsInode) {
  constexpr int kFiles = 5000;
  ASSERT_EQ(::mkdir(at("d").c_str(), 0755), 0);
  for (int i = 0; i < kFiles; ++i) ASSERT_EQ(::mknod(at("d/file" + std::to_string(i)).c_str(), S_IFREG | 0644, 0), 0);
  const auto before = fs_->knobs.readdirs.load();
  DIR* d = ::opendir(at("d").c_str());
  ASSERT_NE(d, nullptr);
  std::set<std::string> names;
  struct stat st;
  while (dirent* e = ::readdir(d)) {
    EXPECT_TRUE(names.insert(e->d_name).second) << e->d_name;
    if (std::string(e->d_name) == "..") continue;
    ASSERT_EQ(::lstat(at(std::string("d/") + e->d_name).c_str(), &st), 0);
    EXPECT_EQ(e->d_ino, st.st_ino) << e->d_name;
    EXPECT_EQ(e->d_type, S_ISDIR(st.st_mode) ? DT_DIR : DT_REG);
  }
  EXPECT_EQ(names.size(), kFiles + 2u);
  if (!GetParam().readdirplus) EXPECT_LE(fs_->knobs.readdirs - before, 5u) << "one trip brings more than the kernel takes at a time";
  else EXPECT_GT(fs_->knobs.plus_readdirs, 0u);
  // A place taken in the middle is found again, after the start was listed anew.
  ::rewinddir(d);
  for (int i = 0; i < 2500; ++i) ASSERT_NE(::readdir(d), nullptr);
  const long place = ::telldir(d);
  const std::string next = ::readdir(d)->d_name;
  ::rewinddir(d);
  EXPECT_STREQ(::readdir(d)->d_name, ".");
  ::seekdir(d, place);
  EXPECT_EQ(::readdir(d)->d_name, next);
  ::closedir(d);
}

TEST_P(FrontNames, RemovingWhileListingMissesNothing) {
  ASSERT_EQ(::mkdir(at("d").c_str(), 0755), 0);
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(::mknod(at("d/f" + std::to_string(i)).c_str(), S_IFREG | 0644, 0), 0);
  DIR* d = ::opendir(at("d").c_str());
  int seen = 0;
  while (dirent* e = ::readdir(d)) {
    if (e->d_name[0] == '.') continue;
    ++seen;
    ASSERT_EQ(::unlinkat(::dirfd(d), e->d_name, 0), 0);
  }
  EXPECT_EQ(seen, 3000);
  ::closedir(d);
  EXPECT_EQ(::rmdir(at("d").c_str()), 0);
}

TEST_P(FrontNames, EmptyDirectoryAndNewNamesAfterReopening) {
  ASSERT_EQ(::mkdir(at("d").c_str(), 0755), 0);
  auto count = [&] {
    DIR* d = ::opendir(at("d").c_str());
    int n = 0;
    while (::readdir(d) != nullptr) ++n;
    EXPECT_EQ(::readdir(d), nullptr);
    ::closedir(d);
    return n;
  };
  EXPECT_EQ(count(), 2);
  make_file("d/x", "");
  EXPECT_EQ(count(), 3);
}

TEST_P(FrontNames, TmpfileGetsAName) {
  const int fd = ::open(point_.c_str(), O_TMPFILE | O_RDWR, 0640);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  ASSERT_EQ(::write(fd, "hello", 5), 5);
  struct stat st;
  ASSERT_EQ(::fstat(fd, &st), 0);
  EXPECT_EQ(st.st_nlink, 0u);
  ASSERT_EQ(::linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd)).c_str(), AT_FDCWD, at("named").c_str(), AT_SYMLINK_FOLLOW), 0) << std::strerror(errno);
  EXPECT_EQ(content("named"), "hello");
  ::close(fd);
}

TEST_P(FrontNames, LinkKeepsTheInodeOfASocketLikeName) {
  ASSERT_EQ(::mknod(at("a").c_str(), S_IFSOCK | 0600, 0), 0);
  struct stat a, b;
  ASSERT_EQ(::stat(at("a").c_str(), &a), 0);
  ASSERT_EQ(::link(at("a").c_str(), at("b").c_str()), 0);
  ASSERT_EQ(::unlink(at("a").c_str()), 0);
  ASSERT_EQ(::stat(at("b").c_str(), &b), 0);
  EXPECT_EQ(a.st_ino, b.st_ino);
  EXPECT_EQ(b.st_nlink, 1u);
}

TEST_P(FrontNames, TimesAndBirth) {
  make_file("f", "x");
  const timespec t[2] = {{-5, 1}, {5'000'000'000, 999'999'999}};
  ASSERT_EQ(::utimensat(AT_FDCWD, at("f").c_str(), t, 0), 0);
  struct statx sx;
  ASSERT_EQ(::statx(AT_FDCWD, at("f").c_str(), 0, STATX_BASIC_STATS | STATX_BTIME, &sx), 0);
  EXPECT_EQ(sx.stx_atime.tv_sec, -5);
  EXPECT_EQ(sx.stx_atime.tv_nsec, 1u);
  EXPECT_EQ(sx.stx_mtime.tv_sec, 5'000'000'000);
  EXPECT_EQ(sx.stx_mtime.tv_nsec, 999'999'999u);
  if (has(fuse::Feature::kStatx)) {
    EXPECT_TRUE(sx.stx_mask & STATX_BTIME);
    EXPECT_GT(sx.stx_btime.tv_sec, 1'600'000'000);
  }
}

TEST_P(FrontNames, DeviceNumbersSurvive) {
  ASSERT_EQ(::mknod(at("dev").c_str(), S_IFCHR | 0600, makedev(259, 70000)), 0);
  struct stat st;
  ASSERT_EQ(::stat(at("dev").c_str(), &st), 0);
  EXPECT_EQ(st.st_rdev, makedev(259, 70000));
}

TEST_P(FrontNames, Xattrs) {
  make_file("f", "x");
  const std::string path = at("f"), big(60'000, 'b');
  ASSERT_EQ(::setxattr(path.c_str(), "user.big", big.data(), big.size(), XATTR_CREATE), 0);
  EXPECT_EQ(::setxattr(path.c_str(), "user.big", "", 0, XATTR_CREATE), -1);
  EXPECT_EQ(errno, EEXIST);
  std::string got(65536, '\0');
  EXPECT_EQ(::getxattr(path.c_str(), "user.big", got.data(), got.size()), 60'000);
  EXPECT_EQ(::getxattr(path.c_str(), "user.big", nullptr, 0), 60'000);
  EXPECT_EQ(::getxattr(path.c_str(), "user.big", got.data(), 10), -1);
  EXPECT_EQ(errno, ERANGE);
  EXPECT_EQ(::getxattr(path.c_str(), "user.none", got.data(), 10), -1);
  EXPECT_EQ(errno, ENODATA);
  EXPECT_EQ(::listxattr(path.c_str(), got.data(), got.size()), static_cast<ssize_t>(sizeof "user.big"));
  // Answered, never listed, nobody's to set.
  const ssize_t n = ::getxattr(path.c_str(), "user.nacre.content_time", got.data(), got.size());
  ASSERT_GT(n, 0);
  EXPECT_NEAR(std::stod(got.substr(0, static_cast<size_t>(n))), static_cast<double>(::time(nullptr)), 60);
  EXPECT_EQ(::setxattr(path.c_str(), "user.nacre.content_time", "1", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::removexattr(path.c_str(), "user.nacre.content_time"), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::getxattr(path.c_str(), "user.nacre.other", got.data(), 10), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST_P(FrontNames, AclByAStrangerToTheGroupTellsToClearSetgid) {
  make_file("f", "x", 02777);
  ASSERT_EQ(::chown(at("f").c_str(), 20001, 30009), 0);
  ASSERT_EQ(::chmod(at("f").c_str(), 02777), 0);
  const pid_t pid = child([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(20001) != 0 || ::setuid(20001) != 0) return 1;
    // version 2; user::rwx, group::rwx, other::rwx
    const unsigned char acl[] = {2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 7, 0, 255, 255, 255, 255};
    return ::setxattr(at("f").c_str(), "system.posix_acl_access", acl, sizeof acl, 0) == 0 ? 0 : 2;
  });
  EXPECT_EQ(wait_child(pid), 0);
  struct stat st;
  ASSERT_EQ(::stat(at("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07000, 0u);
}

TEST_P(FrontNames, GroupsComeFromTheCallingThread) {
  const pid_t in = child([&] {
    const gid_t g[] = {30001};
    struct stat st;
    if (::setgroups(1, g) != 0) return 1;
    return ::stat(at("needs-groups").c_str(), &st) != 0 && errno == ENOENT ? 0 : 2;
  });
  EXPECT_EQ(wait_child(in), 0);
  const pid_t out = child([&] {
    struct stat st;
    if (::setgroups(0, nullptr) != 0) return 1;
    return ::stat(at("needs-groups").c_str(), &st) != 0 && errno == EACCES ? 0 : 2;
  });
  EXPECT_EQ(wait_child(out), 0);
  EXPECT_EQ(fs_->knobs.groups_asked, 2u);
}

TEST_P(FrontNames, SearchPermissionHoldsForKnownPaths) {
  ASSERT_EQ(::mkdir(at("p").c_str(), 0700), 0);
  make_file("p/secret", "x");
  struct stat st;
  ASSERT_EQ(::stat(at("p/secret").c_str(), &st), 0);
  const pid_t pid = child([&] {
    if (::setgid(20003) != 0 || ::setuid(20003) != 0) return 1;
    return ::open(at("p/secret").c_str(), O_RDONLY) < 0 && errno == EACCES ? 0 : 2;
  });
  EXPECT_EQ(wait_child(pid), 0);
}

TEST_P(FrontNames, IoctlAsksInPagesAndProvesTheCaller) {
  const int fd = ::open(point_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(fd, 0);
  auto call = std::make_unique<fuse::IoctlCall>();
  auto ask = [&](uint16_t method, const std::string& body) {
    std::string answer;
    do {
      *call = fuse::IoctlCall{};
      call->method = method;
      call->offset = static_cast<uint32_t>(answer.size());
      call->size = static_cast<uint32_t>(body.size());
      std::copy(body.begin(), body.end(), call->data);
      if (::ioctl(fd, fuse::kIoctlRequest, call.get()) != 0) return std::string("errno ") + std::strerror(errno);
      if (call->status != 0) return "status " + std::to_string(call->status);
      answer.append(reinterpret_cast<char*>(call->data), call->size);
    } while (answer.size() < call->total && call->size != 0);
    return answer;
  };
  std::string want = "uid 0:";
  for (int i = 0; i < 1000; ++i) want += std::string(100, 'b');
  EXPECT_TRUE(ask(1, std::string(100, 'b')) == want);
  EXPECT_EQ(ask(2, ""), "status " + std::to_string(static_cast<int>(Errc::kPerm)));
  const auto status = nlohmann::json::parse(ask(fuse::kIoctlClientStatus, ""));
  EXPECT_EQ(status["mount_point"], point_);
  EXPECT_EQ(status["transport"], GetParam().ring ? "io_uring" : "/dev/fuse");
  call->magic = 1;
  EXPECT_EQ(::ioctl(fd, fuse::kIoctlRequest, call.get()), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::ioctl(fd, FS_IOC_GETVERSION, call.get()), -1);  // one that the kernel itself does not answer
  EXPECT_EQ(errno, ENOTTY);
  ::close(fd);
}

TEST_P(FrontNames, Statvfs) {
  struct statvfs s;
  ASSERT_EQ(::statvfs(point_.c_str(), &s), 0);
  EXPECT_EQ(s.f_namemax, 255u);
  EXPECT_EQ(s.f_frsize, 4096u);
  EXPECT_EQ(s.f_blocks, 1u << 20);
}

}  // namespace
}  // namespace nacre::test
