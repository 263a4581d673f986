// SPDX-License-Identifier: Apache-2.0
// The transport over /dev/fuse. A port is one loop's way to the device; exactly one port at a time waits for it ("leads").
// Ports belong to their loop but for clone_from(), which runs before anybody but the first leads.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "client/fuse/transport.h"
#include "common/log/log.h"
#include "common/runtime/core.h"

namespace nacre::fuse {
namespace {

constexpr int kBurst = 16;  // messages read in one turn, so that a busy device doesn't starve the loop's sockets

/// Sends an answer; one that the kernel refuses becomes EIO, so that its request doesn't hang.
int write_answer(int fd, const iovec* iov, int count) {
  if (::writev(fd, iov, count) >= 0) return 0;
  const int err = errno;
  if (err == ENOENT || err == ENODEV || err == ECONNABORTED) return 0;  // interrupted and gone, or unmounted
  fuse_out_header out;
  std::memcpy(&out, iov[0].iov_base, sizeof out);
  if (out.unique == 0) return -err;  // a notification; its sender knows what to do
  log::error("the kernel refused an answer of {} bytes: {}", out.len, std::strerror(err));
  out.len = sizeof out;
  out.error = -EIO;
  (void)!::write(fd, &out, sizeof out);
  return -err;
}

class ClassicImpl;

class Port final : public Sink, public ReadyNode, public std::enable_shared_from_this<Port> {
 public:
  Port(const ClassicImpl& owner, Loop& loop, Dispatcher& dispatcher, int fd, uint32_t max_io)
      : owner_(&owner), loop_(loop), dispatcher_(dispatcher), running_(dispatcher.running(loop.index())), fd_(fd), max_io_(max_io), watch_(loop.io()) {
    run = [](ReadyNode* node, bool alive) {
      auto self = std::exchange(static_cast<Port*>(node)->again_, nullptr);
      if (alive && self->leading_) self->drain();
    };
  }
  ~Port() override {
    if (own_fd_) ::close(fd_);
  }

  int send(const iovec* iov, int count) override { return write_answer(fd_, iov, count); }
  Buffer answer_buffer(size_t size) override { return Buffer::allocate(size); }

  bool clone_from(int master);
  /// Becomes the one that waits for the device. Loop thread.
  void lead();
  void stop();
  const Running& running() const { return *running_; }
  Loop& loop() { return loop_; }

 private:
  void arm();
  void drain();
  bool read_one();
  void rest();  ///< no longer waits for the device

  const ClassicImpl* owner_;  // until stop(): requests keep their port, not the whole
  Loop& loop_;
  Dispatcher& dispatcher_;
  std::shared_ptr<Running> running_;
  int fd_;
  bool own_fd_ = false;
  uint32_t max_io_;
  boost::asio::posix::basic_stream_descriptor<Executor> watch_;
  Buffer buffer_;
  std::shared_ptr<Port> again_;  ///< itself, while it waits for its next turn
  bool leading_ = false;
  bool stopped_ = false;
};

class ClassicImpl final : public Classic {
 public:
  ClassicImpl(Runtime& runtime, int fd) : runtime_(runtime), fd_(fd) {}

  void open(Dispatcher& dispatcher, uint32_t max_io) {
    for (size_t i = 0; i < runtime_.size(); ++i) ports_.push_back(std::make_shared<Port>(*this, runtime_.loop(i), dispatcher, fd_, max_io));
  }

  void start() override {
    runtime_.loop(0).post([p = ports_[0]] { p->lead(); });
  }

  size_t spread() override {
    size_t clones = 0;
    for (size_t i = 1; i < ports_.size(); ++i) clones += ports_[i]->clone_from(fd_) ? 1 : 0;
    spread_.store(true, std::memory_order_release);
    return clones + 1;
  }

