// SPDX-License-Identifier: Apache-2.0
// flock and POSIX locks. A request that has to wait is answered kWouldBlock at once; the grant follows as a call to the client.
// Of it only is on disk which sessions have any (Sessions::note_locks): these bring them back after a restart, and nobody gets
// new ones before all have.
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {

Result<LockAsk> ask_of(const Call& call, uint64_t ino, const std::unique_ptr<wire::LockSpecT>& spec, uint64_t waiter) {
  if (!spec || spec->type > kLockNone) return Err(Errc::kInval, "a malformed lock");
  LockAsk ask{Ino(ino), {call.session->id(), spec->owner}, spec->flock, spec->type, spec->start, spec->end, spec->pid, spec->handle, waiter};
  if (spec->flock) {
    ask.start = 0;
    ask.end = kLockEnd;
  }
  if (ask.start > ask.end || ask.end > kLockEnd) return Err(Errc::kInval, "a malformed range of a lock");
  return ask;
}

Result<void> check_handle(Core& core, const LockAsk& ask) {
  const auto flags = core.opens.flags(ask.ino, ask.who.session, ask.handle);
  if (!flags) return Err(Errc::kStale, "the handle is not open");
  if (ask.flock) return {};
  if (ask.type == kLockWrite && !flags_write(*flags)) return Err(Errc::kBadF);
  if (ask.type == kLockRead && !flags_read(*flags)) return Err(Errc::kBadF);
  return {};
}
}  // namespace

Task<Result<Bytes>> lock(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LockRequestT>(call->request.body));
  CO_TRY(LockAsk ask, ask_of(*call, q.ino, q.lock, q.waiter));
  CO_TRY(auto ticket, co_await core.driver->slots().enter(call->identity()));
  std::optional<LockNote> note;
  if (ask.type != kLockNone) {
    CO_TRY(note, co_await core.sessions->note_locks(call->session));
    CO_CHECK_OK(check_handle(core, ask));
    if (core.sessions->recovering_locks()) co_return Err(Errc::kRecovering, "locks of before the restart are still being given back");
  }
  std::vector<LockWake> woken;
  const LockOutcome outcome = core.locks.set(ask, q.wait, woken);
  core.tell(std::move(woken));
  switch (outcome) {
    case LockOutcome::kGranted: co_return encode(wire::EmptyT{});
    case LockOutcome::kBusy: co_return Err(Errc::kAgain);
    case LockOutcome::kQueued: co_return Err(Errc::kWouldBlock);
    case LockOutcome::kCancelled: co_return Err(Errc::kIntr);
    case LockOutcome::kDeadlock: co_return Err(Errc::kDeadlk);
    case LockOutcome::kFull: break;
  }
  co_return Err(Errc::kNoLck, "the server holds its most locks");
}

Task<Result<Bytes>> lock_test(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LockTestRequestT>(call->request.body));
  CO_TRY(LockAsk ask, ask_of(*call, q.ino, q.lock, 0));
  wire::LockTestReplyT reply;
  reply.lock = std::make_unique<wire::LockSpecT>(*q.lock);
  reply.lock->type = kLockNone;
  if (core.sessions->recovering_locks()) co_return Err(Errc::kRecovering, "locks of before the restart are still being given back");
  if (auto found = core.locks.test(ask)) {
    reply.lock->type = found->type;
    reply.lock->start = found->start;
    reply.lock->end = found->end;
    reply.lock->pid = found->pid;
    reply.lock->owner = found->who.owner;
  }
  co_return encode(reply);
}

Task<Result<Bytes>> lock_cancel(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LockCancelRequestT>(call->request.body));
  wire::LockCancelReplyT reply;
  reply.was_granted = core.locks.cancel(Ino(q.ino), call->session->id(), q.waiter);
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
