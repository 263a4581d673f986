// SPDX-License-Identifier: Apache-2.0
// The reading half of a Peer: frames from a buffer, payloads straight to where they belong, requests to the handler.
// Input is never trusted: a malformed or damaged frame closes the connection with a logged sentence.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/log/log.h"
#include "common/rpc/peer_impl.h"

namespace nacre::rpc {
namespace {
constexpr size_t kReadBuffer = 64 * 1024;
constexpr size_t kHeader = sizeof(wire::FrameHeader);

Result<wire::FrameHeader> header_at(const std::byte* p) { return wire::parse_header(std::span<const uint8_t, kHeader>(reinterpret_cast<const uint8_t*>(p), kHeader)); }

bool is_damage(Errc code) { return code != Errc::kDisconnected && code != Errc::kShutdown; }

Task<Result<void>> read_exactly(Stream& stream, std::span<std::byte> out) {
  while (!out.empty()) {
    CO_TRY(size_t n, co_await stream.read_some(out));
    out = out.subspan(n);
  }
  co_return Result<void>{};
}
}  // namespace

std::string printable(std::span<const uint8_t> text) {
  std::string out(reinterpret_cast<const char*>(text.data()), std::min(text.size(), kMaxDetail));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

// ---------------------------------------------------------------- single frames, before there is a Peer

Task<Result<Frame>> read_frame(Stream& stream) {
  std::array<std::byte, kHeader> raw;
  CO_CHECK_OK(co_await read_exactly(stream, raw));
  CO_TRY(wire::FrameHeader header, header_at(raw.data()));
  if (header.body_size > kMaxHandshakeBody || header.payload_size != 0)
    co_return Err(Errc::kTooBig, fmt::format("a message of {} + {} bytes came before the connection was authenticated", header.body_size, header.payload_size));
  Frame frame{header, Bytes(header.body_size)};
  CO_CHECK_OK(co_await read_exactly(stream, std::as_writable_bytes(std::span(frame.body))));
  CO_CHECK_OK(wire::check_body(header, frame.body));
  co_return frame;
}

Task<Result<void>> write_frame(Stream& stream, wire::FrameHeader header, Bytes body) {
  header.body_size = static_cast<uint32_t>(body.size());
  wire::seal(header, body);
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(body))};
  co_return co_await stream.write(std::move(parts));
}

// ---------------------------------------------------------------- the reader

Task<void> PeerImpl::read_loop(Self self) {
  PeerImpl& p = *self;
  p.buffer_ = Buffer::allocate(kReadBuffer);
  auto ended = co_await p.read_frames();
  Error why = ended ? Error(Errc::kDisconnected) : std::move(ended).error();
  if (is_damage(why.code) && !p.closed_) log::warn("the connection to {} was closed: {}", p.where(), why.message());
  p.close(std::move(why));
  p.buffer_ = {};
}

Task<Result<void>> PeerImpl::read_frames() {
  while (!closed_) {
    if (buffered() < kHeader) CO_CHECK_OK(co_await fill(kHeader));
    bool dispatched = false;
    // Everything that has arrived is taken before anything is answered.
    while (!closed_ && buffered() >= kHeader) CO_CHECK_OK(co_await read_one(dispatched));
    if (dispatched && buffered() == 0) {
      Parked after_answers;
      core_.push_turn_last(after_answers);
      co_await after_answers.suspend();
    }
  }
  co_return std::unexpected(close_reason_);
}

Task<Result<void>> PeerImpl::read_one(bool& dispatched) {
  CO_TRY(const wire::FrameHeader header, header_at(buffer_.data() + begin_));
  Bytes body;
  if (kHeader + header.body_size <= kReadBuffer) {
    if (buffered() < kHeader + header.body_size) CO_CHECK_OK(co_await fill(kHeader + header.body_size));
    const auto* at = reinterpret_cast<const uint8_t*>(buffer_.data()) + begin_ + kHeader;
    body.assign(at, at + header.body_size);
    begin_ += kHeader + header.body_size;
  } else {
    begin_ += kHeader;
    body.resize(header.body_size);
    CO_CHECK_OK(co_await take(std::as_writable_bytes(std::span(body))));
  }
  CO_CHECK_OK(wire::check_body(header, body));
  if (header.kind == wire::FrameKind::kReply) co_return co_await receive_reply(header, std::move(body));
  dispatched = true;
  co_return co_await receive_request(header, std::move(body));
}

/// Reads until `need` bytes are buffered, and as much more as comes along.
Task<Result<void>> PeerImpl::fill(size_t need) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (kReadBuffer - begin_ < need) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
    end_ -= begin_;
    begin_ = 0;
  }
  while (buffered() < need) {
    CO_TRY(size_t n, co_await stream_->read_some(buffer_.span().subspan(end_)));
    if (closed_) co_return std::unexpected(close_reason_);
    end_ += n;
  }
  co_return Result<void>{};
}

/// Fills `out` from the buffer and then from the stream itself.
Task<Result<void>> PeerImpl::take(std::span<std::byte> out) {
  const size_t n = std::min(out.size(), buffered());
  if (n) std::memcpy(out.data(), buffer_.data() + begin_, n);
  begin_ += n;
  out = out.subspan(n);
  if (!out.empty()) CO_CHECK_OK(co_await read_exactly(*stream_, out));
  if (closed_) co_return std::unexpected(close_reason_);
  co_return Result<void>{};
}

