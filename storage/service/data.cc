// SPDX-License-Identifier: Apache-2.0
// Data requests of clients: write, read, commit, seek.
#include "common/base/units.h"
#include "common/wire/bits.h"
#include "storage/service/state.h"

namespace nacre::storage {
namespace {

struct Range { uint64_t offset = 0; uint32_t length = 0; };

/// 1 byte to 1 MiB within the largest file.
Result<void> check_range(const ObjectId& object, Range r) {
  if (r.length == 0 || r.length > kMaxIo) return Err(Errc::kInval, fmt::format("a request for {} bytes of object {}; allowed are 1 to {}", r.length, object, kMaxIo));
  if (r.offset > kMaxFileSize || r.length > kMaxFileSize - r.offset) return Err(Errc::kFBig, fmt::format("offset {} of object {} is past the largest file size", r.offset, object));
  return {};
}

/// Permits of the loop's byte budget, given back at the end of the request.
class Permit {
 public:
  Permit(Semaphore& budget, uint64_t n) : budget_(&budget), n_(n) {}
  Permit(Permit&& o) noexcept : budget_(std::exchange(o.budget_, nullptr)), n_(o.n_) {}
  Permit& operator=(Permit&&) = delete;
  ~Permit() {
    if (budget_ != nullptr) budget_->release(n_);
  }

