// SPDX-License-Identifier: Apache-2.0
// The io_uring device: one ring per loop, made by and used on that loop's thread alone. Requests of one loop turn are submitted
// together; what the page cache answers completes within that submission, the rest wakes the loop through the ring's descriptor.
// The kernel writes into a request's buffer until its completion was seen, so a request (which lives in the frame of the
// coroutine that waits for it) is never abandoned: it resumes from its completion only.
#include <liburing.h>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>

#include <fmt/format.h>

#include "common/base/units.h"
#include "common/io/file_device.h"
#include "common/log/log.h"
#include "common/runtime/core.h"

namespace nacre::io_detail {
namespace {
constexpr unsigned kReapBatch = 64;
constexpr uint32_t kMaxDepth = 4096;
constexpr int kMaxRefusals = 1000;  // submissions in a row that the kernel refuses before the process gives up

struct Request {
  enum Kind { kRead, kWrite, kSync, kPunch, kPrefetch } kind;
  uint64_t offset = 0;
  uint64_t length = 0;
  std::byte* memory = nullptr;
  int result = 0;   // bytes moved, or -errno
  Parked waiting;
};

/// The flags that make completions cheapest, best first; kernels before 6.0 and 5.19 know fewer. Not IORING_SETUP_DEFER_TASKRUN:
/// such a ring's descriptor does not wake a loop that sleeps in epoll, and through an eventfd a write alone in the queue took
/// 14 µs instead of 8.5 (kernel 6.18).
constexpr unsigned kFlagSets[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0};

/// 0 or -errno.
int make_ring(io_uring& ring, uint32_t depth) {
  int r = -EINVAL;
  for (unsigned flags : kFlagSets) {
    r = ::io_uring_queue_init(depth, &ring, flags);
    if (r != -EINVAL) break;
  }
  return r;
}

class Ring : private ReadyNode, public std::enable_shared_from_this<Ring> {
 public:
  /// On the loop's thread. nullptr if the kernel has no ring to give.
  static std::shared_ptr<Ring> make(Loop& loop, const LockedFile& file, uint32_t depth, std::string& why) {
    auto ring = std::shared_ptr<Ring>(new Ring(loop, file, depth));
    const int r = make_ring(ring->ring_, depth);
    if (r < 0) {
      why = std::strerror(-r);
      return nullptr;
    }
    ring->open_ = true;
    ring->set_up();
    return ring;
  }

  ~Ring() {
    if (!open_) return;
    if (watch_.is_open()) watch_.release();
    if (in_flight_ != 0) return;  // the kernel still uses their memory; only a process that ends at once gets here
    ::io_uring_queue_exit(&ring_);
  }

  bool idle() const { return in_flight_ == 0; }

  /// Starts `request`, which must live until its `waiting` was resumed.
  void start(Request& request) {
    if (in_flight_ >= depth_) {
      waiting_.push_back(&request);  // bounded by what the device's callers have in flight
      return;
    }
    prepare(request);
    flush_soon();
  }

 private:
  Ring(Loop& loop, const LockedFile& file, uint32_t depth) : loop_(loop), file_(file), depth_(depth), watch_(loop.io()) {
    ReadyNode::run = [](ReadyNode* node, bool alive) {
      if (alive) static_cast<Ring*>(node)->flush();
    };
  }

  void set_up() {
    const int fd = file_.fd();
    registered_ = ::io_uring_register_files(&ring_, &fd, 1) == 0;
    // Waking another CPU costs more than the work of a small write: the kernel's workers stay on the loop's CPU.
    const int cpu = loop_.runtime().cpu_of(loop_.index());
    if (cpu >= 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<size_t>(cpu), &set);
      (void)::io_uring_register_iowq_aff(&ring_, sizeof set, &set);  // an older kernel spreads them
    }
    watch_.assign(ring_.ring_fd);
  }

