// SPDX-License-Identifier: Apache-2.0
// See settle.h.
#include "metadata/background/settle.h"

#include "common/log/log.h"
#include "metadata/ops/common.h"

namespace nacre::mds {

/// Makes the record true. False if it was. kAgain: the objects must be asked.
Result<bool> Settler::settle(const schema::InodeRecordT& stored, schema::InodeRecordT& record, const Seen& seen) const {
  const Ino ino(stored.ino);
  if (auto told = p_.opens.from_reports(stored)) {
    if (told->size == 0 && told->allocated == 0 && told->changed == 0) return false;  // nothing was written
    return apply_glimpse(record, *told);
  }
  // A glimpse from before a truncation says what was there before it; one to nothing has given the file other objects.
  if (seen.glimpse && seen.cuts == p_.opens.cuts(ino) && seen.glimpse->is_of(stored)) return apply_glimpse(record, *seen.glimpse);
  return Err(Errc::kAgain);
}

Result<wire::AttrReplyT> Settler::close_op(OpContext& ctx, Ino ino, uint64_t handle, const Seen& seen, const Also& also) {
  NACRE_CHECK_OK(ctx.lock({ino}));
  const SessionId session = ctx.identity().session;
  const OpenTable::Closing closing = p_.opens.peek(ino, session, handle);
  NACRE_TRY(auto stored, ctx.view().inode(ino));
  wire::AttrReplyT reply;
  if (stored) {
    schema::InodeRecordT record = *stored;
    bool changed = false;
    if (also) {
      NACRE_TRY(changed, also(ctx, record));
    }
    if (closing.last_writer) {
      NACRE_TRY(bool settled, settle(*stored, record, seen));
      if (settled) ++record.change;
      changed = changed || settled;
    }
    if (changed) {
      ctx.put_inode(record);
      ctx.batch().account(&*stored, &record);
    }
    reply.attr = std::make_unique<wire::AttrT>(plain_attr(ctx, record));
  }
  if (closing.session_done) ctx.batch().del(Family::kOpen, open_key(session, ino));
  if (closing.known) {
    ctx.on_staged([this, ino, session, handle] { p_.opens.remove(ino, session, handle); });
    ctx.on_commit([this, ino, session, handle, closing] {
      if (closing.last_writer) p_.opens.settled(ino);
      after_close(ino, session, handle, closing.last_open);
    });
  }
  if (!ctx.batch().empty()) p_.driver.store_reply(ctx, encode(reply));
  return reply;
}

void Settler::after_close(Ino ino, SessionId session, uint64_t handle, bool last_open) {
  std::vector<LockWake> woken;
  p_.locks.release_handle(ino, session, handle, woken);
  if (last_open) p_.locks.release_inode(ino, session, woken);
  p_.appends.release_handle(ino, session, handle);
  if (!woken.empty()) p_.wake(std::move(woken));
  if (last_open) p_.orphans.closed(ino);
}

Task<Result<wire::AttrReplyT>> Settler::close(Identity identity, Ino ino, uint64_t handle, Also also) {
  Seen seen;
  for (int turn = 0; turn < kMaxSettleTurns; ++turn) {
    OpContext ctx(p_.services, wire::CredT{}, identity);
    auto done = co_await p_.driver.change(ctx, [&](OpContext& c) { return close_op(c, ino, handle, seen, also); });
    if (done || done.error().code != Errc::kAgain) co_return done;
    seen.cuts = p_.opens.cuts(ino);
    auto asked = co_await p_.objects.glimpse({ino}, p_.runtime.clock().boot() + kSettleAnswer);
    if (asked) {
      seen.glimpse = (*asked)[0];
      continue;
    }
    if (asked.error().code != Errc::kOstDown) co_return std::unexpected(std::move(asked).error());
    co_return co_await give_up(identity, ino, handle);
  }
  co_return co_await give_up(identity, ino, handle);
}

/// The handle goes, the writer stays as a lost one: its OpenRecord too.
Task<Result<wire::AttrReplyT>> Settler::give_up(Identity identity, Ino ino, uint64_t handle) {
  const SessionId session = identity.session;
  if (handle == kLostHandle) co_return Err(Errc::kOstDown, "the file's size can't be settled before its storage targets answer");
  OpContext ctx(p_.services, wire::CredT{}, identity);
  auto done = co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<wire::AttrReplyT> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.view().inode(ino));
    wire::AttrReplyT reply;
    if (record) reply.attr = std::make_unique<wire::AttrT>(plain_attr(c, *record));
    c.on_staged([this, ino, session, handle] {
      p_.opens.add_lost(ino, session);
      p_.opens.remove(ino, session, handle);
    });
    c.on_commit([this, ino, session, handle] { after_close(ino, session, handle, false); });
    return reply;
  });
  if (done) settle_later(ino, session);
  co_return done;
}

// ---------------------------------------------------------------- whole sessions

Task<void> Settler::close_session(SessionId session) {
  Identity identity;
  identity.session = session;
  for (Ino ino : p_.opens.inodes_of(session)) {
    p_.opens.report(ino, {}, /*unsure=*/true);
    for (uint64_t handle : p_.opens.handles(ino, session)) {
      auto done = co_await close(identity, ino, handle);
      if (done) continue;
      if (done.error().code == Errc::kShutdown) co_return;
      if (handle == kLostHandle) settle_later(ino, session);
      else log::warn("handle {} of session {} on inode {} can't be closed: {}", handle, session.v, ino.v, done.error().message());
    }
  }
  std::vector<LockWake> woken;
  p_.locks.release_session(session, woken);
  p_.appends.release_session(session);
  if (!woken.empty()) p_.wake(std::move(woken));
}

Task<void> Settler::close_lost(SessionId session) {
  for (Ino ino : p_.opens.inodes_of(session))
    if (p_.opens.flags(ino, session, kLostHandle)) settle_later(ino, session);
  co_return;
}

void Settler::settle_later(Ino ino, SessionId session) {
  std::lock_guard guard(mutex_);
  later_.emplace_back(ino, session);
}

Task<void> Settler::run() {
  Nanos pause = 0;
  while (!p_.runtime.stopping()) {
    std::deque<std::pair<Ino, SessionId>> now;
    {
      std::lock_guard guard(mutex_);
      now.swap(later_);
    }
    bool stuck = false;
    for (auto [ino, session] : now) {
      Identity identity;
      identity.session = session;
      auto done = co_await close(identity, ino, kLostHandle);
      if (done) continue;
      if (done.error().code == Errc::kShutdown) co_return;
      stuck = true;
      settle_later(ino, session);
    }
    pause = stuck ? kSettleRetry : kOrphanPoll;
    if (auto slept = co_await sleep_for(pause); !slept) co_return;
  }
}

}  // namespace nacre::mds