  void stop() override {
    for (auto& p : ports_) {
      std::promise<void> done;
      auto future = done.get_future();
      p->loop().post([p, &done] {
        p->stop();
        done.set_value();
      });
      future.wait();
    }
  }

  /// The port that should wait for the device instead of `self`, or nullptr.
  std::shared_ptr<Port> better_than(const Port& self) const {
    const uint32_t mine = self.running().weight();
    if (mine < 2 || !spread_.load(std::memory_order_acquire)) return nullptr;
    const std::shared_ptr<Port>* best = nullptr;
    uint32_t least = mine - 1;
    for (const auto& p : ports_) {
      const uint32_t w = p->running().weight();
      if (w < least) {
        least = w;
        best = &p;
      }
    }
    return best == nullptr ? nullptr : *best;
  }

 private:
  Runtime& runtime_;
  int fd_;
  std::vector<std::shared_ptr<Port>> ports_;
  std::atomic<bool> spread_{false};
};

bool Port::clone_from(int master) {
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  auto source = static_cast<uint32_t>(master);
  if (::ioctl(fd, FUSE_DEV_IOC_CLONE, &source) != 0) {
    ::close(fd);
    return false;
  }
  fd_ = fd;
  own_fd_ = true;
  return true;
}

void Port::lead() {
  if (stopped_) return;
  leading_ = true;
  watch_.assign(fd_);
  drain();
}

void Port::rest() {
  leading_ = false;
  if (watch_.is_open()) (void)watch_.release();
}

void Port::stop() {
  stopped_ = true;
  owner_ = nullptr;
  rest();
  buffer_ = {};
}

void Port::arm() {
  watch_.async_wait(boost::asio::posix::descriptor_base::wait_read, [self = shared_from_this()](const boost::system::error_code& e) {
    if (self->leading_ && !e) self->drain();
  });
}

/// The first message is worked on before the device is asked again, so that a lone request doesn't wait for a vain read; more
/// are taken together, so that what they send leaves together.
void Port::drain() {
  {
    LoopTurn turn(loop_);
    if (!read_one()) return;
  }
  LoopTurn turn(loop_);
  for (int i = 0; i < kBurst && leading_; ++i)
    if (!read_one()) return;
  if (!leading_) return;
  again_ = shared_from_this();  // there may be more; sockets and what was read come first
  loop_.core().push_later(*this);
}

/// False when there is nothing more to read for now, or for this port.
bool Port::read_one() {
  if (buffer_.empty()) buffer_ = Buffer::allocate(kPrefix + max_io_);
  std::byte* at = buffer_.data() + kPrefix - kWriteHeaders;
  const ssize_t n = ::read(fd_, at, kWriteHeaders + max_io_);
  if (n < 0) {
    if (errno == EINTR || errno == ENOENT) return true;  // ENOENT: the request was taken back
    if (errno == EAGAIN) {
      arm();
      return false;
    }
    const int err = errno;
    rest();
    dispatcher_.connection_ended(err == ENODEV || err == ECONNABORTED ? "" : std::string("/dev/fuse can't be read: ") + std::strerror(err));
    return false;
  }
  auto next = owner_->better_than(*this);
  if (next) {
    rest();
    next->loop().post([next] { next->lead(); });
  }
  Incoming in;
  in.bytes = {at, static_cast<size_t>(n)};
  in.memory = buffer_;
  in.retainable = static_cast<size_t>(n) >= max_io_ / 2;
  in.sink = shared_from_this();
  dispatcher_.dispatch(loop_, std::move(in));
  if (buffer_.use_count() > 1) buffer_ = {};  // what was read is still in use
  return leading_;
}

}  // namespace

std::shared_ptr<Classic> Classic::make(Runtime& runtime, Dispatcher& dispatcher, int fd, uint32_t max_io) {
  auto c = std::make_shared<ClassicImpl>(runtime, fd);
  c->open(dispatcher, max_io);
  return c;
}

}  // namespace nacre::fuse
