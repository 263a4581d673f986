// SPDX-License-Identifier: Apache-2.0
// O_APPEND: the token of an inode, the size as the objects have it at that moment, and a layout that covers what will be
// written. When the append is done, the other sessions that append hear of the new size before it is answered: the kernel of
// each node computes the file position of its next append from the size it knows.
#include <algorithm>

#include "common/base/units.h"
#include "metadata/ops/common.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr uint64_t kMaxAppend = 1 * GiB;  ///< bytes of one write(2), less than the kernel's limit of 2 GiB

/// Size now, and objects for what follows. The token is held, so nobody else appends; a plain write elsewhere may.
Result<wire::AppendBeginReplyT> place(Core& core, OpContext& c, const wire::AppendBeginRequestT& q, bool may_change) {
  const Ino ino(q.ino);
  if (may_change) NACRE_CHECK_OK(c.lock({ino}));
  NACRE_TRY(auto record, c.settled_inode(ino));
  if (!is_file(record) || !record.layout) return Err(Errc::kInval, "only plain files are appended to");
  if (c.hooks().moving(ino)) return c.park({Park::Kind::kMoved, {ino}, 0});
  NACRE_TRY(auto attr, attr_of(c, record));
  wire::AppendBeginReplyT reply;
  reply.size = attr.size;
  const uint64_t length = std::clamp<uint64_t>(q.length, 1, kMaxAppend);
  if (reply.size < kMaxFileSize) {
    const uint64_t fits = std::min(length, kMaxFileSize - reply.size);
    if (!layout::is_instantiated(*record.layout, reply.size, fits)) {
      if (!may_change) return Err(Errc::kAgain);
      NACRE_CHECK_OK(instantiate(*record.layout, reply.size, fits, [&core](const schema::ComponentT& x) { return core.choose(x); }));
      c.put_inode(record);
    }
  }
  reply.layout = std::make_unique<schema::LayoutT>(*record.layout);
  reply.cap = core.rights(c.identity().session, record, core.opens.rights(ino, c.identity().session));
  return reply;
}
}  // namespace

Task<Result<Bytes>> append_begin(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::AppendBeginRequestT>(call->request.body));
  const Ino ino(q.ino);
  const SessionId session = call->session->id();
  const auto flags = core.opens.flags(ino, session, q.handle);
  if (!flags) co_return Err(Errc::kStale, "the handle is not open");
  if (!flags_write(*flags)) co_return Err(Errc::kBadF);
  // A writer that has not come back may hold a token of before the restart.
  if (core.sessions->recovering() && core.opens.has_lost(ino)) co_return Err(Errc::kRecovering, "a writer of the file has not come back since the server restarted");
  AppendTokens::Ask ask{ino, session, q.handle, nullptr};
  if (const auto* context = std::any_cast<PeerContext>(&call->peer->context)) ask.connected = context->connected;
  Result<uint64_t> token = Err(Errc::kRetryLater);
  {
    Watched wait(core.waits, core.clock.boot(), [&core, ino] {
      const auto holder = core.appends.holder(ino);
      return fmt::format("the append of inode {} by {}", ino.v, core.name_of(holder.value_or(SessionId(0))));
    });
    token = co_await core.appends.acquire(ask, call->deadline, call->cancel());
  }
  if (!token && token.error().code == Errc::kDeadline) co_return Err(Errc::kRetryLater, "another append of this file is still under way");
  if (!token) co_return std::unexpected(std::move(token).error());

  OpContext look(*core.services, wire::CredT{}, call->identity());
  auto reply = co_await core.driver->read(look, [&](OpContext& c) { return place(core, c, q, false); });
  if (!reply && reply.error().code == Errc::kAgain) {
    OpContext ctx(*core.services, wire::CredT{}, call->identity());
    reply = co_await core.driver->change(ctx, [&](OpContext& c) { return place(core, c, q, true); });
  }
  if (!reply) {
    core.appends.release(ino, session, *token);
    co_return std::unexpected(std::move(reply).error());
  }
  reply->token = *token;
  core.capabilities->sign(*call->session, reply->cap);
  co_return encode(*reply);
}

Task<Result<Bytes>> append_end(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::AppendEndRequestT>(call->request.body));
  const Ino ino(q.ino);
  const SessionId session = call->session->id();
  if (core.appends.release(ino, session, q.token) && q.size != 0) {
    wire::SizeGrewCallT grew;
    grew.ino = q.ino;
    grew.size = q.size;
    std::vector<Task<bool>> told;
    auto tell = [](SessionPtr s, wire::SizeGrewCallT what) -> Task<bool> {
      co_await s->push_size(std::move(what));
      co_return true;
    };
    for (SessionId other : core.opens.appenders(ino, session))
      if (SessionPtr s = core.sessions->find(other)) told.push_back(tell(s, grew));
    if (!told.empty()) (void)co_await when_all(std::move(told));
  }
  co_return encode(wire::EmptyT{});
}

}  // namespace nacre::mds::methods
