// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/ring.h"

#include <liburing.h>
#include <sys/mman.h>

#include <cassert>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <fstream>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <fmt/format.h>

#include "common/log/log.h"
#include "common/runtime/core.h"

namespace nacre::fuse {
namespace {

constexpr size_t kRingPage = 4096;
constexpr uint64_t kWaitForEntries = 5;  // seconds that stop() waits for operations still in progress
constexpr int kMaxDispatchedAtOnce = 64;

class Queue;

/// One request slot of the kernel. Memory: a page with the kernel's header struct, a page in whose end the request's header and
/// fixed arguments are put together with what follows in the payload, the payload.
struct Entry {
  std::byte* memory = nullptr;
  size_t size = 0;
  uint16_t qid = 0;
  uint64_t commit_id = 0;
  iovec iov[2] = {};
  kernel::RingHeader& header() const { return *reinterpret_cast<kernel::RingHeader*>(memory); }
  std::byte* payload() const { return memory + 2 * kRingPage; }
  Entry() = default;
  Entry(const Entry&) = delete;
  ~Entry() {
    if (memory != nullptr) ::munmap(memory, size);
  }
};

/// A request's hold on its entry. The entry goes back to the kernel when the last holder lets go: not before a receive into it,
/// which a cancelled read may have left behind, has ended.
class EntrySink final : public Sink, public std::enable_shared_from_this<EntrySink> {
 public:
  EntrySink(std::shared_ptr<Queue> queue, Entry& entry, size_t max_io) : queue_(std::move(queue)), entry_(entry), max_io_(max_io) {}
  ~EntrySink() override;
  int send(const iovec* iov, int count) override;
  Buffer answer_buffer(size_t size) override {
    if (size > max_io_) return Buffer::allocate(size);
    return Buffer::wrap(shared_from_this(), entry_.payload(), size);
  }

 private:
  std::shared_ptr<Queue> queue_;
  Entry& entry_;
  size_t max_io_;
  bool answered_ = false;
};

/// The ring of one loop. All on that loop's thread, but for the constructor and open().
class Queue final : public ReadyNode, public std::enable_shared_from_this<Queue> {
 public:
  Queue(Loop& loop, Dispatcher& dispatcher, const RingTransport::Options& o) : loop_(loop), dispatcher_(dispatcher), options_(o), watch_(loop.io()) {
    run = [](ReadyNode* node, bool alive) {
      auto self = std::exchange(static_cast<Queue*>(node)->flushing_, nullptr);
      if (alive) self->flush();
    };
  }
  ~Queue();
  Result<void> open(const std::vector<uint16_t>& qids);
  /// Registers all entries. Empty, or what the kernel said.
  std::string enter();
  void commit(Entry& entry);
  void finish(std::function<void()> done);
  Loop& loop() { return loop_; }

 private:
  io_uring_sqe* sqe();
  void prepare(Entry& entry, uint32_t command);
  void flush_soon();
  void flush();
  void arm();
  void reap();
  void on_request(Entry& entry);
  void lost(Entry& entry, int res);
  void check_finished();

