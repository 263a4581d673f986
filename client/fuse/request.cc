// SPDX-License-Identifier: Apache-2.0
#include "client/fuse/request.h"

#include <sys/uio.h>

#include <cassert>
#include <cstring>

#include "client/fuse/process.h"
#include "common/log/log.h"

namespace nacre::fuse {
namespace {
thread_local Sink* t_sink = nullptr;

/// Requests that move data keep a loop busy for longer than others.
constexpr uint32_t kBulkBytes = 128 * 1024;
constexpr uint32_t kBulkWeight = 4;

uint32_t weight_of(const Incoming& in, const fuse_in_header& h) {
  if (h.opcode == FUSE_WRITE) return in.bytes.size() >= kBulkBytes ? kBulkWeight : 1;
  if (h.opcode != FUSE_READ || in.bytes.size() < sizeof h + sizeof(fuse_read_in)) return 1;
  fuse_read_in r;
  std::memcpy(&r, in.bytes.data() + sizeof h, sizeof r);
  return r.size >= kBulkBytes ? kBulkWeight : 1;
}
}  // namespace

SinkScope::SinkScope(Sink* sink) : before_(t_sink) { t_sink = sink; }
SinkScope::~SinkScope() { t_sink = before_; }
Sink* Request::current_sink() { return t_sink; }

void Running::add(Request* r) {
  r->next_ = head_;
  r->link_ = &head_;
  if (head_ != nullptr) head_->link_ = &r->next_;
  head_ = r;
  count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  weight_.store(weight_.load(std::memory_order_relaxed) + r->weight_, std::memory_order_relaxed);
}

void Running::remove(Request* r) {
  *r->link_ = r->next_;
  if (r->next_ != nullptr) r->next_->link_ = r->link_;
  count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  weight_.store(weight_.load(std::memory_order_relaxed) - r->weight_, std::memory_order_relaxed);
}

Request* Running::find(uint64_t unique) const {
  for (Request* r = head_; r != nullptr; r = r->next_)
    if (r->unique() == unique) return r;
  return nullptr;
}

Request::Request(std::shared_ptr<Running> running, const Incoming& in, fuse_req_t req, uint32_t umask)
    : running_(std::move(running)), req_(req), umask_(umask), sink_(in.sink), cancel_(std::make_shared<Cancel>()) {
  std::memcpy(&header_, in.bytes.data(), sizeof header_);
  weight_ = weight_of(in, header_);
  running_->add(this);
}

Request::~Request() {
  if (!answered_) {
    log::error("a request of the kernel (operation {}) was dropped without an answer", header_.opcode);
    error(EIO);
  }
}

client::Caller Request::caller() const {
  client::Caller c;
  c.uid = header_.uid;
  c.gid = header_.gid;
  c.pid = pid();
  c.groups = [pid = pid()] { return groups_of(pid); };
  c.cancel = cancel_;
  return c;
}

void Request::error(int err) { send(err, {}); }
void Request::error(const Error& e) { send(to_errno(e.code) == 0 ? EIO : to_errno(e.code), {}); }
void Request::data(std::span<const std::byte> bytes) { send(0, bytes); }

void Request::send(int err, std::span<const std::byte> bytes) {
  assert(!answered_);
  answered_ = true;
  running_->remove(this);
  SinkScope scope(sink_.get());
  if (req_ != nullptr) {
    if (err != 0 || bytes.empty()) (void)fuse_reply_err(req_, err);
    else (void)fuse_reply_buf(req_, reinterpret_cast<const char*>(bytes.data()), bytes.size());
    req_ = nullptr;
  } else {
    fuse_out_header out{};
    out.len = static_cast<uint32_t>(sizeof out + bytes.size());
    out.error = -err;
    out.unique = header_.unique;
    const iovec iov[2] = {{&out, sizeof out}, {const_cast<std::byte*>(bytes.data()), bytes.size()}};
    (void)sink_->send(iov, bytes.empty() ? 1 : 2);
  }
  sink_.reset();  // a ring's entry goes back to the kernel with its last reference
}

}  // namespace nacre::fuse
