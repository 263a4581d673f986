// SPDX-License-Identifier: Apache-2.0
// Data through a real mount: large and unaligned I/O, writes in parallel, shared mappings, growth seen from elsewhere.
#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "common/base/rng.h"
#include "tests/unit/client_fuse/mounted.h"

namespace nacre::test {
namespace {

constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kPage = 4096;

class FrontData : public Mounted {};
INSTANTIATE_TEST_SUITE_P(Modes, FrontData, testing::Values(Mode{"classic", ""}, Mode{"old_kernel", "mmap,parallel,epoch"}, Mode{"ring", "", true}), [](auto& i) { return i.param.name; });

std::string pattern(size_t size, uint32_t seed) {
  std::string s(size, '\0');
  for (size_t i = 0; i < size; ++i) s[i] = static_cast<char>((i * 2654435761u + seed) >> 13);
  return s;
}

struct Aligned {
  char* p;
  explicit Aligned(size_t n) : p(static_cast<char*>(std::aligned_alloc(kPage, n))) {}
  ~Aligned() { std::free(p); }
};

TEST_P(FrontData, AlignedMegabyteArrivesInOnePiece) {
  const std::string data = pattern(kMiB, 1);
  Aligned a(kMiB);
  std::memcpy(a.p, data.data(), kMiB);
  const int fd = ::open(at("f").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::pwrite(fd, a.p, kMiB, 0), static_cast<ssize_t>(kMiB));
  EXPECT_EQ(fs_->knobs.writes, 1u);
  EXPECT_EQ(fs_->knobs.largest_write, kMiB);
  EXPECT_EQ(fs_->knobs.unaligned, 0u) << "the data of a write begins at a page, so that it can go on to a disk as it is";
  std::memset(a.p, 0, kMiB);
  ASSERT_EQ(::pread(fd, a.p, kMiB, 0), static_cast<ssize_t>(kMiB));
  EXPECT_EQ(fs_->knobs.largest_read, kMiB);
  EXPECT_EQ(fs_->knobs.reads, 1u);
  EXPECT_EQ(std::memcmp(a.p, data.data(), kMiB), 0);
  ::close(fd);
}

TEST_P(FrontData, UnalignedPiecesOfAllSizes) {
  const std::string data = pattern(5 * kMiB + 17, 2);
  const int fd = ::open(at("f").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  size_t off = 0;
  for (size_t size = 1; off < data.size(); size = size * 3 + 1) {
    const size_t n = std::min(size, data.size() - off);
    ASSERT_EQ(::pwrite(fd, data.data() + off, n, static_cast<off_t>(off)), static_cast<ssize_t>(n));
    off += n;
    if (size > 2 * kMiB) size = 1;
  }
  std::string got(data.size() + 100, '?');
  size_t have = 0;
  for (ssize_t n = 0; (n = ::pread(fd, got.data() + have, std::min<size_t>(got.size() - have, 777'777), static_cast<off_t>(have))) > 0;) have += static_cast<size_t>(n);
  got.resize(have);
  EXPECT_TRUE(got == data);
  ::close(fd);
}

TEST_P(FrontData, WritesOfOneFileRunTogether) {
  make_file("f", pattern(kMiB, 3));
  fs_->knobs.data_delay = 200 * kMillisecond;
  const int fd = ::open(at("f").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      Aligned a(kPage);
      std::memset(a.p, 'a' + i, kPage);
      EXPECT_EQ(::pwrite(fd, a.p, kPage, i * static_cast<off_t>(kPage)), static_cast<ssize_t>(kPage));
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(fs_->knobs.writes_at_once, has(fuse::Feature::kParallel) ? 4 : 1);
  ::close(fd);
}

TEST_P(FrontData, SharedMappingIsWrittenBackAndNeverExtends) {
  make_file("f", std::string(kPage + 100, 'x'));
  const int fd = ::open(at("f").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  void* m = ::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!has(fuse::Feature::kMmap)) {
    EXPECT_EQ(m, MAP_FAILED);
    EXPECT_EQ(errno, ENODEV);
    ::close(fd);
    return;
  }
  ASSERT_NE(m, MAP_FAILED);
  auto* p = static_cast<char*>(m);
  EXPECT_EQ(p[kPage + 99], 'x');
  p[0] = 'A';
  p[kPage + 99] = 'Z';
  p[kPage + 150] = '!';  // beyond the end: not of the file
  ASSERT_EQ(::msync(m, 2 * kPage, MS_SYNC), 0);
  EXPECT_GE(fs_->knobs.page_writes, 1u);
  const std::string now = content("f");
  ASSERT_EQ(now.size(), kPage + 100);
  EXPECT_EQ(now.front(), 'A');
  EXPECT_EQ(now.back(), 'Z');
  ::munmap(m, 2 * kPage);
  ::close(fd);
}

TEST_P(FrontData, ReadOnlyHandleMapsSharedAndSeesChangesFromElsewhere) {
  make_file("f", "one");
  const int fd = ::open(at("f").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  void* m = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(m, MAP_FAILED) << std::strerror(errno);
  EXPECT_EQ(std::memcmp(m, "one", 3), 0);
  ::munmap(m, kPage);
  char b[16] = {};
  ASSERT_EQ(::pread(fd, b, sizeof b, 0), 3);
  fs_->append_behind("f", " more");
  ASSERT_EQ(::pread(fd, b, sizeof b, 0), 8) << "what another client has written is read at once, through an open handle too";
  EXPECT_EQ(std::string(b, 8), "one more");
  ::close(fd);
}

TEST_P(FrontData, GrowthElsewhereMovesAppendsFilePosition) {
  make_file("f", "ab");
  const int fd = ::open(at("f").c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(fd, 0);
  fs_->append_behind("f", std::string(5000, 'c'));
  notifier_->size_grew(fs_->ino_of("f"), 5002);
  ASSERT_EQ(::write(fd, "d", 1), 1);
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), 5003);
  EXPECT_EQ(content("f").size(), 5003u);
  fs_->append_behind("f", std::string(2 * kPage - 5003, 'e'));  // ends with a page: the stored byte would stay in the cache
  notifier_->size_grew(fs_->ino_of("f"), 2 * kPage);
  ASSERT_EQ(::write(fd, "g", 1), 1);
  EXPECT_EQ(::lseek(fd, 0, SEEK_CUR), static_cast<off_t>(2 * kPage + 1));
  ::close(fd);
  if (!has(fuse::Feature::kMmap)) return;
  const int ro = ::open(at("f").c_str(), O_RDONLY);
  void* m = ::mmap(nullptr, 3 * kPage, PROT_READ, MAP_SHARED, ro, 0);
  ASSERT_NE(m, MAP_FAILED);
  EXPECT_EQ(static_cast<char*>(m)[2 * kPage - 1], 'e') << "not the byte that told the kernel";
  ::munmap(m, 3 * kPage);
  ::close(ro);
}

TEST_P(FrontData, WriteByOthersClearsSetId) {
  make_file("f", "x", 06777);
  const pid_t pid = child([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(20001) != 0 || ::setuid(20001) != 0) return 1;
    const int fd = ::open(at("f").c_str(), O_WRONLY);
    return ::pwrite(fd, "y", 1, 0) == 1 ? 0 : 2;
  });
  EXPECT_EQ(wait_child(pid), 0);
  struct stat st;
  ASSERT_EQ(::stat(at("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0777u);
  EXPECT_EQ(fs_->knobs.kill_priv, 1u);
  ASSERT_EQ(::chmod(at("f").c_str(), 06777), 0);
  const int fd = ::open(at("f").c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(fd, "z", 1, 0), 1);
  ::close(fd);
  ASSERT_EQ(::stat(at("f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 06777u) << "root keeps them";
}

TEST_P(FrontData, SeekFallocateCopy) {
  const int fd = ::open(at("f").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 64 * kPage), 0);
  ASSERT_EQ(::pwrite(fd, "data", 4, 16 * kPage), 4);
  EXPECT_EQ(::lseek(fd, 0, SEEK_DATA), static_cast<off_t>(16 * kPage));
  EXPECT_EQ(::lseek(fd, 16 * kPage, SEEK_HOLE), static_cast<off_t>(17 * kPage));
  EXPECT_EQ(::lseek(fd, 20 * kPage, SEEK_DATA), -1);
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(::lseek(fd, 0, SEEK_END), static_cast<off_t>(64 * kPage));
  ASSERT_EQ(::fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 16 * kPage, kPage), 0);
  EXPECT_EQ(::lseek(fd, 0, SEEK_DATA), -1);
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, kPage), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  const int out = ::open(at("g").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::pwrite(fd, "copied", 6, 0), 6);
  off_t from = 0, to = 10;
  EXPECT_EQ(::copy_file_range(fd, &from, out, &to, 6, 0), 6);
  EXPECT_EQ(content("g"), std::string(10, '\0') + "copied");
  ::close(out);
  ::close(fd);
}

}  // namespace
}  // namespace nacre::test