  void prepare(Request& q) {
    io_uring_sqe* sqe = ::io_uring_get_sqe(&ring_);
    assert(sqe != nullptr);  // the ring has an entry for each of depth_ requests
    const int fd = registered_ ? 0 : file_.fd();
    const auto size = static_cast<unsigned>(std::min<uint64_t>(q.length, 1u << 30));
    switch (q.kind) {
      case Request::kRead: ::io_uring_prep_read(sqe, fd, q.memory, size, q.offset); break;
      case Request::kWrite: ::io_uring_prep_write(sqe, fd, q.memory, size, q.offset); break;
      case Request::kSync: ::io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC); break;
      case Request::kPunch: ::io_uring_prep_fallocate(sqe, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(q.offset), static_cast<off_t>(q.length)); break;
      case Request::kPrefetch: ::io_uring_prep_fadvise(sqe, fd, q.offset, static_cast<off_t>(size), POSIX_FADV_WILLNEED); break;
    }
    if (registered_) sqe->flags |= IOSQE_FIXED_FILE;
    ::io_uring_sqe_set_data(sqe, &q);
    ++in_flight_;
  }

  /// At the end of the loop's turn. The node is queued only while requests are under way, and these keep the device alive.
  void flush_soon() {
    if (flush_posted_) return;
    flush_posted_ = true;
    loop_.core().push_turn_end(*this);
  }

  void flush() {
    flush_posted_ = false;
    submit();
    reap();
    watch();
  }

  void submit() {
    const int r = ::io_uring_submit(&ring_);
    if (r >= 0) {
      refusals_ = 0;
      if (::io_uring_sq_ready(&ring_) != 0) flush_soon();
      return;
    }
    // EAGAIN, EBUSY: memory or completions are short for the moment; EINTR: a signal. The entries stay in the queue.
    if (++refusals_ > kMaxRefusals || (r != -EAGAIN && r != -EBUSY && r != -EINTR)) {
      log::error("the kernel refuses disk requests of {} ({}); the process ends, its data is safe", file_.path(), std::strerror(-r));
      std::abort();
    }
    flush_soon();
  }

  /// Makes the coroutines ready whose requests have ended; they run when the caller is done with the ring.
  void reap() {
    io_uring_cqe* entries[kReapBatch];
    while (const unsigned n = ::io_uring_peek_batch_cqe(&ring_, entries, kReapBatch)) {
      for (unsigned i = 0; i < n; ++i) {
        auto* request = static_cast<Request*>(::io_uring_cqe_get_data(entries[i]));
        request->result = entries[i]->res;
        loop_.core().push(request->waiting);
      }
      ::io_uring_cq_advance(&ring_, n);
      in_flight_ -= n;
    }
    for (; !waiting_.empty() && in_flight_ < depth_; flush_soon()) {
      Request* next = waiting_.front();
      waiting_.pop_front();
      prepare(*next);
    }
  }

  /// Asks the loop to look when the ring has something, once, while anything is under way.
  void watch() {
    if (watching_ || in_flight_ == 0) return;
    watching_ = true;
    watch_.async_wait(boost::asio::posix::descriptor_base::wait_read, [self = weak_from_this()](boost::system::error_code ec) {
      auto ring = self.lock();
      if (!ring || ec) return;
      LoopTurn turn(ring->loop_);
      ring->watching_ = false;
      ring->reap();
      ring->watch();
    });
  }

  Loop& loop_;
  const LockedFile& file_;
  const uint32_t depth_;
  boost::asio::posix::basic_stream_descriptor<Executor> watch_;
  io_uring ring_{};
  bool open_ = false, registered_ = false;
  bool flush_posted_ = false, watching_ = false;
  uint32_t in_flight_ = 0;
  int refusals_ = 0;
  std::deque<Request*> waiting_;
};

/// Runs one request to its completion. The result is the kernel's: bytes moved, or -errno.
Task<int> run(std::shared_ptr<Ring> ring, Request::Kind kind, uint64_t offset, uint64_t length, std::byte* memory) {
  Request request{kind, offset, length, memory};
  ring->start(request);
  co_await request.waiting.suspend();
  co_return request.result;
}

class UringDevice final : public BlockDevice {
 public:
  UringDevice(Runtime& runtime, LockedFile file, uint32_t depth) : file_(std::move(file)), depth_(depth), rings_(runtime.size()) {}
  ~UringDevice() override {
    const bool idle = std::all_of(rings_.begin(), rings_.end(), [](const auto& r) { return !r || r->idle(); });
    rings_.clear();
    if (idle) file_.unlock();  // the rings' own hold on the file ends later, when the kernel has taken them apart
  }

  Task<Result<void>> read(uint64_t offset, Buffer into) override { return move_all(Request::kRead, offset, std::move(into)); }
  Task<Result<void>> write(uint64_t offset, Buffer from) override { return move_all(Request::kWrite, offset, std::move(from)); }

