// SPDX-License-Identifier: Apache-2.0
// After a restart of the server: what a session had open and locked. Read-only opens are known to the client alone, writers are
// on record; of locks it is on record who has any, and until these sessions are back nobody else gets new ones. An active
// session may reclaim an open whose answer it got across a restart.
#include <fcntl.h>

#include "metadata/ops/common.h"
#include "metadata/service/hooks.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr size_t kMaxReclaims = 10'000;  ///< opens and locks of one request

Task<Result<bool>> reclaim_open(Core& core, CallPtr call, wire::ReclaimOpenT open) {
  if (open.handle == kLostHandle) co_return Err(Errc::kInval, "handles count from 1");
  const Ino ino(open.ino);
  const uint32_t flags = open.flags & ~static_cast<uint32_t>(O_TRUNC | O_CREAT | O_EXCL);
  Identity identity = call->identity();
  identity.sequence = 0;
  OpContext ctx(*core.services, wire::CredT{}, identity);
  auto done = co_await core.driver->change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    if (core.opens.flags(ino, identity.session, open.handle)) return true;
    NACRE_TRY(auto record, c.inode(ino));
    if (flags_write(flags)) {
      // On record since before its answer went out. If it isn't, the end of the journal was lost with a power failure, and
      // perhaps with it where the data lies: this handle must not go on.
      NACRE_TRY(auto on_record, c.view().get(Family::kOpen, open_key(identity.session, ino)));
      if (!on_record) return Err(Errc::kStale);
    }
    NACRE_TRY(bool changed, register_open(core, c, record, open.handle, flags));
    if (changed) c.put_inode(record);
    // What it wrote before the restart was reported to nobody who remembers.
    if (flags_write(flags)) c.on_staged([&core, ino] { core.opens.report(ino, {}, /*unsure=*/true); });
    return true;
  });
  if (!done && done.error().code == Errc::kStale) co_return false;
  co_return done;
}

LockAsk ask_of(const Call& call, Ino ino, const wire::LockSpecT& spec) {
  return {ino, {call.session->id(), spec.owner}, spec.flock, spec.type, spec.flock ? 0 : spec.start, spec.flock ? kLockEnd : spec.end, spec.pid, spec.handle, 0};
}
}  // namespace

Task<Result<Bytes>> reclaim(Core& core, CallPtr call) {
  CO_TRY(auto request, decode<wire::ReclaimRequestT>(call->request.body));
  if (request.opens.size() + request.locks.size() > kMaxReclaims) co_return Err(Errc::kTooBig, fmt::format("a reclaim brings at most {} opens and locks", kMaxReclaims));
  for (const auto& l : request.locks)
    if (!l->lock || l->lock->type > kLockWrite || l->lock->start > l->lock->end || l->lock->end > kLockEnd) co_return Err(Errc::kInval, "a malformed lock");
  wire::ReclaimReplyT reply;
  for (const auto& open : request.opens) {
    CO_TRY(bool kept, co_await reclaim_open(core, call, *open));
    if (!kept) reply.refused.push_back(open->handle);
  }
  std::optional<LockNote> note;
  if (!request.locks.empty()) {
    CO_TRY(note, co_await core.sessions->note_locks(call->session));
  }
  std::vector<LockWake> woken;
  for (const auto& l : request.locks) {
    const LockAsk ask = ask_of(*call, Ino(l->ino), *l->lock);
    // A lock goes with its handle: of one that isn't open (it was refused above) nothing would ever release it.
    const bool open = core.opens.flags(ask.ino, ask.who.session, ask.handle).has_value();
    if (!open || core.locks.set(ask, false, woken) != LockOutcome::kGranted) reply.refused.push_back(ask.handle);
  }
  core.tell(std::move(woken));
  if (request.done && core.sessions->finish_reclaim(*call->session)) co_await core.settler->close_lost(call->session->id());
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
