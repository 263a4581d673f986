// SPDX-License-Identifier: Apache-2.0
// Open, create and close. A writer is on record (OpenRecord) before its answer goes out; the answer carries layout and capability.
#include <fcntl.h>

#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"
#include "metadata/service/hooks.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr uint32_t kFmodeExec = 040;  ///< __FMODE_EXEC: the kernel opens a program to run it
constexpr size_t kMaxCloseReports = 64'000;

uint8_t mode_of(uint32_t flags) { return static_cast<uint8_t>((flags_read(flags) ? wire::kCapRead : 0) | (flags_write(flags) ? wire::kCapWrite : 0)); }

uint32_t needs(uint32_t flags) {
  uint32_t mask = 0;
  if (flags_read(flags)) mask |= flags & kFmodeExec ? kMayExec : kMayRead;
  if (flags_write(flags) || (flags & O_TRUNC)) mask |= kMayWrite;
  return mask;
}

/// O_TRUNC. By metadata alone if nobody else has the file open, else by cutting its objects first. True if it is done.
Result<void> truncate_on_open(OpContext& ctx, schema::InodeRecordT& record) {
  const Ino ino(record.ino);
  if (ctx.hooks().moving(ino)) return ctx.park({Park::Kind::kMoved, {ino}, 0});
  if (!ctx.hooks().open_elsewhere(ino, ctx.identity().session)) {
    NACRE_CHECK_OK(drop_data(ctx, record));
  } else if (ctx.truncated(ino) != 0) {
    return ctx.park({Park::Kind::kTruncate, {ino}, 0});
  }
  record.size = 0;
  if (!is_root(ctx.cred())) NACRE_CHECK_OK(kill_privileges(ctx, record));
  touch_data(ctx, record);
  return {};
}

Result<wire::OpenReplyT> open_inode(Core& core, OpContext& ctx, Ino ino, uint32_t flags, uint64_t handle) {
  NACRE_CHECK_OK(ctx.lock({ino}));
  NACRE_TRY(auto record, ctx.settled_inode(ino));
  if (is_dir(record) && (flags_write(flags) || (flags & O_TRUNC))) return Err(Errc::kIsDir);
  if (!is_dir(record) && !is_file(record)) return Err(is_symlink(record) ? Errc::kLoop : Errc::kNxio);
  NACRE_CHECK_OK(check_access(ctx, record, needs(flags)));
  wire::OpenReplyT reply;
  const bool truncates = flags & O_TRUNC;
  if (truncates) {
    NACRE_CHECK_OK(truncate_on_open(ctx, record));
    reply.attr = std::make_unique<wire::AttrT>(plain_attr(ctx, record));  // what others write from now on comes after it
  } else {
    NACRE_TRY(auto attr, attr_of(ctx, record));
    reply.attr = std::make_unique<wire::AttrT>(std::move(attr));
  }
  NACRE_TRY(bool changed, register_open(core, ctx, record, handle, flags));
  if (changed || truncates) ctx.put_inode(record);
  if (is_file(record) && record.layout) {
    reply.layout = std::make_unique<schema::LayoutT>(*record.layout);
    reply.cap = core.rights(ctx.identity().session, record, mode_of(flags));
  }
  return reply;
}

/// A stored answer of before a restart: the open it speaks of must be known now too.
Task<Result<void>> reopen(Core& core, CallPtr call, Ino ino, uint32_t flags, uint64_t handle) {
  if (core.opens.flags(ino, call->session->id(), handle)) co_return Result<void>{};
  Identity identity = call->identity();
  identity.sequence = 0;
  OpContext ctx(*core.services, wire::CredT{}, identity);
  auto done = co_await core.driver->change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.inode(ino));
    NACRE_TRY(bool changed, register_open(core, c, record, handle, flags));
    if (changed) c.put_inode(record);
    if (flags_write(flags)) c.on_staged([&core, ino] { core.opens.report(ino, {}, /*unsure=*/true); });
    return true;
  });
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return Result<void>{};
}

