// SPDX-License-Identifier: Apache-2.0
// Processes and their signals, many at a time, locks, and the end of a mount.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/unit/client_fuse/mounted.h"

namespace nacre::test {
namespace {

class FrontProcess : public Mounted {};
INSTANTIATE_TEST_SUITE_P(Modes, FrontProcess, testing::Values(Mode{"classic", ""}, Mode{"ring", "", true}), [](auto& i) { return i.param.name; });

void on_signal(int) {}
/// SA_RESTART makes the kernel ask for a lock again after the handler (signal(7)); other calls it leaves as they are.
void handle(int signal, int flags = SA_RESTART) {
  struct sigaction a {};
  a.sa_handler = on_signal;
  a.sa_flags = flags;
  ::sigaction(signal, &a, nullptr);
}

TEST_P(FrontProcess, KillEndsAWait) {
  make_file("f", "x");
  fs_->knobs.hold_reads = true;
  const pid_t pid = child([&] {
    char c;
    return static_cast<int>(::pread(::open(at("f").c_str(), O_RDONLY), &c, 1, 0));
  });
  ASSERT_TRUE(soon([&] { return fs_->knobs.reads > 0; }));
  ::kill(pid, SIGKILL);
  EXPECT_EQ(wait_child(pid, 5), 128 + SIGKILL);
  EXPECT_TRUE(soon([&] { return fs_->knobs.cancelled == 1; }));
  EXPECT_EQ(front_->report().cancelled, 1u);
}

TEST_P(FrontProcess, TermWithoutHandlerEndsAWait) {
  make_file("f", "x");
  fs_->knobs.hold_lookups = true;
  const pid_t pid = child([&] {
    struct stat st;
    return ::stat(at("f").c_str(), &st);
  });
  ASSERT_TRUE(soon([&] { return front_->report().running > 0; }));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(wait_child(pid, 5), 128 + SIGTERM);
}

TEST_P(FrontProcess, HandledSignalDoesNotInterruptARead) {
  make_file("f", "content");
  fs_->knobs.hold_reads = true;
  const pid_t pid = child([&] {
    handle(SIGUSR1);
    char b[16];
    const ssize_t n = ::pread(::open(at("f").c_str(), O_RDONLY), b, sizeof b, 0);
    return n == 7 ? 0 : n < 0 ? errno : 100;
  });
  ASSERT_TRUE(soon([&] { return fs_->knobs.reads > 0; }));
  ::kill(pid, SIGUSR1);
  ASSERT_TRUE(soon([&] { return front_->report().interrupts == 1; }));
  EXPECT_EQ(fs_->knobs.cancelled, 0u);
  fs_->knobs.hold_reads = false;
  EXPECT_EQ(wait_child(pid), 0) << "no EINTR, as from a local file";
  EXPECT_EQ(fs_->knobs.cancelled, 0u);
}

TEST_P(FrontProcess, KillAfterAHandledSignalStillEndsAWait) {
  make_file("f", "x");
  fs_->knobs.hold_reads = true;
  const pid_t pid = child([&] {
    handle(SIGUSR1);
    char c;
    return static_cast<int>(::pread(::open(at("f").c_str(), O_RDONLY), &c, 1, 0));
  });
  ASSERT_TRUE(soon([&] { return fs_->knobs.reads > 0; }));
  ::kill(pid, SIGUSR1);
  ASSERT_TRUE(soon([&] { return front_->report().interrupts == 1; }));
  ::kill(pid, SIGKILL);  // the kernel tells of one signal only
  EXPECT_EQ(wait_child(pid, 5), 128 + SIGKILL);
}

TEST_P(FrontProcess, SignalEndsAWaitForALock) {
  make_file("f", "x");
  const int fd = ::open(at("f").c_str(), O_RDWR);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(fd, F_SETLK, &whole), 0);
  for (bool posix : {true, false}) {
    const pid_t pid = child([&, posix] {
      handle(SIGUSR1, 0);
      const int mine = ::open(at("f").c_str(), O_RDWR);
      struct flock l {};
      l.l_type = F_RDLCK;
      const int r = posix ? ::fcntl(mine, F_SETLKW, &l) : ::flock(mine, LOCK_SH);
      return r < 0 && errno == EINTR ? 0 : 1;
    });
    const auto before = front_->report().interrupts;
    int steady = 0;  // a request that stays is the one that waits, not the open before it
    ASSERT_TRUE(soon([&] { return (steady = front_->report().running == 1 ? steady + 1 : 0) == 25; }));
    ::kill(pid, SIGUSR1);
    EXPECT_EQ(wait_child(pid, 5), 0);
    EXPECT_EQ(front_->report().interrupts, before + 1);
  }
  ::close(fd);
}

TEST_P(FrontProcess, LocksAreSeenAndFreed) {
  make_file("f", "x");
  const int fd = ::open(at("f").c_str(), O_RDWR);
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_start = 100;
  l.l_len = 50;
  ASSERT_EQ(::fcntl(fd, F_SETLK, &l), 0);
  const pid_t me = ::getpid();
  const pid_t pid = child([&] {
    const int mine = ::open(at("f").c_str(), O_RDWR);
    struct flock q {};
    q.l_type = F_RDLCK;
    if (::fcntl(mine, F_GETLK, &q) != 0 || q.l_type != F_WRLCK || q.l_start != 100 || q.l_len != 50 || q.l_pid != me) return 1;
    q.l_type = F_RDLCK;
    q.l_start = 0;
    q.l_len = 100;
    if (::fcntl(mine, F_SETLK, &q) != 0) return 2;
    q.l_len = 101;
    if (::fcntl(mine, F_SETLK, &q) == 0 || errno != EAGAIN) return 3;
    return ::flock(mine, LOCK_EX | LOCK_NB) == 0 ? 0 : 4;
  });
  EXPECT_EQ(wait_child(pid), 0);
  EXPECT_TRUE(soon([&] { return ::flock(fd, LOCK_EX | LOCK_NB) == 0; })) << "freed with its process";
  ::close(fd);
}

TEST_P(FrontProcess, ManyProcessesAtOnce) {
  constexpr int kProcesses = 12, kFiles = 60;
  std::vector<pid_t> pids;
  for (int p = 0; p < kProcesses; ++p)
    pids.push_back(child([&, p] {
      char dir[256], a[300], b[300], data[10000];
      std::snprintf(dir, sizeof dir, "%s/p%d", point_.c_str(), p);
      std::memset(data, 'a' + p, sizeof data);
      if (::mkdir(dir, 0755) != 0) return 1;
      for (int i = 0; i < kFiles; ++i) {
        std::snprintf(a, sizeof a, "%s/a%d", dir, i);
        std::snprintf(b, sizeof b, "%s/b%d", dir, i);
        const int fd = ::open(a, O_RDWR | O_CREAT | O_EXCL, 0644);
        if (fd < 0 || ::write(fd, data, sizeof data) != sizeof data) return 2;
        if (::rename(a, b) != 0) return 3;
        char got[10001];
        if (::pread(fd, got, sizeof got, 0) != sizeof data || std::memcmp(got, data, sizeof data) != 0) return 4;
        if (::close(fd) != 0 || (i % 2 == 0 && ::unlink(b) != 0)) return 5;
      }
      return 0;
    }));
  for (pid_t pid : pids) EXPECT_EQ(wait_child(pid, 60), 0);
  EXPECT_TRUE(soon([&] { return fs_->open_handles() == 0; })) << "each open has its release";
  const auto r = front_->report();
  EXPECT_EQ(r.running, 0u);
  EXPECT_EQ(r.open_files, 0u);
  EXPECT_EQ(r.open_directories, 0u);
}

TEST_P(FrontProcess, UnmountRefusesWhileInUse) {
  make_file("f", "x");
  const int fd = ::open(at("f").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  auto r = front_->unmount(false);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, Errc::kBusy);
  ::close(fd);
}

TEST_P(FrontProcess, DetachedMountLivesAsLongAsItsUsers) {
  make_file("f", "content");
  const int fd = ::open(at("f").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(front_->unmount(true));
  EXPECT_NE(::access(at("f").c_str(), F_OK), 0);
  char b[16];
  EXPECT_EQ(::pread(fd, b, sizeof b, 0), 7);
  ::close(fd);
  EXPECT_EQ(front_->wait_ended(), "");
}

TEST_P(FrontProcess, AbortAnswersWhoWaits) {
  make_file("f", "x");
  fs_->knobs.hold_reads = true;
  const pid_t pid = child([&] {
    char c;
    return ::pread(::open(at("f").c_str(), O_RDONLY), &c, 1, 0) < 0 && (errno == ECONNABORTED || errno == ENOTCONN) ? 0 : 1;
  });
  ASSERT_TRUE(soon([&] { return fs_->knobs.reads > 0; }));
  front_->abort();
  EXPECT_EQ(wait_child(pid, 5), 0);
  EXPECT_EQ(front_->wait_ended(), "");
  fs_->knobs.hold_reads = false;
}

TEST_P(FrontProcess, WhatWaitsFailsAndTheMountGoesOn) {
  make_file("f", "content");
  fs_->knobs.hold_reads = true;
  const pid_t pid = child([&] {
    char c;
    return ::pread(::open(at("f").c_str(), O_RDONLY), &c, 1, 0) < 0 && errno == EIO ? 0 : 1;
  });
  ASSERT_TRUE(soon([&] { return fs_->knobs.reads > 0; }));
  EXPECT_EQ(front_->fail_waiting(), 1u);
  EXPECT_EQ(wait_child(pid, 5), 0);
  EXPECT_EQ(front_->fail_waiting(), 0u);
  fs_->knobs.hold_reads = false;
  EXPECT_EQ(content("f"), "content");
}

}  // namespace
}  // namespace nacre::test
