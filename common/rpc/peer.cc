// SPDX-License-Identifier: Apache-2.0
// Calls and the write queue of a Peer. Reading is in peer_reader.cc.
#include "common/rpc/peer.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/log/log.h"
#include "common/rpc/peer_impl.h"
#include "common/runtime/cancel_link.h"

namespace nacre::rpc {
namespace {
constexpr size_t kMaxBatchFrames = 128;          ///< of one write: three parts each, below IOV_MAX
constexpr uint64_t kMaxBatchBytes = 4ull << 20;
constexpr Nanos kLeaveGrace = 5 * kSecond;       ///< how long a call that was given up waits for its memory to be let go

uint32_t timeout_ms(Nanos deadline, Nanos now) {
  if (deadline == kForever) return 0;
  const Nanos ms = (deadline - now + kMillisecond - 1) / kMillisecond;
  return static_cast<uint32_t>(std::clamp<Nanos>(ms, 1, UINT32_MAX));
}
std::span<const std::byte> as_parts(const Bytes& b) { return std::as_bytes(std::span(b)); }
}  // namespace

PeerImpl::PeerImpl(Loop& loop, std::unique_ptr<Stream> stream, PeerInfo info, Handler handler)
    : loop_(loop), core_(loop.core()), stream_(std::move(stream)), info_(std::move(info)), handler_(std::move(handler)) {}

PeerImpl::~PeerImpl() = default;

PeerPtr start_peer(Loop& loop, std::unique_ptr<Stream> stream, PeerInfo info, Handler handler, std::function<void(PeerPtr)> before_start) {
  auto peer = std::make_shared<PeerImpl>(loop, std::move(stream), std::move(info), std::move(handler));
  if (before_start) before_start(peer);
  peer->start();
  return peer;
}

void PeerImpl::start() {
  if (closed_) return;
  loop_.spawn(read_loop(self()));
  loop_.spawn(write_loop(self()));
}

std::string PeerImpl::where() const { return info_.address.empty() ? stream_->remote() : info_.address; }

void PeerImpl::close(Error why) {
  if (std::exchange(closed_, true)) return;
  close_reason_ = why.code == Errc::kDisconnected ? why : Error(Errc::kDisconnected, why.message());
  stream_->close();
  for (Slot& s : slots_)
    if (s.call) {
      s.call->receiving = false;
      s.call->unsent = nullptr;
      s.call->fail(core_, close_reason_);
      if (s.call->leaving) s.call->leaving->finish(core_);
    }
  for (OutFrame& f : queue_) f.call = nullptr;
  queue_space_.release(UINT64_MAX / 2);  // callers that wait for room find the peer closed
  wake_writer();
  auto callbacks = std::exchange(on_close_, {});
  if (!callbacks.empty())
    loop_.post([callbacks = std::move(callbacks), why] {
      for (auto& fn : callbacks) fn(why);
    });
}

void PeerImpl::on_close(std::function<void(Error)> fn) {
  if (!closed_) on_close_.push_back(std::move(fn));
  else loop_.post([fn = std::move(fn), why = close_reason_] { fn(why); });
}

// ---------------------------------------------------------------- calls

bool PeerImpl::register_call(PendingCall& call) {
  uint32_t index;
  if (!free_slots_.empty()) {
    index = free_slots_.back();
    free_slots_.pop_back();
  } else {
    if (slots_.size() == kMaxInFlight) return false;
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  }
  Slot& s = slots_[index];
  s.call = &call;
  call.id = s.round * kMaxInFlight + index;
  return true;
}

void PeerImpl::unregister_call(PendingCall& call) {
  const uint32_t index = call.id % kMaxInFlight;
  slots_[index].call = nullptr;
  ++slots_[index].round;  // wraps after 4 million calls in this slot; a reply that late has no connection any more
  free_slots_.push_back(index);
}

PendingCall* PeerImpl::find_call(uint32_t id) {
  const uint32_t index = id % kMaxInFlight;
  if (index >= slots_.size() || !slots_[index].call || slots_[index].call->id != id) return nullptr;
  return slots_[index].call;
}

Task<Result<Reply>> PeerImpl::call(Method method, Bytes body, CallOptions options) { return run_call(self(), method, std::move(body), std::move(options)); }

Task<Result<Reply>> PeerImpl::run_call(Self self, Method method, Bytes body, CallOptions options) {
  PeerImpl& p = *self;
  assert(Loop::current() == &p.loop_);
  const uint64_t size = sizeof(wire::FrameHeader) + body.size() + options.payload.size();
  if (body.size() > wire::kMaxBody || options.payload.size() > wire::kMaxPayload)
    co_return Err(Errc::kTooBig, fmt::format("a {} request of {} bytes is over the limit of a message", method_name(static_cast<uint16_t>(method)), size));
  if (!p.queue_space_.try_acquire(size)) {
    auto room = co_await p.queue_space_.acquire(size, options.deadline, options.cancel);
    if (!room) co_return std::unexpected(std::move(room).error());
  }
  Error refused = p.closed_ ? p.close_reason_ : Error(Errc::kOk);
  if (options.cancel && options.cancel->fired()) refused = options.cancel->error();
  const Nanos now = options.deadline == kForever ? 0 : p.loop_.clock().boot();
  if (options.deadline != kForever && options.deadline <= now) refused = Error(Errc::kDeadline);
  if (p.core_.stopping()) refused = Error(Errc::kShutdown);
  PendingCall call;
  call.method = method;
  call.into = std::move(options.receive_into);
  if (refused.code == Errc::kOk && !p.register_call(call))
    refused = Error(Errc::kRetryLater, fmt::format("{} requests to {} are in flight already", kMaxInFlight, p.where()));
  if (refused.code != Errc::kOk) {
    p.queue_space_.release(size);
    co_return std::unexpected(std::move(refused));
  }

  wire::FrameHeader header;
  header.method = static_cast<uint16_t>(method);
  header.request = call.id;
  header.session = options.session;
  header.slot = options.slot;
  header.sequence = options.sequence;
  header.timeout_ms = timeout_ms(options.deadline, now);
  OutFrame& frame = p.enqueue(header, std::move(body), std::move(options.payload));
  frame.call = &call;
  call.unsent = &frame;

  p.core_.wait(call, options.deadline);
  {
    CancelLink link(options.cancel, p.loop_, call);
    co_await call.suspend();
  }
  if (call.receiving || call.unsent) co_await p.leave(call);
  p.unregister_call(call);
  if (call.failed) co_return std::unexpected(std::move(call.error));
  if (call.reply.status != Errc::kOk) co_return Err(call.reply.status, std::move(call.reply.detail));
  co_return std::move(call.reply);
}

/// A call that ended early (deadline, cancel, or a reply that overtook the end of the write) may not return while its
/// payload is being sent or its buffer being filled: the caller would use that memory for something else. What has not begun is dropped; what has is waited for, for a
/// while, then the connection is closed.
Task<void> PeerImpl::leave(PendingCall& call) {
  if (call.unsent && !call.unsent->started) {
    OutFrame& f = *std::exchange(call.unsent, nullptr);
    f.call = nullptr;
    f.dropped = true;
    f.payload = {};
    f.body = {};
    queue_space_.release(std::exchange(f.size, 0));
  }
  if (!call.unsent && !call.receiving) co_return;
  Waiter w;
  call.leaving = &w;
  core_.wait(w, loop_.clock().boot() + kLeaveGrace);
  if (core_.stopping()) w.fail(core_, Errc::kShutdown);
  co_await w.suspend();
  call.leaving = nullptr;
  if (w.failed) close(Error(Errc::kDisconnected, fmt::format("{} stopped in the middle of a message", where())));
}

// ---------------------------------------------------------------- writing

OutFrame& PeerImpl::enqueue(wire::FrameHeader header, Bytes body, Buffer payload) {
  header.body_size = static_cast<uint32_t>(body.size());
  header.payload_size = static_cast<uint32_t>(payload.size());
  wire::seal(header, body);
  OutFrame& f = queue_.emplace_back();
  f.header = header;
  f.size = sizeof header + body.size() + payload.size();
  f.body = std::move(body);
  f.payload = std::move(payload);
  wake_writer();
  return f;
}

/// The writer runs at the end of the turn, when all that this turn has to send is queued.
void PeerImpl::wake_writer() {
  if (!writer_idle_ || writer_.woken) return;
  writer_.woken = true;
  core_.forget(writer_);
  core_.push_turn_end(writer_);
}

Task<void> PeerImpl::write_loop(Self self) {
  PeerImpl& p = *self;
  while (!p.closed_) {
    if (p.queue_.empty()) {
      p.writer_.woken = false;
      p.writer_idle_ = true;
      p.core_.wait_through(p.writer_);
      co_await p.writer_.suspend();
      p.writer_idle_ = false;
      continue;
    }
    std::vector<std::span<const std::byte>> parts;
    size_t frames = 0;
    uint64_t bytes = 0;
    for (auto it = p.queue_.begin(); it != p.queue_.end() && frames < kMaxBatchFrames && bytes < kMaxBatchBytes; ++it, ++frames) {
      if (it->dropped) continue;
      it->started = true;
      bytes += it->size;
      parts.push_back(std::as_bytes(std::span(&it->header, 1)));
      if (!it->body.empty()) parts.push_back(as_parts(it->body));
      if (!it->payload.empty()) parts.push_back(it->payload.span());
    }
    auto done = co_await p.stream_->write(std::move(parts));
    if (!done) {
      p.close(std::move(done).error());
      break;
    }
    p.written(frames);
  }
  p.queue_.clear();
}

void PeerImpl::written(size_t frames) {
  uint64_t bytes = 0;
  for (; frames > 0; --frames) {
    OutFrame& f = queue_.front();
    bytes += f.size;
    if (f.call) {
      f.call->unsent = nullptr;
      if (f.call->leaving && !f.call->receiving) f.call->leaving->finish(core_);
    }
    queue_.pop_front();
  }
  if (!closed_) queue_space_.release(bytes);
}

}  // namespace nacre::rpc