 private:
  Semaphore* budget_;
  uint64_t n_;
};

Task<Result<Permit>> take_permit(StatePtr s, uint64_t n) {
  Semaphore& budget = s->budget();
  CO_CHECK_OK(co_await budget.acquire(n));
  co_return Permit(budget, n);
}

/// The arguments of a write that has passed every check that needs no store.
Result<WriteArgs> write_args(const wire::ObjectWriteRequest& m, const ObjectId& object, Buffer payload) {
  NACRE_CHECK_OK(check_range(object, {m.offset(), m.length()}));
  if (payload.size() != m.length()) return Err(Errc::kProtocol, fmt::format("a write of {} bytes to object {} came with {} bytes", m.length(), object, payload.size()));
  const uint64_t blocks = (m.offset() % kBlockSize + m.length() + kBlockSize - 1) / kBlockSize;
  if (m.sums() == nullptr || m.sums()->size() != blocks) return Err(Errc::kProtocol, fmt::format("a write to object {} touches {} blocks and bears {} sums", object, blocks, m.sums() ? m.sums()->size() : 0));
  WriteArgs a;
  a.object = object;
  a.fileset = FilesetId(m.cap()->fileset());
  a.epoch = Epoch(m.cap()->epoch());
  a.offset = m.offset();
  a.data = std::move(payload);
  a.sums.assign(m.sums()->begin(), m.sums()->end());
  a.wseq = WSeq(m.wseq());
  a.sync = m.sync();
  return a;
}

/// Writes; a capability of a newer epoch than the target knows makes it ask the metadata server once.
Task<Result<WriteResult>> run_write(StatePtr s, WriteArgs args) {
  const Epoch epoch = args.epoch;
  const FilesetId fileset = args.fileset;
  if (epoch > s->store->epoch(fileset)) {
    count(s->metrics.stale_epochs);
    CO_CHECK_OK(co_await s->enrollment->refresh());
    if (epoch > s->store->epoch(fileset)) co_return Err(Errc::kRetryLater, fmt::format("epoch {} of fileset {} is newer than what the metadata server told", epoch, fileset));
  }
  co_return co_await s->store->write(std::move(args));
}

rpc::Reply write_reply(const StatePtr& s, const WriteResult& r) {
  wire::ObjectWriteReplyT reply;
  reply.wseq = r.wseq.v;
  reply.stable = s->store->stable().v;
  reply.incarnation = s->incarnation;
  reply.size = r.size;
  reply.allocated = r.allocated;
  reply.changed = r.changed;
  reply.is_stable = r.is_stable || (r.wseq.v <= reply.stable);
  return rpc::ok(reply);
}
}  // namespace

Task<rpc::Reply> serve_write(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectWriteRequestT>(request.body);
  if (!m || (*m)->object() == nullptr) co_return s->refuse({Errc::kProtocol, "a malformed write request"}, peer);
  const wire::ObjectWriteRequest& q = **m;  // lies in request.body
  const ObjectId object = to_id(*q.object());
  if (auto admitted = s->admit(peer, q.cap(), object, wire::kCapWrite); !admitted) co_return s->refuse(admitted.error(), peer);
  auto args = write_args(q, object, std::move(request.payload));
  if (!args) co_return s->refuse(args.error(), peer);
  const SessionId session(q.cap()->session());
  // A resend is safe to repeat by its write sequence; a new write is known by its id.
  const SessionTable::Write write{q.wseq() != 0 ? 0 : q.write_id(), object, q.offset(), q.length()};

  auto start = s->sessions.begin(session, write);
  switch (start.verdict) {
    case SessionTable::Verdict::kRun: break;
    case SessionTable::Verdict::kDone: count(s->metrics.repeated_writes); co_return write_reply(s, start.result);
    case SessionTable::Verdict::kMismatch: co_return s->refuse({Errc::kProtocol, fmt::format("write id {} of session {} was used for another range", q.write_id(), session)}, peer);
    case SessionTable::Verdict::kCrowded: co_return s->refuse({Errc::kRetryLater, "too many repeats of one write wait"}, peer);
    case SessionTable::Verdict::kWait: {
      count(s->metrics.repeated_writes);
      auto first = co_await start.first->wait();
      if (!first) co_return s->refuse(first.error(), peer);
      co_return write_reply(s, *first);
    }
  }
  // The fence is looked at after the write was counted: a fence that is stored later waits for it.
  Result<WriteResult> done = Err(Errc::kNoSession, fmt::format("session {} was evicted; its write to object {} is refused", session, object));
  if (s->store->fenced(session)) {
    count(s->metrics.fenced_refusals);
    s->note(done.error(), peer);
  } else {
    auto permit = co_await take_permit(s, q.length());
    Result<void> ready = permit ? co_await s->enter_writer(peer, session) : Result<void>(std::unexpected(permit.error()));
    const bool entered = ready.has_value();
    if (ready && q.wseq() == 0) ready = s->gathered();
    if (ready) done = co_await run_write(s, std::move(*args));
    else done = std::unexpected(ready.error());
    if (entered) s->writers.leave(session, done ? done->wseq : WSeq(), s->runtime.clock().boot());
  }
  s->sessions.finish(session, write, done);
  if (!done) co_return s->refuse(done.error(), peer);
  count(s->metrics.writes);
  count(s->metrics.write_bytes, q.length());
  co_return write_reply(s, *done);
}

Task<rpc::Reply> serve_read(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectReadRequestT>(request.body);
  if (!m || (*m)->object() == nullptr) co_return s->refuse({Errc::kProtocol, "a malformed read request"}, peer);
  const wire::ObjectReadRequest& q = **m;
  const ObjectId object = to_id(*q.object());
  if (auto admitted = s->admit(peer, q.cap(), object, wire::kCapRead); !admitted) co_return s->refuse(admitted.error(), peer);
  if (auto good = check_range(object, {q.offset(), q.length()}); !good) co_return s->refuse(good.error(), peer);
  if (s->store->fenced(SessionId(q.cap()->session()))) {
    count(s->metrics.fenced_refusals);
    co_return s->refuse({Errc::kNoSession, fmt::format("session {} was evicted; its read of object {} is refused", q.cap()->session(), object)}, peer);
  }
  auto permit = co_await take_permit(s, q.length());
  if (!permit) co_return s->refuse(permit.error(), peer);
  auto done = co_await s->store->read(object, q.offset(), q.length());
  if (!done) co_return s->refuse(done.error(), peer);
  count(s->metrics.reads);
  count(s->metrics.read_bytes, done->payload.size());
  wire::ObjectReadReplyT reply;
  reply.size = done->size;
  reply.sums = std::move(done->sums);
  reply.stable = s->store->stable().v;
  reply.incarnation = s->incarnation;
  co_return rpc::ok(reply, std::move(done->payload));
}

Task<rpc::Reply> serve_commit(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectCommitRequestT>(request.body);
  if (!m) co_return s->refuse({Errc::kProtocol, "a malformed commit request"}, peer);
  // A number of an earlier incarnation can be above all given out since: everything so far covers it.
  const WSeq asked((*m)->wseq());
  auto stable = co_await s->store->commit(asked > s->store->status().last ? WSeq() : asked);
  if (!stable) co_return s->refuse(stable.error(), peer);
  count(s->metrics.commits);
  if (request.header.session != 0) s->writers.reported(SessionId(request.header.session));
  wire::ObjectCommitReplyT reply;
  reply.stable = stable->v;
  reply.incarnation = s->incarnation;
  co_return rpc::ok(reply);
}

Task<rpc::Reply> serve_seek(StatePtr s, rpc::PeerPtr peer, rpc::Request request) {
  auto m = view<wire::ObjectSeekRequestT>(request.body);
  if (!m || (*m)->object() == nullptr) co_return s->refuse({Errc::kProtocol, "a malformed seek request"}, peer);
  const wire::ObjectSeekRequest& q = **m;
  const ObjectId object = to_id(*q.object());
  if (auto admitted = s->admit(peer, q.cap(), object, wire::kCapRead); !admitted) co_return s->refuse(admitted.error(), peer);
  auto done = co_await s->store->seek(object, q.offset(), q.hole());
  if (!done) co_return s->refuse(done.error(), peer);
  count(s->metrics.seeks);
  wire::ObjectSeekReplyT reply;
  reply.found = done->found;
  reply.offset = done->offset;
  reply.size = done->size;
  co_return rpc::ok(reply);
}

}  // namespace nacre::storage
