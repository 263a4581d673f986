// SPDX-License-Identifier: Apache-2.0
#include "client/mount/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/mount/point.h"
#include "common/log/log.h"

namespace nacre::mount {
namespace {

constexpr int kBroken = 2;
constexpr Nanos kFirstPause = 1 * kSecond, kLongestPause = 60 * kSecond;
constexpr Nanos kLook = 500 * kMillisecond;  // while waiting it is looked whether the dead mount is still there
/// `ps` and `pgrep -x mount.nacre` tell the client from its supervisor by this name; both have the same command line.
constexpr const char* kName = "nacre-supervise";
constexpr const char* kClientName = "mount.nacre";

sigset_t watched() {
  sigset_t s;
  sigemptyset(&s);
  for (int n : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD}) sigaddset(&s, n);
  return s;
}

Nanos now() {
  timespec t;
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Nanos restart_pause(unsigned failures) { return failures <= 1 ? 0 : std::min(kLongestPause, kFirstPause << std::min(failures - 2, 10u)); }

int Supervisor::run(const Serve& serve) {
  const sigset_t set = watched();
  (void)::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  if (signals_ < 0) parent_.failed(fmt::format("signals can't be watched: {}", std::strerror(errno)), kBroken);
  (void)::prctl(PR_SET_NAME, kName);
  unsigned failures = 0;
  for (bool again = false;; again = true) {
    const Nanos began = now();
    launch(serve, again);
    const int status = watch();
    if (!ever_ready_) return wait_first(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
    failures = now() - began >= kLongLife ? 1 : failures + 1;
    const Nanos wait = restart_pause(failures);
    if (ending_ || !is_dead_mount(point_)) {
      remove_dead();
      return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    }
    log::error("the client of {} (process {}) {}: what it had open answers ENOTCONN; a new one is started {}", point_, child_, how_it_ended(status),
               wait == 0 ? std::string("now") : fmt::format("in {} s, this was its death number {} in a row", wait / kSecond, failures));
    if (!pause(wait)) return 0;
  }
}

void Supervisor::launch(const Serve& serve, bool again) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) parent_.failed("no pipe to the client can be made", kBroken);
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  child_ = ::fork();
  if (child_ < 0) parent_.failed("no process for the mount can be made", kBroken);
  if (child_ == 0) {
    ::close(ends[0]);
    ::close(signals_);
    if (report_ >= 0) ::close(report_);
    (void)::prctl(PR_SET_NAME, kClientName);
    // Until it serves; afterwards it goes on also without its supervisor.
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(kBroken);
    sigset_t chld;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    (void)::sigprocmask(SIG_UNBLOCK, &chld, nullptr);
    Daemon daemon(ends[1], keep_terminal_);
    std::exit(serve(daemon, again));
  }
  ::close(ends[1]);
  if (report_ >= 0) ::close(report_);
  report_ = ends[0];
  said_ = -1;
}

int Supervisor::watch() {
  for (;;) {
    pollfd p[2] = {{signals_, POLLIN, 0}, {said_ < 0 ? report_ : -1, POLLIN, 0}};
    if (::poll(p, 2, -1) < 0 && errno != EINTR) return 0;
    if (p[1].revents != 0) on_report();
    signalfd_siginfo info;
    if (!(p[0].revents & POLLIN) || ::read(signals_, &info, sizeof info) != sizeof info) continue;
    if (static_cast<int>(info.ssi_signo) != SIGCHLD) {
      pass_on(static_cast<int>(info.ssi_signo));
      continue;
    }
    int status = 0;
    if (::waitpid(child_, &status, WNOHANG) != child_) continue;
    if (said_ < 0) on_report();
    return status;
  }
}

void Supervisor::on_report() {
  unsigned char byte = 0;
  const ssize_t n = ::read(report_, &byte, 1);
  if (n < 0) return;
  said_ = n == 1 ? byte : kBroken;
  if (said_ != 0 || ever_ready_) return;
  ever_ready_ = true;
  parent_.ready();
}

int Supervisor::wait_first(int status) {
  if (WIFSIGNALED(status)) parent_.failed(fmt::format("the client {} before it could serve", how_it_ended(status)), kBroken);
  parent_.end(said_ > 0 ? said_ : WEXITSTATUS(status));
}

void Supervisor::pass_on(int signal) {
  if (signal == SIGHUP) return;
  ending_ = true;
  (void)::kill(child_, said_ == 0 ? SIGTERM : SIGKILL);  // before it serves it hears no signals, and has nothing to lose
}

bool Supervisor::pause(Nanos length) {
  for (const Nanos until = now() + length;;) {
    const Nanos left = std::max<Nanos>(until - now(), 0);
    pollfd p = {signals_, POLLIN, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min(left, kLook) / kMillisecond));
    signalfd_siginfo info;
    if (n > 0 && ::read(signals_, &info, sizeof info) == sizeof info && static_cast<int>(info.ssi_signo) != SIGCHLD && static_cast<int>(info.ssi_signo) != SIGHUP) {
      remove_dead();
      return false;
    }
    if (!is_dead_mount(point_)) {
      log::info("{} has been unmounted meanwhile", point_);
      return false;
    }
    if (left == 0) return true;
  }
}

void Supervisor::remove_dead() {
  if (is_dead_mount(point_) && ::umount2(point_.c_str(), MNT_DETACH) != 0) log::error("the dead mount {} can't be removed: {}", point_, std::strerror(errno));
}

}  // namespace nacre::mount