Result<void> check_open(const Call& call, uint64_t handle, uint32_t flags) {
  if (handle == kLostHandle) return Err(Errc::kInval, "handles count from 1");
  if ((flags & O_ACCMODE) == O_ACCMODE) return Err(Errc::kInval);
  if ((flags_write(flags) || (flags & O_TRUNC)) && call.session->record().read_only) return Err(Errc::kRoFs);
  return {};
}

Task<Result<Bytes>> answer(Core& core, CallPtr call, Outcome<wire::OpenReplyT> outcome, uint32_t flags, uint64_t handle) {
  if (outcome.replayed && outcome.reply.attr) CO_CHECK_OK(co_await reopen(core, call, Ino(outcome.reply.attr->ino), flags, handle));
  core.capabilities->sign(*call->session, outcome.reply.cap);
  co_return encode(outcome.reply);
}
}  // namespace

Task<Result<Bytes>> open(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::OpenRequestT>(call->request.body));
  CO_CHECK_OK(check_open(*call, q.handle, q.flags));
  CO_TRY(auto cred, cred_of(*call, q.cred));
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(auto outcome, co_await core.driver->once<wire::OpenReplyT>(ctx, [&](OpContext& c) { return open_inode(core, c, Ino(q.ino), q.flags, q.handle); }));
  co_return co_await answer(core, call, std::move(outcome), q.flags, q.handle);
}

Task<Result<Bytes>> create(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::CreateRequestT>(call->request.body));
  CO_CHECK_OK(check_open(*call, q.handle, q.flags));
  CO_TRY(auto cred, cred_of(*call, q.cred));
  OpContext ctx(*core.services, std::move(cred), call->identity());
  auto op = [&](OpContext& c) -> Result<wire::OpenReplyT> {
    NACRE_TRY(auto made, ops::create(c, q));
    if (!made.created) {
      // Another client was faster. What isn't a plain file must be looked up anew: the kernel does so after ESTALE.
      auto existing = open_inode(core, c, Ino(made.attr->ino), q.flags, q.handle);
      if (!existing && (existing.error().code == Errc::kLoop || existing.error().code == Errc::kNxio)) return Err(Errc::kStale);
      return existing;
    }
    NACRE_TRY(auto record, c.inode(Ino(made.attr->ino)));
    made.cap = core.rights(c.identity().session, record, mode_of(q.flags));
    return made;
  };
  CO_TRY(auto outcome, co_await core.driver->once<wire::OpenReplyT>(ctx, op));
  co_return co_await answer(core, call, std::move(outcome), q.flags, q.handle);
}

Task<Result<Bytes>> close(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::CloseRequestT>(call->request.body));
  if (q.handle == kLostHandle) co_return Err(Errc::kInval, "handles count from 1");
  if (q.objects.size() > kMaxCloseReports) co_return Err(Errc::kTooBig, "a close with too many reports");
  CO_TRY(auto ticket, co_await core.driver->slots().enter(call->identity()));
  const Ino ino(q.ino);
  const SessionId session = call->session->id();
  if (ticket.stored) {
    // Closed before a restart, and reclaimed after it by a client that hadn't heard: it would stay open for ever.
    Identity again = call->identity();
    again.sequence = 0;
    if (core.opens.flags(ino, session, q.handle)) CO_CHECK_OK(co_await core.settler->close(again, ino, q.handle, {}));
    co_return std::move(ticket.stored->body);
  }
  auto flags = core.opens.flags(ino, session, q.handle);
  if (flags && flags_write(*flags)) core.opens.report(ino, q.objects, q.unsure);
  std::vector<LockWake> woken;
  if (q.flush_only && q.lock_owner) core.locks.release_owner(ino, {session, q.lock_owner}, woken);
  if (q.unlock_flock) core.locks.set({ino, {session, q.lock_owner}, true, kLockNone, 0, kLockEnd, 0, q.handle, 0}, false, woken);
  core.tell(std::move(woken));
  if (q.flush_only) co_return encode(wire::AttrReplyT{});
  Settler::Also also;
  if (q.atime != 0 && !call->session->record().read_only)
    also = [atime = q.atime](OpContext&, schema::InodeRecordT& record) -> Result<bool> {
      if (atime <= record.atime) return false;
      record.atime = atime;
      return true;
    };
  CO_TRY(auto reply, co_await core.settler->close(call->identity(), ino, q.handle, std::move(also)));
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