  Loop& loop_;
  Dispatcher& dispatcher_;
  RingTransport::Options options_;
  io_uring ring_{};
  bool open_ = false, entered_ = false, ended_ = false, armed_ = false;
  boost::asio::posix::basic_stream_descriptor<Executor> watch_;
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t live_ = 0;  ///< entries that the kernel or a request has
  std::shared_ptr<Queue> flushing_;
  std::function<void()> finished_;
};

EntrySink::~EntrySink() {
  if (!answered_) {
    fuse_out_header out{};
    out.error = -EIO;
    const iovec iov{&out, sizeof out};
    send(&iov, 1);
  }
  if (Loop::current() == &queue_->loop()) queue_->commit(entry_);
  else queue_->loop().post([q = queue_, e = &entry_] { q->commit(*e); });
}

/// Writes the answer where the kernel looks for it; data that was received in place stays there.
int EntrySink::send(const iovec* iov, int count) {
  assert(!answered_);
  answered_ = true;
  fuse_out_header out;
  std::memcpy(&out, iov[0].iov_base, sizeof out);
  size_t used = 0;
  for (int i = 1; i < count; ++i) {
    if (used + iov[i].iov_len > max_io_) {
      log::error("an answer of more than {} bytes", max_io_);
      out.error = -EIO;
      used = 0;
      break;
    }
    if (iov[i].iov_base != entry_.payload() + used) std::memmove(entry_.payload() + used, iov[i].iov_base, iov[i].iov_len);
    used += iov[i].iov_len;
  }
  kernel::RingHeader& h = entry_.header();
  fuse_in_header in;
  std::memcpy(&in, h.in_out, sizeof in);
  out.unique = in.unique;
  out.len = static_cast<uint32_t>(sizeof out + used);
  std::memcpy(h.in_out, &out, sizeof out);
  h.entry.payload_size = static_cast<uint32_t>(used);
  return 0;
}

// ---------------------------------------------------------------- Queue

Queue::~Queue() {
  if (watch_.is_open()) (void)watch_.release();
  if (open_) ::io_uring_queue_exit(&ring_);
}

Result<void> Queue::open(const std::vector<uint16_t>& qids) {
  const auto entries = static_cast<unsigned>(qids.size() * options_.depth);
  // Disabled until the loop's own thread enables it: it alone may submit then.
  // A request wakes the thread out of its wait for descriptors (COOP_TASKRUN) and is copied in on the way back; with
  // DEFER_TASKRUN the ring's descriptor would not even become readable.
  constexpr unsigned kBase = IORING_SETUP_SQE128 | IORING_SETUP_R_DISABLED;
  int r = -EINVAL;
  for (unsigned flags : {kBase | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, kBase}) {
    r = ::io_uring_queue_init(entries + 8, &ring_, flags);
    if (r != -EINVAL) break;
  }
  if (r < 0) return Err(from_errno(-r), fmt::format("io_uring is not available: {}", std::strerror(-r)));
  open_ = true;
  for (uint16_t qid : qids)
    for (uint32_t i = 0; i < options_.depth; ++i) {
      auto e = std::make_unique<Entry>();
      e->size = 2 * kRingPage + options_.max_io;
      void* m = ::mmap(nullptr, e->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (m == MAP_FAILED) return Err(Errc::kNoMem, fmt::format("no memory for {} requests of {} bytes", entries, options_.max_io));
      e->memory = static_cast<std::byte*>(m);
      e->qid = qid;
      e->iov[0] = {e->memory, sizeof(kernel::RingHeader)};
      e->iov[1] = {e->payload(), options_.max_io};
      entries_.push_back(std::move(e));
    }
  return {};
}

std::string Queue::enter() {
  int r = ::io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);  // liburing 2.3 declares a call for it but has none
  if (r < 0) return fmt::format("io_uring can't be enabled: {}", std::strerror(-r));
  r = ::io_uring_register_files(&ring_, &options_.fd, 1);
  if (r < 0) return fmt::format("io_uring does not take /dev/fuse: {}", std::strerror(-r));
  entered_ = true;
  watch_.assign(ring_.ring_fd);
  for (auto& e : entries_) prepare(*e, kernel::kRingRegister);
  live_ = entries_.size();
  r = ::io_uring_submit(&ring_);
  if (r < 0) return fmt::format("io_uring does not take requests: {}", std::strerror(-r));
  // A refusal comes at once, a request when there is one.
  io_uring_cqe* c = nullptr;
  if (::io_uring_peek_cqe(&ring_, &c) == 0 && c->res < 0) {
    const int res = c->res;
    reap();
    arm();  // entries taken before the refusal come back when the connection ends
    return fmt::format("the kernel refused FUSE over io_uring: {}", std::strerror(-res));
  }
  reap();
  arm();
  return {};
}

io_uring_sqe* Queue::sqe() {
  io_uring_sqe* s = ::io_uring_get_sqe(&ring_);
  if (s == nullptr) {
    (void)::io_uring_submit(&ring_);
    s = ::io_uring_get_sqe(&ring_);
  }
  assert(s != nullptr && "as many entries of the submission queue as the kernel may have slots");
  return s;
}

void Queue::prepare(Entry& e, uint32_t command) {
  io_uring_sqe* s = sqe();
  std::memset(s, 0, 128);
  s->opcode = IORING_OP_URING_CMD;
  s->fd = 0;
  s->flags = IOSQE_FIXED_FILE;
  s->cmd_op = command;
  s->user_data = reinterpret_cast<uint64_t>(&e);
  if (command == kernel::kRingRegister) {
    s->addr = reinterpret_cast<uint64_t>(e.iov);
    s->len = 2;
  }
  kernel::RingCommand c{};
  c.qid = e.qid;
  c.commit_id = command == kernel::kRingRegister ? 0 : e.commit_id;
  std::memcpy(s->cmd, &c, sizeof c);
}

void Queue::commit(Entry& e) {
  if (ended_) return lost(e, -ENOTCONN);
  prepare(e, kernel::kRingCommitAndFetch);
  flush_soon();
}

/// Answers of one turn leave together.
void Queue::flush_soon() {
  if (flushing_) return;
  flushing_ = shared_from_this();
  loop_.core().push_turn_end(*this);
}

void Queue::flush() {
  if (!open_ || !entered_) return;
  const int r = ::io_uring_submit(&ring_);
  if (r < 0 && r != -EINTR && r != -EBUSY && r != -EAGAIN) log::error("io_uring does not take answers: {}", std::strerror(-r));
  reap();
  if (::io_uring_sq_ready(&ring_) != 0) flush_soon();
}

void Queue::arm() {
  if (armed_ || !watch_.is_open()) return;
  armed_ = true;
  watch_.async_wait(boost::asio::posix::descriptor_base::wait_read, [self = shared_from_this()](const boost::system::error_code& e) {
    LoopTurn turn(self->loop_);
    self->armed_ = false;
    if (e || !self->watch_.is_open()) return;
    self->reap();
    self->arm();
  });
}

void Queue::reap() {
  for (int n = 0; n < kMaxDispatchedAtOnce; ++n) {
    io_uring_cqe* c = nullptr;
    if (::io_uring_peek_cqe(&ring_, &c) != 0) return;
    auto& e = *reinterpret_cast<Entry*>(c->user_data);
    const int res = c->res;
    ::io_uring_cqe_seen(&ring_, c);
    if (res < 0) lost(e, res);
    else on_request(e);
  }
}

void Queue::on_request(Entry& e) {
  kernel::RingHeader& h = e.header();
  fuse_in_header in;
  std::memcpy(&in, h.in_out, sizeof in);
  e.commit_id = h.entry.commit_id;
  auto sink = std::make_shared<EntrySink>(shared_from_this(), e, options_.max_io);
  const size_t payload = h.entry.payload_size;
  if (in.len < sizeof in + payload || payload > options_.max_io || in.len - sizeof in - payload > sizeof h.op_in) {
    log::error("the kernel's ring gave a request (operation {}) of impossible sizes: {} bytes, {} of them payload", in.opcode, in.len, payload);
    return;  // the sink answers EIO
  }
  const size_t fixed = in.len - sizeof in - payload;
  std::byte* at = e.payload() - fixed - sizeof in;
  std::memcpy(at, &in, sizeof in);
  std::memcpy(at + sizeof in, h.op_in, fixed);
  Incoming message;
  message.bytes = {at, in.len};
  message.memory = Buffer::wrap(sink, e.memory + kRingPage, kRingPage + options_.max_io);
  message.sink = std::move(sink);
  dispatcher_.dispatch(loop_, std::move(message));
}

/// The kernel has let go of the entry: it ends all when the connection ends.
void Queue::lost(Entry& e, int res) {
  if (res != -ENOTCONN && res != -ECANCELED && !ended_) log::error("queue {} of the kernel lost an entry: {}", e.qid, std::strerror(-res));
  ended_ = true;
  --live_;
  check_finished();
}

void Queue::check_finished() {
  if (live_ != 0 || !finished_) return;
  if (watch_.is_open()) (void)watch_.release();
  std::exchange(finished_, nullptr)();
}

void Queue::finish(std::function<void()> done) {
  finished_ = std::move(done);
  check_finished();
}

// ---------------------------------------------------------------- RingTransport

class RingTransportImpl final : public RingTransport, public std::enable_shared_from_this<RingTransportImpl> {
 public:
  RingTransportImpl(Runtime& runtime, Dispatcher& dispatcher) : runtime_(runtime), dispatcher_(dispatcher) {}

