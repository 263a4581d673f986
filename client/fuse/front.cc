// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/front.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>

#include <fmt/format.h>

#include "client/fuse/ops.h"
#include "client/fuse/process.h"
#include "common/log/log.h"

namespace nacre::fuse {
namespace {

thread_local const Incoming* t_incoming = nullptr;
thread_local bool t_kill_sgid = false;

/// Escapes what separates options for fuse_opt_parse.
std::string escaped(std::string_view s) {
  std::string out;
  for (char c : s) {
    if (c == ',' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops ops{};
  name_operations(ops);
  attribute_operations(ops);
  file_operations(ops);
  directory_operations(ops);
  lock_operations(ops);
  tool_operations(ops);
  return ops;
}

struct MessageScope {
  explicit MessageScope(const Incoming& in) { t_incoming = &in; }
  ~MessageScope() {
    t_incoming = nullptr;
    t_kill_sgid = false;
  }
};

}  // namespace

const Incoming& incoming() { return *t_incoming; }
bool& kill_sgid_of_message() { return t_kill_sgid; }
RequestPtr begin(Front& front, fuse_req_t req, uint32_t umask) {
  return std::make_shared<Request>(front.running(Loop::current()->index()), *t_incoming, req, umask);
}

// ---------------------------------------------------------------- mounting

Front::Front(Runtime& runtime, client::Filesystem& fs, std::shared_ptr<Notifier> notifier, FrontOptions options)
    : runtime_(runtime), fs_(fs), notifier_(std::move(notifier)), options_(std::move(options)), root_(fs.root().ino) {
  for (size_t i = 0; i < runtime_.size(); ++i) running_.push_back(std::make_shared<Running>());
}

Result<std::unique_ptr<Front>> Front::mount(Runtime& runtime, client::Filesystem& fs, std::shared_ptr<Notifier> notifier, FrontOptions options) {
  auto front = std::unique_ptr<Front>(new Front(runtime, fs, std::move(notifier), std::move(options)));
  NACRE_CHECK_OK(front->make_session());
  NACRE_CHECK_OK(front->mount_session());
  return front;
}

Result<void> Front::make_session() {
  // default_permissions: without it a cached path leads into directories that the caller may not search.
  std::string o = fmt::format("allow_other,default_permissions,subtype=nacre,fsname={}", escaped(options_.source));
  for (const auto& k : options_.kernel_options) o += "," + k;
  std::string program = "nacre", flag = "-o";
  char* argv[] = {program.data(), flag.data(), o.data(), nullptr};
  fuse_args args = FUSE_ARGS_INIT(3, argv);
  auto ops = operations();
  ops.init = [](void* self, fuse_conn_info* c) { on_init(self, c); };
  session_ = fuse_session_new(&args, &ops, sizeof ops, this);
  fuse_opt_free_args(&args);
  if (session_ == nullptr) return Err(Errc::kConfig, fmt::format("libfuse does not take the options {}", o));
  return {};
}

Result<void> Front::mount_session() {
  if (::access("/dev/fuse", R_OK | W_OK) != 0)
    return Err(from_errno(errno), fmt::format("/dev/fuse can't be used: {}; load the module (modprobe fuse) and mount as root", std::strerror(errno)));
  if (fuse_session_mount(session_, options_.mount_point.c_str()) != 0)
    return Err(from_errno(errno == 0 ? EIO : errno), fmt::format("{} can't be mounted: {}", options_.mount_point, errno == 0 ? "see the message above" : std::strerror(errno)));
  mounted_ = true;
  const int fd = fuse_session_fd(session_);
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return Err(from_errno(errno), fmt::format("/dev/fuse can't be made non-blocking: {}", std::strerror(errno)));
  fuse_custom_io io{};
  io.read = read_message;
  io.writev = write_message;
  if (fuse_session_custom_io(session_, &io, fd) != 0) return Err(Errc::kNoMem, "libfuse has no memory for a session");
  notifier_->set_device(fd);
  classic_ = Classic::make(runtime_, *this, fd, Compat::kMaxIo);
  classic_->start();
  return {};
}

void Front::close() {
  if (std::exchange(closed_, true)) return;
  notifier_->set_device(-1);
  bool ended = false;
  {
    std::lock_guard lock(mutex_);
    ended = ended_.has_value();
  }
  if (mounted_ && !ended) abort();
  if (ring_) ring_->stop();
  if (classic_) classic_->stop();
}

void Front::abort() {
  (void)::umount2(options_.mount_point.c_str(), MNT_FORCE);  // fails as busy, but ends the connection
  (void)::umount2(options_.mount_point.c_str(), MNT_DETACH);
}

Front::~Front() {
  close();
  while (!open_.empty()) delete *open_.begin();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

void Front::opened(OpenFile* file) {
  std::lock_guard lock(open_mutex_);
  open_.insert(file);
}

void Front::released(OpenFile* file) {
  std::lock_guard lock(open_mutex_);
  open_.erase(file);
}

Result<void> Front::unmount(bool detach) {
  if (::umount2(options_.mount_point.c_str(), detach ? MNT_DETACH : 0) == 0) return {};
  if (errno == EBUSY) return Err(Errc::kBusy, fmt::format("{} is in use (fuser -vm {} lists by whom)", options_.mount_point, options_.mount_point));
  if (errno == EINVAL) return {};  // somebody else was faster
  return Err(from_errno(errno), fmt::format("{} can't be unmounted: {}", options_.mount_point, std::strerror(errno)));
}

// ---------------------------------------------------------------- INIT

void Front::on_init(void* self, fuse_conn_info* connection) {
  auto& f = *static_cast<Front*>(self);
  f.options_.compat.on_init(*connection, f.options_.readdirplus);
}

ssize_t Front::read_message(int fd, void* to, size_t size, void*) { return ::read(fd, to, size); }

/// Everything libfuse sends comes through here: answers go where their request came from.
ssize_t Front::write_message(int fd, iovec* iov, int count, void* self) {
  fuse_out_header out;
  std::memcpy(&out, iov[0].iov_base, sizeof out);
  Sink* sink = Request::current_sink();
  if (out.unique == 0 || sink == nullptr) return ::writev(fd, iov, count);
  auto& f = *static_cast<Front*>(self);
  const int r = out.unique == f.init_unique_ ? f.answer_init(*sink, iov, count) : sink->send(iov, count);
  if (r == 0) return out.len;
  errno = -r;
  return -1;
}

int Front::answer_init(Sink& sink, const iovec* iov, int count) {
  init_unique_ = 0;
  fuse_out_header header;
  std::memcpy(&header, iov[0].iov_base, sizeof header);
  if (header.error != 0 || count < 2) {
    ready(Err(Errc::kVersion, fmt::format("the kernel and libfuse did not agree on a protocol: {}", std::strerror(-header.error))));
    return sink.send(iov, count);
  }
  fuse_init_out reply{};
  std::memcpy(&reply, iov[1].iov_base, std::min(sizeof reply, iov[1].iov_len));
  Compat& compat = options_.compat;
  if (compat.has(Feature::kUring)) {
    auto ring = RingTransport::prepare(runtime_, *this, {fuse_session_fd(session_), options_.ring_depth, Compat::kMaxIo});
    if (ring) ring_ = std::move(*ring);
    else give_up_ring(ring.error().message());
  }
  compat.patch_init_reply(reply);
  iovec patched[2] = {iov[0], {&reply, iov[1].iov_len}};
  const int r = sink.send(patched, 2);
  if (r == 0) start_transport();
  else ready(Err(from_errno(-r), fmt::format("the kernel refused the INIT reply: {}", std::strerror(-r))));
  return r;
}

void Front::start_transport() {
  Compat& compat = options_.compat;
  auto serve_device = [this] {
    const size_t n = classic_->spread();
    std::lock_guard lock(mutex_);
    devices_ = n;
  };
  if (!compat.has(Feature::kUring)) {
    serve_device();
    ready({});
    return;
  }
  ring_->start([this, serve_device](std::string why) {
    if (!why.empty()) {
      give_up_ring(why);
      serve_device();
    } else {
      for (size_t i = 0; i < runtime_.size(); ++i) {
        Loop& loop = runtime_.loop(i);
        loop.spawn(look_around(loop));
      }
    }
    ready({});
  });
}

void Front::give_up_ring(std::string why) {
  options_.compat.give_up(Feature::kUring);
  std::lock_guard lock(mutex_);
  transport_note_ = std::move(why);
}

void Front::ready(Result<void> r) {
  std::lock_guard lock(mutex_);
  if (ready_) return;
  ready_ = std::move(r);
  changed_.notify_all();
}

Result<void> Front::wait_ready(Nanos timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::nanoseconds(timeout), [&] { return ready_ || ended_; });
  if (ready_) return *ready_;
  if (ended_) return Err(Errc::kIo, fmt::format("the connection to the kernel ended while mounting{}{}", ended_->empty() ? "" : ": ", *ended_));
  return Err(Errc::kDeadline, "the kernel did not begin to use the mount");
}

void Front::connection_ended(std::string why) {
  if (!why.empty()) log::error("{}", why);
  std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = std::move(why);
  changed_.notify_all();
}

std::string Front::wait_ended() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_.has_value(); });
  return *ended_;
}

