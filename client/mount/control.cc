// SPDX-License-Identifier: Apache-2.0
#include "client/mount/control.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace nacre::mount {
namespace {

constexpr size_t kMaxQuestion = 64;
constexpr size_t kMaxAnswer = 4u << 20;
constexpr int kBacklog = 16;
constexpr time_t kTimeout = 2;           // seconds that a slow questioner may hold the door
constexpr time_t kAnswerTimeout = 20;    // an abort waits for every loop, 5 s at most each

sockaddr_un address_of(const std::string& device, socklen_t& size) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  const std::string name = "nacre-client/" + device;
  std::memcpy(a.sun_path + 1, name.data(), std::min(name.size(), sizeof a.sun_path - 1));  // the leading NUL makes it abstract
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

void set_timeout(int fd, time_t seconds) {
  const timeval t{seconds, 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

/// Up to the end of the line, or of the stream if `whole`.
std::string receive(int fd, size_t most, bool whole) {
  std::string out;
  char buffer[4096];
  while (out.size() < most && (whole || out.find('\n') == std::string::npos)) {
    const ssize_t n = ::recv(fd, buffer, std::min(sizeof buffer, most - out.size()), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    out.append(buffer, static_cast<size_t>(n));
  }
  return out;
}

bool peer_user(int fd, uint32_t& user) {
  ucred c{};
  socklen_t size = sizeof c;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) != 0) return false;
  user = c.uid;
  return true;
}

}  // namespace

ControlSocket::~ControlSocket() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> ControlSocket::open(const std::string& device) {
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t size = 0;
  const sockaddr_un a = address_of(device, size);
  if (fd_ < 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&a), size) != 0 || ::listen(fd_, kBacklog) != 0) {
    const int e = errno;
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    return Err(from_errno(e), fmt::format("'nacre client status' and 'abort' won't reach this client: no local socket for device {}: {}", device, std::strerror(e)));
  }
  return {};
}

void ControlSocket::answer(const ControlHandlers& handlers) {
  const int c = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (c < 0) return;
  set_timeout(c, kTimeout);
  uint32_t user = 0;
  const bool known = peer_user(c, user);
  const std::string question = receive(c, kMaxQuestion, false);
  if (question == "status\n") {
    (void)send_all(c, "ok " + handlers.status());
  } else if (question == "abort\n") {
    if (known && (user == 0 || user == ::geteuid())) (void)send_all(c, fmt::format("ok {}", handlers.abort()));
    else (void)send_all(c, "error only root and the owner of the mount may abort what waits in it");
  } else {
    (void)send_all(c, "error the client knows the questions 'status' and 'abort'");
  }
  ::close(c);
}

Result<std::string> ask_client(const std::string& device, uint32_t owner, ControlQuestion question) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Err(from_errno(errno), fmt::format("no local socket: {}", std::strerror(errno)));
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } close{fd};
  set_timeout(fd, kAnswerTimeout);
  socklen_t size = 0;
  const sockaddr_un a = address_of(device, size);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&a), size) != 0)
    return Err(Errc::kDisconnected, "no client answers for this mount: it is dead, or runs in another network namespace");
  uint32_t user = 0;
  if (!peer_user(fd, user) || user != owner) return Err(Errc::kPerm, fmt::format("what answers for this mount runs as user {}, not as its owner {}", user, owner));
  if (!send_all(fd, question == ControlQuestion::kStatus ? "status\n" : "abort\n")) return Err(Errc::kDisconnected, "the client went away");
  std::string answer = receive(fd, kMaxAnswer, true);
  if (answer.starts_with("ok ")) return answer.substr(3);
  if (answer.starts_with("error ")) return Err(Errc::kPerm, answer.substr(6));
  return Err(Errc::kDisconnected, "the client did not answer");
}

}  // namespace nacre::mount
