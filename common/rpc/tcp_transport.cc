// SPDX-License-Identifier: Apache-2.0
// TCP over Asio's reactor (epoll). Reads wait in Asio; writes try the socket at once and wait only when it is full.
// A stream belongs to one loop; what Asio still holds of it points into frames of that loop.
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cassert>
#include <cstring>

#include <boost/asio/ip/tcp.hpp>
#include <fmt/format.h>

#include "common/log/log.h"
#include "common/rpc/transport.h"
#include "common/runtime/core.h"
#include "common/runtime/sync.h"

namespace nacre::rpc {
namespace {

using Tcp = boost::asio::ip::tcp;
using Socket = boost::asio::basic_stream_socket<Tcp, Executor>;
using Acceptor_ = boost::asio::basic_socket_acceptor<Tcp, Executor>;
using boost::system::error_code;

constexpr size_t kMaxParts = 512;                    ///< per sendmsg; IOV_MAX is 1,024
constexpr int kBacklog = 4096;
constexpr Nanos kAcceptPause = 100 * kMillisecond;   ///< after accept(2) failed, e.g. for want of descriptors
constexpr size_t kMaxAddresses = 8;                  ///< of one host name that are tried

std::string text_of(const Tcp::endpoint& e) { return e.address().is_v6() ? fmt::format("[{}]:{}", e.address().to_string(), e.port()) : fmt::format("{}:{}", e.address().to_string(), e.port()); }

Error gone(std::string_view what, int err) { return Error(Errc::kDisconnected, fmt::format("{}: {}", what, std::strerror(err))); }

void set_options(int fd, const TcpOptions& o) {
  auto set = [fd](int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); };
  if (o.nodelay) set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A kernel without this congestion control keeps the system's.
  if (!o.congestion.empty()) ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, o.congestion.data(), static_cast<socklen_t>(o.congestion.size()));
  if (o.keepalive_s > 0) {
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, o.keepalive_s);
    set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, o.keepalive_s / 2));
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, o.keepalive_s * 3 * 1000);
  }
}

struct HostPort { std::string host, port; };
Result<HostPort> parse(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return Err(Errc::kConfig, fmt::format("'{}' is no address: write HOST:PORT, such as 10.0.0.1:7000 or [::1]:7000", address));
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{std::move(host), address.substr(colon + 1)};
}