// ---------------------------------------------------------------- requests

void Front::dispatch(Loop&, Incoming in) {
  fuse_in_header h;
  if (in.bytes.size() < sizeof h) return;
  std::memcpy(&h, in.bytes.data(), sizeof h);
  requests_.fetch_add(1, std::memory_order_relaxed);
  MessageScope message(in);
  switch (h.opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return count_forgets(in);  // nothing is kept per inode; forgets have no answer
    case FUSE_INTERRUPT: return interrupt(arguments<fuse_interrupt_in>().unique);
    case kernel::kOpTmpfile: return on_tmpfile(*this);
    case kernel::kOpStatx: return on_statx(*this);
    case kernel::kOpCopyFileRange64: return on_copy_file_range_64(*this);
    case FUSE_SETXATTR: in.bytes = options_.compat.plain_setxattr(in.bytes, t_kill_sgid); break;
    case FUSE_INIT:
      init_unique_ = h.unique;
      if (auto r = options_.compat.on_init_request(in.bytes); !r) ready(std::unexpected(r.error()));
      break;
    default: break;
  }
  SinkScope sink(in.sink.get());
  fuse_buf buf{};
  buf.mem = in.bytes.data();
  buf.size = in.bytes.size();
  buf.fd = -1;
  fuse_session_process_buf(session_, &buf);
}