  Task<Result<void>> sync() override {
    CO_TRY(auto ring, ring_here());
    co_return co_await simple(ring, Request::kSync, 0, file_.size(), "syncing");
  }

  Task<Result<void>> punch(uint64_t offset, uint64_t length) override {
    CO_CHECK_OK(file_.check(offset, length, nullptr));
    if (length == 0) co_return Result<void>{};
    CO_TRY(auto ring, ring_here());
    co_return co_await simple(ring, Request::kPunch, offset, length, "punching");
  }

  Task<void> prefetch(uint64_t offset, uint64_t length) override {
    if (file_.direct() || length == 0 || !file_.check(offset, length, nullptr)) co_return;
    if (auto ring = ring_here()) (void)co_await run(*ring, Request::kPrefetch, offset, length, nullptr);
  }

  uint64_t size() const override { return file_.size(); }
  uint64_t backing_free() const override { return file_.backing_free(); }
  std::string kind() const override { return file_.direct() ? "io_uring direct" : "io_uring buffered"; }

 private:
  Result<std::shared_ptr<Ring>> ring_here() {
    Loop* loop = Loop::current();
    assert(loop != nullptr);
    auto& slot = rings_[loop->index()];
    if (slot == nullptr) {
      std::string why;
      slot = Ring::make(*loop, file_, depth_, why);
      if (slot == nullptr) return Err(Errc::kIo, fmt::format("no io_uring for {} on loop {}: {}; raise the limit, or set uring = false", file_.path(), loop->index(), why));
    }
    return slot;
  }

  Task<Result<void>> move_all(Request::Kind kind, uint64_t offset, Buffer b) {
    const bool is_read = kind == Request::kRead;
    CO_CHECK_OK(file_.check(offset, b.size(), b.data()));
    CO_TRY(auto ring, ring_here());
    int retries = 0;
    for (size_t done = 0; done < b.size();) {
      const int n = co_await run(ring, kind, offset + done, b.size() - done, b.data() + done);
      if ((n == -EINTR || n == -EAGAIN) && ++retries < kMaxRetries) continue;
      if (n < 0 || (n == 0 && !is_read)) co_return Err(file_.error(is_read ? "reading" : "writing", offset, b.size(), n < 0 ? -n : EIO));
      const Progress p = advance(is_read, file_.direct(), done, b.size(), static_cast<size_t>(n));
      done = p.done;
      if (p.at_end) {
        std::memset(b.data() + done, 0, b.size() - done);
        break;
      }
    }
    co_return Result<void>{};
  }

  Task<Result<void>> simple(std::shared_ptr<Ring> ring, Request::Kind kind, uint64_t offset, uint64_t length, const char* what) {
    for (int retries = 0;; ++retries) {
      const int n = co_await run(ring, kind, offset, length, nullptr);
      if (n >= 0) co_return Result<void>{};
      // A sync that failed is never repeated: the kernel forgets the pages it could not write.
      if (kind == Request::kSync || (n != -EINTR && n != -EAGAIN) || retries >= kMaxRetries) co_return Err(file_.error(what, offset, length, -n));
    }
  }

  LockedFile file_;
  const uint32_t depth_;
  std::vector<std::shared_ptr<Ring>> rings_;  // by loop; each is touched by its own loop only
};

bool supports_all(io_uring& ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (probe == nullptr) return false;
  bool all = true;
  for (int op : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_FALLOCATE, IORING_OP_FADVISE}) all = all && ::io_uring_opcode_supported(probe, op) != 0;
  ::io_uring_free_probe(probe);
  return all;
}
}  // namespace

std::unique_ptr<BlockDevice> uring_device(Runtime& runtime, LockedFile& file, uint32_t queue_depth, std::string& why) {
  const uint32_t depth = std::clamp<uint32_t>(queue_depth, 1, kMaxDepth);
  io_uring trial{};
  if (const int r = make_ring(trial, depth); r < 0) {
    why = r == -EPERM || r == -ENOSYS ? fmt::format("the kernel refuses it: {}; see kernel.io_uring_disabled", std::strerror(-r)) : std::strerror(-r);
    return nullptr;
  }
  const bool good = supports_all(trial);
  ::io_uring_queue_exit(&trial);
  if (!good) {
    why = "the kernel lacks an operation";
    return nullptr;
  }
  return std::make_unique<UringDevice>(runtime, std::move(file), depth);
}
}  // namespace nacre::io_detail
