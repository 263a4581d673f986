// SPDX-License-Identifier: Apache-2.0
// Setattr's part that is not a namespace operation (rights after a truncation), and fallocate. The server drives the objects
// (intents.h); the client's part ends with its request.
#include <fcntl.h>
#include <linux/falloc.h>

#include "common/base/units.h"
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/ops/permission.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {

Task<Result<Bytes>> setattr(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::SetattrRequestT>(call->request.body));
  CO_TRY(auto cred, cred_of(*call, q.cred));
  const Ino ino(q.ino);
  const SessionId session = call->session->id();
  OpContext ctx(*core.services, std::move(cred), call->identity());
  auto op = [&](OpContext& c) -> Result<wire::SetattrReplyT> {
    NACRE_TRY(auto reply, ops::setattr(c, q));
    if (!(q.valid & wire::kSetSize)) return reply;
    const uint8_t rights = core.opens.rights(ino, session);
    if (rights == 0) return reply;
    NACRE_TRY(auto record, c.inode(ino));
    if (rights & wire::kCapWrite && record.layout) {  // who has just emptied a file is about to write it
      auto made = instantiate(*record.layout, 0, 0, [&core](const schema::ComponentT& x) { return core.choose(x); });
      if (!made && made.error().code != Errc::kNoSpc) return std::unexpected(std::move(made).error());
      if (made && *made) c.put_inode(record);
      reply.layout = std::make_unique<schema::LayoutT>(*record.layout);
    }
    reply.cap = core.rights(session, record, rights);
    return reply;
  };
  CO_TRY(auto outcome, co_await core.driver->once<wire::SetattrReplyT>(ctx, op));
  core.capabilities->sign(*call->session, outcome.reply.cap);
  co_return encode(outcome.reply);
}

// ---------------------------------------------------------------- fallocate

namespace {
constexpr uint32_t kKnownModes = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;

Result<void> check(const wire::FallocateRequestT& q) {
  if (q.mode & ~kKnownModes) return Err(Errc::kOpNotSupp);
  if ((q.mode & FALLOC_FL_PUNCH_HOLE) && (!(q.mode & FALLOC_FL_KEEP_SIZE) || (q.mode & FALLOC_FL_ZERO_RANGE))) return Err(Errc::kOpNotSupp);
  if (q.length == 0) return Err(Errc::kInval);
  if (q.offset > kMaxFileSize || q.length > kMaxFileSize - q.offset) return Err(Errc::kFBig);
  return {};
}

/// Makes the range's components exist; answers the record afterwards.
Task<Result<schema::InodeRecordT>> prepare(Core& core, CallPtr call, const wire::FallocateRequestT& q) {
  OpContext ctx(*core.services, wire::CredT{});
  co_return co_await core.driver->change(ctx, [&](OpContext& c) -> Result<schema::InodeRecordT> {
    NACRE_CHECK_OK(c.lock({Ino(q.ino)}));
    NACRE_TRY(auto record, c.settled_inode(Ino(q.ino)));
    if (!is_file(record) || !record.layout) return Err(is_dir(record) ? Errc::kIsDir : Errc::kOpNotSupp);
    if (c.hooks().moving(Ino(q.ino))) return c.park({Park::Kind::kMoved, {Ino(q.ino)}, 0});
    if (q.mode & FALLOC_FL_PUNCH_HOLE) return record;
    NACRE_TRY(bool changed, instantiate(*record.layout, q.offset, q.length, [&core](const schema::ComponentT& x) { return core.choose(x); }));
    if (changed) c.put_inode(record);
    return record;
  });
}

Task<Result<void>> allocate(Core& core, CallPtr call, const wire::FallocateRequestT& q, const schema::InodeRecordT& record) {
  std::vector<TargetCommand> commands;
  for (const auto& o : layout::used_objects(*record.layout, Ino(record.ino))) {
    const auto range = layout::object_range(*record.layout->components[o.object.component], o.object.stripe, q.offset, q.length);
    if (range.end <= range.begin) continue;
    const auto number = core.commands->take();
    if (!number) co_return Err(Errc::kRetryLater, "the numbers of commands to storage targets are being refilled");
    commands.push_back({o.ost, o.object, wire::kCmdAllocate, range.begin, range.end - range.begin, CmdSeq(*number), FilesetId(record.fileset)});
  }
  auto done = co_await core.objects->command(std::move(commands), /*sync=*/true, core.clock.boot() + kOstAnswer, call->cancel());
  core.opens.objects_changed(Ino(record.ino));
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return Result<void>{};
}

Task<Result<void>> change_objects(Core& core, CallPtr call, const wire::FallocateRequestT& q, const schema::InodeRecordT& record) {
  const uint64_t end = q.mode & FALLOC_FL_KEEP_SIZE ? 0 : q.offset + q.length;
  if (!(q.mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))) co_return co_await allocate(core, call, q, record);
  Intents::Change change;
  change.kind = q.mode & FALLOC_FL_PUNCH_HOLE ? kIntentPunch : kIntentZero;
  change.offset = q.offset;
  change.length = q.length;
  change.new_size = end;
  co_return co_await core.intents->carry_out(*core.driver, Ino(record.ino), change);
}
}  // namespace

Task<Result<Bytes>> fallocate(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::FallocateRequestT>(call->request.body));
  CO_CHECK_OK(check(q));
  CO_TRY(auto ticket, co_await core.driver->slots().enter(call->identity()));
  if (ticket.stored) {
    CO_TRY(auto reply, decode<wire::SetattrReplyT>(ticket.stored->body));
    core.capabilities->sign(*call->session, reply.cap);
    co_return encode(reply);
  }
  const Ino ino(q.ino);
  const SessionId session = call->session->id();
  const auto flags = core.opens.flags(ino, session, q.handle);
  if (!flags) co_return Err(Errc::kStale, "the handle is not open");
  if (!flags_write(*flags)) co_return Err(Errc::kBadF);
  CO_TRY(auto prepared, co_await prepare(core, call, q));
  CO_CHECK_OK(co_await change_objects(core, call, q, prepared));
  CO_TRY(auto cred, cred_of(*call, q.cred));
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(auto reply, co_await core.driver->change(ctx, [&](OpContext& c) -> Result<wire::SetattrReplyT> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.settled_inode(ino));
    wire::SetattrReplyT out;
    if (is_root(c.cred())) drop_file_capability(c, record);
    else NACRE_CHECK_OK(kill_privileges(c, record));
    if (!(q.mode & FALLOC_FL_KEEP_SIZE)) record.size = std::max(record.size, q.offset + q.length);
    touch_data(c, record);
    c.put_inode(record);
    out.attr = std::make_unique<wire::AttrT>(plain_attr(c, record));
    out.layout = std::make_unique<schema::LayoutT>(*record.layout);
    out.cap = core.rights(session, record, core.opens.rights(ino, session));
    core.driver->store_reply(c, encode(out));
    return out;
  }));
  core.capabilities->sign(*call->session, reply.cap);
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