void Front::count_forgets(const Incoming& in) {
  fuse_in_header h;
  std::memcpy(&h, in.bytes.data(), sizeof h);
  forgets_.fetch_add(h.opcode == FUSE_FORGET ? 1 : arguments<fuse_batch_forget_in>().count, std::memory_order_relaxed);
}

// ---------------------------------------------------------------- interrupts

/// How often it is asked again whether an interrupted process is dying: the kernel tells of its first signal only.
constexpr Nanos kDyingCheck = 100 * kMillisecond;

/// How often callers of requests that go on are looked at, in ring mode.
constexpr Nanos kLookAround = 500 * kMillisecond;

/// Over io_uring a signal that meets a request between the kernel's queue and this process is told to nobody (Linux 6.14 to 6.18
/// mark a request as sent without looking for it, unlike reads of /dev/fuse), and its caller could not even be killed.
Task<void> Front::look_around(Loop& loop) {
  while (co_await sleep_for(kLookAround)) {
    std::vector<CancelPtr> left;
    running_[loop.index()]->each([&left](Request& r) {
      if (!r.seen_before() || r.cancel()->fired()) return;
      if (r.opcode() == FUSE_SETLKW ? has_signal(r.pid()) : is_dying(r.pid())) left.push_back(r.cancel());
    });
    cancelled_.fetch_add(left.size(), std::memory_order_relaxed);
    for (auto& c : left) c->fire();
  }
}

/// The message may arrive on another loop than its request did, so every loop is told. Its request was read before, so it is
/// registered by the time a loop gets to the note.
void Front::interrupt(uint64_t unique) {
  interrupts_.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < runtime_.size(); ++i) {
    Loop& loop = runtime_.loop(i);
    loop.post([this, &loop, unique] { interrupt_here(loop, unique); });
  }
}

/// Waiting for a lock ends with any signal, as POSIX has it. Everything else goes on unless the process dies: programs don't
/// expect EINTR from files, and local filesystems don't give it.
void Front::interrupt_here(Loop& loop, uint64_t unique) {
  Request* r = running_[loop.index()]->find(unique);
  if (r == nullptr || r->cancel()->fired()) return;
  if (r->opcode() == FUSE_SETLKW || is_dying(r->pid())) {
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    r->cancel()->fire();
  } else {
    loop.spawn(watch_interrupted(loop, unique, r->pid()));
  }
}

size_t Front::fail_waiting() {
  const client::ClientStatus status = fs_.status();
  const bool reachable = !status.servers.empty() && status.servers.front().connected;
  size_t failed = 0;
  for (size_t i = 0; i < runtime_.size(); ++i) {
    auto done = std::make_shared<std::promise<size_t>>();
    auto count = done->get_future();
    runtime_.loop(i).post([this, i, reachable, done] {
      std::vector<CancelPtr> all;
      running_[i]->each([&](Request& r) {
        if (r.opcode() == FUSE_SETLKW && reachable) return;
        if (!r.cancel()->fired()) all.push_back(r.cancel());
      });
      for (auto& c : all) c->fire(Error(Errc::kIo, "the administrator aborted what waited in this mount"));
      done->set_value(all.size());
    });
    if (count.wait_for(std::chrono::seconds(5)) == std::future_status::ready) failed += count.get();
  }
  cancelled_.fetch_add(failed, std::memory_order_relaxed);
  return failed;
}

Task<void> Front::watch_interrupted(Loop& loop, uint64_t unique, int32_t pid) {
  while (co_await sleep_for(kDyingCheck)) {
    if (running_[loop.index()]->find(unique) == nullptr) co_return;
    if (!is_dying(pid)) continue;
    Request* r = running_[loop.index()]->find(unique);
    cancelled_.fetch_add(1, std::memory_order_relaxed);
    r->cancel()->fire();
    co_return;
  }
}

}  // namespace nacre::fuse