/// `numeric`: no look-up, so it never blocks.
Result<std::vector<Tcp::endpoint>> look_up(const std::string& address, bool numeric) {
  NACRE_TRY(HostPort hp, parse(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(hp.host.c_str(), hp.port.c_str(), &hints, &list);
  if (rc != 0) return Err(numeric ? Errc::kConfig : Errc::kUnavailable, fmt::format("the address '{}' can't be resolved: {}", address, ::gai_strerror(rc)));
  std::vector<Tcp::endpoint> out;
  for (const addrinfo* a = list; a && out.size() < kMaxAddresses; a = a->ai_next) {
    Tcp::endpoint e;
    if (a->ai_addrlen > e.capacity()) continue;
    std::memcpy(e.data(), a->ai_addr, a->ai_addrlen);
    e.resize(a->ai_addrlen);
    out.push_back(e);
  }
  ::freeaddrinfo(list);
  return out;
}

// ---------------------------------------------------------------- stream

class TcpStream final : public Stream {
 public:
  TcpStream(Loop& loop, Socket socket, Tcp::endpoint local, Tcp::endpoint remote)
      : loop_(loop), core_(loop.core()), socket_(std::move(socket)), local_(std::move(local)), remote_(std::move(remote)) {
    hook_.fn = [this] { close(); };
  }
  ~TcpStream() override { hook_.unlink(); }

  Task<Result<size_t>> read_some(std::span<std::byte> out) override;
  Task<Result<void>> write(std::vector<std::span<const std::byte>> parts) override;

  void close() override {
    hook_.unlink();
    if (!std::exchange(closed_, true)) {
      error_code ignored;
      socket_.close(ignored);  // completes what is pending, with an error
    }
  }
  std::string remote() const override { return text_of(remote_); }
  bool same_host() const override { return local_.address() == remote_.address(); }

  Result<std::unique_ptr<Stream>> move_to(Loop& loop) override {
    assert(!reading_ && !writing_);
    if (closed_) return Err(Errc::kDisconnected);
    hook_.unlink();
    closed_ = true;
    error_code ec;
    const int fd = socket_.release(ec);
    if (ec) return Err(Errc::kDisconnected, fmt::format("the connection to {} can't change its thread: {}", remote(), ec.message()));
    Socket moved(loop.io().get_executor());
    moved.assign(local_.protocol(), fd, ec);
    if (ec) {
      ::close(fd);
      return Err(Errc::kDisconnected, fmt::format("the connection to {} can't change its thread: {}", remote(), ec.message()));
    }
    return std::make_unique<TcpStream>(loop, std::move(moved), local_, remote_);
  }

 private:
  /// Ends the stream with the runtime. Done at first use, which is on the stream's own loop.
  bool usable() {
    if (closed_) return false;
    if (core_.stopping()) {
      close();
      return false;
    }
    if (!hook_.linked()) core_.add_stop_hook(hook_);
    return true;
  }
  Error closed_error() const { return Error(Errc::kDisconnected, fmt::format("the connection to {} was closed on this side", remote())); }

  Loop& loop_;
  LoopCore& core_;
  Socket socket_;
  Tcp::endpoint local_, remote_;
  LoopCore::StopHook hook_;
  bool closed_ = false, reading_ = false, writing_ = false;
  bool maybe_more_ = false;  ///< the last read filled its buffer: worth a try before waiting
};

struct IoWaiter : Waiter {
  error_code ec;
  size_t n = 0;
};
struct FlagScope {
  bool& flag;
  explicit FlagScope(bool& f) : flag(f) {
    assert(!flag && "one read and one write at a time");
    flag = true;
  }
  ~FlagScope() { flag = false; }
};

Task<Result<size_t>> TcpStream::read_some(std::span<std::byte> out) {
  if (!usable()) co_return std::unexpected(closed_error());
  FlagScope scope(reading_);
  if (maybe_more_) {
    const ssize_t n = ::recv(socket_.native_handle(), out.data(), out.size(), MSG_DONTWAIT);
    if (n > 0) {
      maybe_more_ = static_cast<size_t>(n) == out.size();
      co_return static_cast<size_t>(n);
    }
    maybe_more_ = false;
    if (n == 0) co_return Err(Errc::kDisconnected, fmt::format("{} closed the connection", remote()));
  }
  IoWaiter w;
  core_.wait_through(w);
  socket_.async_read_some(boost::asio::buffer(out.data(), out.size()), [&w, &loop = loop_](error_code ec, size_t n) {
    LoopTurn turn(loop);
    w.ec = ec, w.n = n;
    w.finish(loop.core());
  });
  co_await w.suspend();
  if (w.ec) {
    if (closed_) co_return std::unexpected(closed_error());
    if (w.ec == boost::asio::error::eof) co_return Err(Errc::kDisconnected, fmt::format("{} closed the connection", remote()));
    co_return std::unexpected(gone(fmt::format("reading from {}", remote()), w.ec.value()));
  }
  maybe_more_ = w.n == out.size();
  co_return w.n;
}

Task<Result<void>> TcpStream::write(std::vector<std::span<const std::byte>> parts) {
  if (!usable()) co_return std::unexpected(closed_error());
  FlagScope scope(writing_);
  size_t first = 0;
  std::array<iovec, kMaxParts> iov;
  while (first < parts.size()) {
    size_t count = 0, want = 0;
    for (size_t i = first; i < parts.size() && count < kMaxParts; ++i) {
      if (parts[i].empty()) continue;
      iov[count++] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
      want += parts[i].size();
    }
    if (count == 0) break;
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) co_return std::unexpected(gone(fmt::format("writing to {}", remote()), errno));
    size_t left = sent > 0 ? static_cast<size_t>(sent) : 0;
    const bool full = left < want;
    while (first < parts.size() && left >= parts[first].size()) left -= parts[first++].size();
    if (first < parts.size()) parts[first] = parts[first].subspan(left);
    if (!full) continue;
    IoWaiter w;
    core_.wait_through(w);
    socket_.async_wait(Socket::wait_write, [&w, &loop = loop_](error_code ec) {
      LoopTurn turn(loop);
      w.ec = ec;
      w.finish(loop.core());
    });
    co_await w.suspend();
    if (closed_) co_return std::unexpected(closed_error());
    if (w.ec) co_return std::unexpected(gone(fmt::format("writing to {}", remote()), w.ec.value()));
  }
  co_return Result<void>{};
}

Result<std::unique_ptr<Stream>> make_stream(Loop& loop, Socket socket, const TcpOptions& options) {
  error_code ec1, ec2;
  Tcp::endpoint local = socket.local_endpoint(ec1), remote = socket.remote_endpoint(ec2);
  if (ec1 || ec2) return Err(Errc::kDisconnected, "a connection ended before it was used");
  set_options(socket.native_handle(), options);
  return std::make_unique<TcpStream>(loop, std::move(socket), std::move(local), std::move(remote));
}

// ---------------------------------------------------------------- acceptor

/// Shared with the completion handler, so that the acceptor may be destroyed on any thread at any time.
struct Listening : std::enable_shared_from_this<Listening> {
  Listening(Loop& l, TcpOptions o) : loop(l), options(std::move(o)), acceptor(l.io().get_executor()) {}
  Loop& loop;
  TcpOptions options;
  Acceptor_ acceptor;
  std::function<void(std::unique_ptr<Stream>)> on_stream;
  LoopCore::StopHook hook;
  bool closed = false;
  bool warned = false;

  void start() {
    if (closed || loop.core().stopping()) return close();
    hook.fn = [this] { close(); };
    loop.core().add_stop_hook(hook);
    accept();
  }
  void close() {
    hook.unlink();
    if (std::exchange(closed, true)) return;
    error_code ignored;
    acceptor.close(ignored);
    on_stream = nullptr;
  }
  void accept() {
    acceptor.async_accept(loop.io(), [self = shared_from_this()](error_code ec, boost::asio::basic_stream_socket<Tcp, Executor> socket) {
      LoopTurn turn(self->loop);
      self->accepted(ec, std::move(socket));
    });
  }
  void accepted(error_code ec, Socket socket) {
    if (closed) return;
    if (!ec) {
      warned = false;
      if (auto stream = make_stream(loop, std::move(socket), options)) on_stream(std::move(*stream));
      if (!closed) accept();
      return;
    }
    if (!std::exchange(warned, true)) log::error("connections can't be accepted ({}): if it is for want of descriptors raise the limit (ulimit -n); trying again", ec.message());
    loop.spawn(pause(shared_from_this()));
  }
  static Task<void> pause(std::shared_ptr<Listening> self) {
    if (co_await sleep_for(kAcceptPause) && !self->closed) self->accept();
  }
};

class TcpAcceptor final : public Acceptor {
 public:
  TcpAcceptor(std::shared_ptr<Listening> l, std::string address) : listening_(std::move(l)), address_(std::move(address)) {}
  ~TcpAcceptor() override { close(); }
  std::string address() const override { return address_; }
  void close() override {
    if (!listening_) return;
    auto l = std::exchange(listening_, nullptr);
    if (Loop::current() == &l->loop) l->close();
    else l->loop.post([l] { l->close(); });
  }

 private:
  std::shared_ptr<Listening> listening_;
  std::string address_;
};

// ---------------------------------------------------------------- transport

struct Connecting {
  explicit Connecting(Loop& loop) : socket(loop.io().get_executor()) {}
  Socket socket;
  error_code ec;
  Signal done;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(TcpOptions options) : options_(std::move(options)) {}

  Task<Result<std::unique_ptr<Stream>>> connect(std::string address, Nanos deadline) override {
    auto endpoints = look_up(address, true);
    if (!endpoints) {
      CO_CHECK_OK(parse(address));
      auto job = [address] { return look_up(address, false); };
      endpoints = co_await run_blocking(std::move(job));
      if (!endpoints) co_return std::unexpected(std::move(endpoints).error());
    }
    Error last(Errc::kUnavailable, fmt::format("the address '{}' can't be resolved", address));
    for (const auto& endpoint : *endpoints) {
      auto c = std::make_shared<Connecting>(*Loop::current());
      c->socket.open(endpoint.protocol(), c->ec);
      if (c->ec) {
        last = Error(Errc::kUnavailable, fmt::format("no socket for '{}': {}", address, c->ec.message()));
        continue;
      }
      set_options(c->socket.native_handle(), options_);
      c->socket.async_connect(endpoint, [c, loop = Loop::current()](error_code ec) {
        LoopTurn turn(*loop);
        c->ec = ec;
        c->done.set();
      });
      auto done = co_await c->done.wait(deadline);
      if (!done) {
        error_code ignored;
        c->socket.close(ignored);
        if (done.error().code == Errc::kDeadline) co_return Err(Errc::kDeadline, fmt::format("{} didn't answer in time", address));
        co_return std::unexpected(std::move(done).error());
      }
      if (!c->ec) co_return make_stream(*Loop::current(), std::move(c->socket), options_);
      last = Error(Errc::kUnavailable, fmt::format("{} can't be reached: {}", address, c->ec.message()));
    }
    co_return std::unexpected(std::move(last));
  }

  Result<std::unique_ptr<Acceptor>> listen(Loop& loop, std::string address, std::function<void(std::unique_ptr<Stream>)> on_stream) override {
    auto endpoints = look_up(address, false);  // at start-up only
    if (!endpoints) return Err(Errc::kConfig, std::move(endpoints).error().detail);
    if (endpoints->empty()) return Err(Errc::kConfig, fmt::format("the address '{}' can't be resolved", address));
    auto l = std::make_shared<Listening>(loop, options_);
    const Tcp::endpoint& at = endpoints->front();
    error_code ec;
    l->acceptor.open(at.protocol(), ec);
    if (!ec) l->acceptor.set_option(boost::asio::socket_base::reuse_address(true), ec);
    if (!ec) set_options(l->acceptor.native_handle(), options_);
    if (!ec) l->acceptor.bind(at, ec);
    if (!ec) l->acceptor.listen(kBacklog, ec);
    if (ec == boost::asio::error::address_in_use) return Err(Errc::kInUse, fmt::format("{} is in use: another server runs there; stop it, or give this one another port in the cluster file", address));
    if (ec) return Err(Errc::kConfig, fmt::format("can't listen on {}: {}; the address must be one of this host's", address, ec.message()));
    l->on_stream = std::move(on_stream);
    std::string bound = text_of(l->acceptor.local_endpoint(ec));
    loop.post([l] { l->start(); });
    return std::make_unique<TcpAcceptor>(std::move(l), std::move(bound));
  }

 private:
  TcpOptions options_;
};

}  // namespace

std::unique_ptr<Transport> tcp_transport(Runtime&, TcpOptions options) { return std::make_unique<TcpTransport>(std::move(options)); }

}  // namespace nacre::rpc