Task<Result<void>> PeerImpl::receive_reply(wire::FrameHeader header, Bytes body) {
  PendingCall* call = find_call(header.request);
  if (call && static_cast<uint16_t>(call->method) != header.method)
    co_return Err(Errc::kProtocol, fmt::format("a reply to {} came for a {} request", method_name(header.method), method_name(static_cast<uint16_t>(call->method))));
  if (call && call->woken) call = nullptr;  // given up: nobody waits for this reply
  Buffer payload;
  if (header.payload_size > 0) {
    const bool fits = call && call->into.size() >= header.payload_size;
    payload = fits ? call->into.slice(0, header.payload_size) : Buffer::allocate(header.payload_size);
    if (call) call->receiving = fits;
    auto got = co_await take(payload.span());
    if (!got) co_return got;
    call = find_call(header.request);  // it may be gone, unless its own memory was being filled
    if (call) {
      call->receiving = false;
      if (call->leaving && !call->unsent) call->leaving->finish(core_);
    }
  }
  if (!call || call->woken) co_return Result<void>{};
  call->reply.journal = header.journal;
  call->reply.status = from_wire(header.status);
  if (header.status == 0) call->reply.body = std::move(body);
  else call->reply.detail = printable(body);
  call->reply.payload = std::move(payload);
  call->finish(core_);
  co_return Result<void>{};
}

Task<Result<void>> PeerImpl::receive_request(wire::FrameHeader header, Bytes body) {
  Request request{header, std::move(body), {}};
  if (header.payload_size > 0) {
    request.payload = Buffer::allocate(header.payload_size);
    CO_CHECK_OK(co_await take(request.payload.span()));
  }
  const auto method = static_cast<Method>(header.method);
  if (method_flags(header.method) == 0)
    co_return refuse(header, Error(Errc::kOpNotSupp, fmt::format("method {} is unknown to this release: run the same release on both ends", header.method)));
  if (method == Method::kHello || method == Method::kAuth) co_return refuse(header, Error(Errc::kProtocol, "this connection is authenticated already"));
  if (!handler_) co_return refuse(header, Error(Errc::kOpNotSupp, fmt::format("{} isn't served at this end of the connection", method_name(header.method))));
  if (handling_ >= kMaxInFlight || handling_bytes_ + header.payload_size > kMaxInFlightBytes)
    co_return refuse(header, Error(Errc::kRetryLater, fmt::format("{} requests of this connection are in work already", handling_)));
  ++handling_;
  handling_bytes_ += header.payload_size;
  loop_.spawn(handle(self(), std::move(request)));
  co_return Result<void>{};
}

namespace {
wire::FrameHeader reply_header(const wire::FrameHeader& request, Errc status) {
  wire::FrameHeader h;
  h.kind = wire::FrameKind::kReply;
  h.method = request.method;
  h.status = static_cast<uint16_t>(status);
  h.request = request.request;
  h.session = request.session;
  h.slot = request.slot;
  h.sequence = request.sequence;
  return h;
}
Bytes detail_bytes(std::string_view detail) {
  if (detail.size() > kMaxDetail) {
    size_t n = kMaxDetail;
    while (n > 0 && (static_cast<unsigned char>(detail[n]) & 0xC0) == 0x80) --n;  // not in the middle of a character
    detail = detail.substr(0, n);
  }
  return Bytes(detail.begin(), detail.end());
}
}  // namespace

/// Answers without a handler. Who sends requests and doesn't read such answers is cut off.
Result<void> PeerImpl::refuse(const wire::FrameHeader& request, Error why) {
  Bytes body = detail_bytes(why.detail);
  if (!queue_space_.try_acquire(kHeader + body.size())) return Err(Errc::kProtocol, "the other end sends requests and doesn't read the answers");
  enqueue(reply_header(request, why.code), std::move(body), {});
  return {};
}

Task<void> PeerImpl::handle(Self self, Request request) {
  PeerImpl& p = *self;
  const wire::FrameHeader header = request.header;
  Reply reply = co_await p.handler_(self, std::move(request));
  --p.handling_;
  p.handling_bytes_ -= header.payload_size;
  if (p.closed_) co_return;
  Bytes body = reply.status == Errc::kOk ? std::move(reply.body) : detail_bytes(reply.detail);
  if (body.size() > wire::kMaxBody || reply.payload.size() > wire::kMaxPayload) {
    log::error("the reply to {} has {} + {} bytes, over the limit of a message; the caller gets an error", method_name(header.method), body.size(), reply.payload.size());
    reply = fail(Error(Errc::kTooBig, "the reply is over the limit of a message"));
    body = detail_bytes(reply.detail);
  }
  const uint64_t size = kHeader + body.size() + reply.payload.size();
  if (!p.queue_space_.try_acquire(size)) {
    auto room = co_await p.queue_space_.acquire(size);
    if (!room || p.closed_) co_return;
  }
  wire::FrameHeader answer = reply_header(header, reply.status);
  answer.journal = reply.journal;
  p.enqueue(answer, std::move(body), std::move(reply.payload));
}

}  // namespace nacre::rpc
