// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client_fuse/mounted.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

/// libfuse 3.14 forgets one copy of its options per session.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfuse3.so\n"; }

namespace nacre::test {
namespace {
constexpr const char* kEnableRing = "/sys/module/fuse/parameters/enable_uring";
std::string read_line(const char* path) {
  std::ifstream f(path);
  std::string s;
  std::getline(f, s);
  return s;
}
void write_line(const char* path, const std::string& s) { std::ofstream(path) << s; }
}  // namespace

void Mounted::SetUp() { set_up(GetParam()); }

void Mounted::set_up(Mode mode) {
  if (::geteuid() != 0 || ::access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "mounting needs root and /dev/fuse";
  char name[] = "/tmp/nacre-fuse-test.XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  point_ = name;
  RuntimeOptions ro;
  ro.loops = 2;
  runtime_ = std::make_unique<Runtime>(ro);
  runtime_->start();
  fs_ = std::make_unique<MemoryFs>(*runtime_);
  notifier_ = std::make_shared<fuse::Notifier>();
  fuse::FrontOptions o;
  o.source = "memory,with:commas";
  o.mount_point = point_;
  o.kernel_options = {"suid", "dev"};
  o.readdirplus = mode.readdirplus;
  ASSERT_TRUE(o.compat.mask(mode.ring ? mode.mask : std::string(mode.mask) + ",uring"));
  const std::string before = read_line(kEnableRing);
  if (mode.ring) write_line(kEnableRing, "Y");
  auto front = fuse::Front::mount(*runtime_, *fs_, notifier_, std::move(o));
  Result<void> ready = front ? (*front)->wait_ready(20 * kSecond) : std::unexpected(front.error());
  if (mode.ring && !before.empty()) write_line(kEnableRing, before);
  ASSERT_TRUE(ready) << ready.error().message();
  front_ = std::move(*front);
  if (mode.ring && front_->report().transport != "io_uring") GTEST_SKIP() << "no FUSE over io_uring here: " << front_->report().transport_note;
  ASSERT_EQ(::chmod(point_.c_str(), 0777), 0);
}

void Mounted::TearDown() {
  if (!runtime_) return;
  if (fs_) {
    fs_->knobs.hold_reads = false;
    fs_->knobs.hold_lookups = false;
    fs_->knobs.data_delay = 0;
  }
  if (front_) {
    if (auto r = front_->unmount(false); !r) {
      ADD_FAILURE() << r.error().message();
      front_->abort();
    }
    front_->wait_ended();
    front_->close();
  }
  runtime_->stop();
  front_.reset();
  fs_.reset();
  runtime_.reset();
  if (!point_.empty()) EXPECT_EQ(::rmdir(point_.c_str()), 0) << "something is still mounted on " << point_;
}

pid_t Mounted::child(std::function<int()> fn) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    // With a copy of the device a child would keep the connection alive that it waits for, and outlive its killed parent.
    char link[64], target[64];
    for (int fd = 3; fd < 1024; ++fd) {
      std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      const ssize_t n = ::readlink(link, target, sizeof target);
      if (n > 0 && std::string_view(target, static_cast<size_t>(n)) == "/dev/fuse") ::close(fd);
    }
    ::_exit(fn());
  }
  return pid;
}

int Mounted::wait_child(pid_t pid, double seconds) {
  int status = 0;
  if (!soon([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, seconds)) {
    ::kill(pid, SIGKILL);
    (void)::waitpid(pid, &status, 0);
    return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Mounted::soon(std::function<bool()> fn, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!fn()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

void Mounted::make_file(const std::string& name, const std::string& content, mode_t mode) {
  const int fd = ::open(at(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  ASSERT_GE(fd, 0) << std::strerror(errno);
  ASSERT_EQ(::write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  ASSERT_EQ(::fchmod(fd, mode), 0);
  ASSERT_EQ(::close(fd), 0);
}

std::string Mounted::content(const std::string& name) {
  std::ifstream f(at(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

bool Mounted::has(fuse::Feature f) const { return front_->compat().has(f); }

}  // namespace nacre::test
