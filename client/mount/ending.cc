// SPDX-License-Identifier: Apache-2.0
#include "client/mount/ending.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/log/log.h"

namespace nacre::mount {
namespace {

constexpr int kLookMs = 250;
/// With a disconnect of 5 s and what follows it, a signal is obeyed within 12 s.
constexpr Nanos kPatience = 2 * kSecond;

Nanos boot_now() {
  timespec t;
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

}  // namespace

Ending::Ending(fuse::Front& front, client::Filesystem& fs, const std::string& device) : front_(front), fs_(fs), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (auto r = control_.open(device); !r) log::warn("{}", r.error().message());
  handlers_.status = [this] { return front_.status_json(); };
  handlers_.abort = [this] {
    const size_t n = front_.fail_waiting();
    log::warn("an administrator aborted {} waiting operations", n);
    return n;
  };
  thread_ = std::thread([this] { run(); });
}

Ending::~Ending() {
  const uint64_t one = 1;
  (void)!::write(stop_, &one, sizeof one);
  thread_.join();
  if (unmounting_.joinable()) unmounting_.join();
  ::close(stop_);
}

sigset_t Ending::signals() {
  sigset_t s;
  sigemptyset(&s);
  for (int n : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&s, n);
  return s;
}

void Ending::run() {
  const sigset_t s = signals();
  const int fd = ::signalfd(-1, &s, SFD_CLOEXEC);
  int seen = 0;
  for (;;) {
    pollfd p[3] = {{fd, POLLIN, 0}, {stop_, POLLIN, 0}, {control_.fd(), POLLIN, 0}};
    if (::poll(p, 3, asked() ? kLookMs : -1) < 0 && errno != EINTR) break;
    if (p[1].revents != 0) break;
    if (p[2].revents & POLLIN) control_.answer(handlers_);
    if (asked()) hurry();
    signalfd_siginfo info;
    if (!(p[0].revents & POLLIN) || ::read(fd, &info, sizeof info) != sizeof info || info.ssi_signo == SIGHUP) continue;
    on_signal(++seen);
  }
  ::close(fd);
}

void Ending::on_signal(int seen) {
  if (seen > 1) {
    log::warn("a second signal: what still uses the mount is cut off");
    front_.abort();
    return;
  }
  asked_ = true;
  asked_at_ = boot_now();
  unmounting_ = std::thread([this] { unmount(); });
}

void Ending::unmount() {
  auto r = front_.unmount(false);
  if (r) return;
  log::warn("{}: {}", r.error().message(), "it is detached and ends when its last user is gone; another signal ends it now");
  if (auto d = front_.unmount(true); !d) log::error("{}", d.error().message());
}

void Ending::hurry() {
  if (cut_off_ || boot_now() - asked_at_ < kPatience) return;
  const client::ClientStatus s = fs_.status();
  if (s.oldest_wait >= kPatience)
    if (const size_t n = front_.fail_waiting()) log::warn("{} operations that waited for servers failed, since the mount is to end", n);
  if (s.servers.empty() || s.servers.front().connected) return;
  log::warn("the metadata server is away: what still uses the mount is cut off");
  cut_off_ = true;
  front_.abort();
}

}  // namespace nacre::mount