  Result<void> open(const Options& o) {
    const uint32_t cpus = possible_cpus();
    if (cpus == 0 || cpus > 0xffff) return Err(Errc::kNoEnt, "the number of possible CPUs can't be read from /sys");
    std::vector<std::vector<uint16_t>> qids(runtime_.size());
    for (uint32_t c = 0; c < cpus; ++c) qids[runtime_.loop_for_cpu(static_cast<int>(c)).index()].push_back(static_cast<uint16_t>(c));
    for (size_t i = 0; i < qids.size(); ++i) {
      if (qids[i].empty()) continue;
      auto q = std::make_shared<Queue>(runtime_.loop(i), dispatcher_, o);
      NACRE_CHECK_OK(q->open(qids[i]));
      queues_.push_back(std::move(q));
    }
    return {};
  }

  void start(std::function<void(std::string)> done) override {
    struct Shared {
      std::mutex mutex;
      size_t left;
      std::string why;
      std::function<void(std::string)> done;
    };
    auto s = std::make_shared<Shared>();
    s->left = queues_.size();
    s->done = std::move(done);
    for (auto& q : queues_)
      q->loop().post([q, s] {
        std::string why = q->enter();
        std::function<void(std::string)> last;
        {
          std::lock_guard lock(s->mutex);
          if (s->why.empty()) s->why = std::move(why);
          if (--s->left == 0) last = std::move(s->done);
        }
        if (last) last(s->why);
      });
  }

