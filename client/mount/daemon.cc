// SPDX-License-Identifier: Apache-2.0
#include "client/mount/daemon.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "common/log/log.h"

namespace nacre::mount {

void Daemon::detach(int broken) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) failed("no pipe to the daemon can be made", broken);
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) failed("no process for the mount can be made", broken);
  if (child > 0) {
    ::close(ends[1]);
    unsigned char status = static_cast<unsigned char>(broken);
    ssize_t n = 0;
    while ((n = ::read(ends[0], &status, 1)) < 0 && errno == EINTR) {}
    ::_exit(n == 1 ? status : broken);
  }
  ::close(ends[0]);
  pipe_ = ends[1];
  (void)::setsid();
  // Who interrupts the command doesn't want a mount to appear later.
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != self) ::_exit(broken);
}

void Daemon::ready() {
  if (pipe_ < 0) return;
  (void)::prctl(PR_SET_PDEATHSIG, 0);
  if (!keep_terminal_) {
    (void)!::chdir("/");
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd : {0, 1, 2}) (void)::dup2(null, fd);
    if (null > 2) ::close(null);
  }
  const unsigned char ok = 0;
  (void)!::write(pipe_, &ok, 1);
  ::close(pipe_);
  pipe_ = -1;
}

void Daemon::failed(const std::string& text, int status) {
  std::fprintf(stderr, "mount.nacre: %s\n", text.c_str());
  std::fflush(nullptr);
  if (logging_) log::error("{}", text);
  end(status);
}

void Daemon::end(int status) {
  if (pipe_ >= 0) {
    const auto s = static_cast<unsigned char>(status);
    (void)!::write(pipe_, &s, 1);
  }
  ::_exit(status);
}

}  // namespace nacre::mount