  void stop() override {
    struct Shared {
      std::mutex mutex;
      std::condition_variable done;
      size_t left;
    };
    auto s = std::make_shared<Shared>();
    s->left = queues_.size();
    for (auto& q : queues_)
      q->loop().post([q, s] {
        q->finish([s] {
          std::lock_guard lock(s->mutex);
          if (--s->left == 0) s->done.notify_all();
        });
      });
    std::unique_lock lock(s->mutex);
    if (!s->done.wait_for(lock, std::chrono::seconds(kWaitForEntries), [&] { return s->left == 0; }))
      log::warn("requests of the kernel were still in progress when their connection had ended");
  }

 private:
  Runtime& runtime_;
  Dispatcher& dispatcher_;
  std::vector<std::shared_ptr<Queue>> queues_;
};

}  // namespace

Result<std::shared_ptr<RingTransport>> RingTransport::prepare(Runtime& runtime, Dispatcher& dispatcher, Options options) {
  auto t = std::make_shared<RingTransportImpl>(runtime, dispatcher);
  NACRE_CHECK_OK(t->open(options));
  return t;
}

uint32_t parse_possible(std::string_view text) {
  uint32_t count = 0;
  while (!text.empty()) {
    uint32_t first = 0, last = 0;
    auto r = std::from_chars(text.data(), text.data() + text.size(), first);
    if (r.ec != std::errc()) return count;
    text.remove_prefix(static_cast<size_t>(r.ptr - text.data()));
    last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      r = std::from_chars(text.data(), text.data() + text.size(), last);
      if (r.ec != std::errc() || last < first) return 0;
      text.remove_prefix(static_cast<size_t>(r.ptr - text.data()));
    }
    count = std::max(count, last + 1);
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return count;
}

uint32_t possible_cpus() {
  std::ifstream f("/sys/devices/system/cpu/possible");
  std::string line;
  std::getline(f, line);
  return parse_possible(line);
}

}  // namespace nacre::fuse
