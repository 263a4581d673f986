// SPDX-License-Identifier: Apache-2.0
// Layouts: rights and components for a range (LayoutGrant), what a user asked for (LayoutSet), what is there (LayoutGet).
#include <algorithm>

#include "common/layout/layout.h"
#include "metadata/ops/common.h"
#include "metadata/ops/permission.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {

namespace {
Result<wire::LayoutReplyT> granted(Core& core, OpContext& c, const schema::InodeRecordT& record, uint8_t rights) {
  wire::LayoutReplyT reply;
  reply.layout = std::make_unique<schema::LayoutT>(*record.layout);
  reply.cap = core.rights(c.identity().session, record, rights);
  reply.attr = std::make_unique<wire::AttrT>(plain_attr(c, record));
  return reply;
}

Result<wire::LayoutReplyT> grant(Core& core, OpContext& c, const wire::LayoutRequestT& q, bool may_change) {
  const Ino ino(q.ino);
  if (may_change) NACRE_CHECK_OK(c.lock({ino}));
  NACRE_TRY(auto record, c.settled_inode(ino));
  if (!is_file(record) || !record.layout) return Err(Errc::kInval, "only plain files have objects");
  const uint8_t rights = core.opens.rights(ino, c.identity().session);
  if (q.write && c.hooks().moving(ino)) return c.park({Park::Kind::kMoved, {ino}, 0});
  if (q.write && !layout::is_instantiated(*record.layout, q.offset, std::max<uint64_t>(q.length, 1))) {
    if (!may_change) return Err(Errc::kAgain);
    NACRE_CHECK_OK(instantiate(*record.layout, q.offset, std::max<uint64_t>(q.length, 1), [&core](const schema::ComponentT& x) { return core.choose(x); }));
    c.put_inode(record);
  }
  return granted(core, c, record, rights);
}
}  // namespace

Task<Result<Bytes>> layout_grant(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LayoutRequestT>(call->request.body));
  const auto flags = core.opens.flags(Ino(q.ino), call->session->id(), q.handle);
  if (!flags) co_return Err(Errc::kStale, "the handle is not open");
  if (q.write && !flags_write(*flags)) co_return Err(Errc::kBadF);
  if (q.write && call->session->record().read_only) co_return Err(Errc::kRoFs);
  OpContext look(*core.services, wire::CredT{}, call->identity());
  auto reply = co_await core.driver->read(look, [&](OpContext& c) { return grant(core, c, q, false); });
  if (!reply && reply.error().code == Errc::kAgain) {
    OpContext ctx(*core.services, wire::CredT{}, call->identity());
    reply = co_await core.driver->change(ctx, [&](OpContext& c) { return grant(core, c, q, true); });
    // A barrier: were the choice of these targets lost with the power, data would lie where nobody looks for it.
    if (reply) CO_CHECK_OK(co_await core.journal->sync_to(core.journal->committed()));
  }
  if (!reply) co_return std::unexpected(std::move(reply).error());
  // A target refuses the generation that is the file's: the objects are still sealed by a migration that was given up.
  if (q.write && q.refused_generation != 0 && reply->layout->generation == q.refused_generation) CO_CHECK_OK(co_await core.migrations->unseal(*core.driver, Ino(q.ino)));
  core.capabilities->sign(*call->session, reply->cap);
  co_return encode(*reply);
}

// ---------------------------------------------------------------- what users ask for

/// A layout as a user may ask for it: well-formed, nothing in it that only the server decides.
Result<void> check_wish(Core& core, const schema::LayoutT& layout) {
  NACRE_CHECK_OK(layout::validate(layout));
  for (const auto& c : layout.components) {
    if (c->instantiated || !c->osts.empty() || c->stripes_used != 0) return Err(Errc::kInval, "a layout can be asked for, its objects are chosen by the server");
    if (!c->pool.empty() && !core.registry->has_pool(c->pool)) return Err(Errc::kInval, fmt::format("there is no pool '{}': see 'nacre ost list'", c->pool));
    if (c->first_ost >= 0 && !core.registry->has(OstId(static_cast<uint32_t>(c->first_ost)))) return Err(Errc::kInval, fmt::format("there is no ost{}: see 'nacre ost list'", c->first_ost));
  }
  return {};
}

namespace {
Result<wire::EmptyT> set_layout(Core& core, OpContext& c, const wire::LayoutSetRequestT& q) {
  const Ino ino(q.ino);
  NACRE_CHECK_OK(c.lock({ino}));
  NACRE_TRY(auto record, c.settled_inode(ino));
  NACRE_CHECK_OK(check_owner(c, record));
  if (is_dir(record)) {
    if (q.layout->components.empty()) record.layout.reset();
    else record.layout = std::make_unique<schema::LayoutT>(*q.layout);
    c.on_commit([&core] { core.dir_layouts.forget(); });
  } else if (is_file(record)) {
    if (q.layout->components.empty()) return Err(Errc::kInval, "a file needs a layout with at least one component");
    // The command that asks has the file open itself; a writer of its own session meets the new generation and asks again.
    NACRE_TRY(auto attr, attr_of(c, record));
    if (attr.size != 0 || attr.allocated != 0 || c.hooks().open_elsewhere(ino, c.identity().session))
      return Err(Errc::kExist, "the file has data or is open elsewhere: a layout can be set on a new, empty file; copy the data to one");
    if (c.hooks().moving(ino)) return c.park({Park::Kind::kMoved, {ino}, 0});
    NACRE_CHECK_OK(drop_data(c, record));  // objects that were allocated and never written
    const uint32_t dropped = record.layout ? record.layout->generation : 1;
    record.layout = std::make_unique<schema::LayoutT>(*q.layout);
    record.layout->generation = dropped;
  } else {
    return Err(Errc::kInval, "only directories and plain files have layouts");
  }
  touch(c, record);
  c.put_inode(record);
  c.log(kLogSetattr, ino, Ino(record.parent), as_text(record.name));
  return wire::EmptyT{};
}
}  // namespace

Task<Result<Bytes>> layout_set(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LayoutSetRequestT>(call->request.body));
  if (!q.layout) q.layout = std::make_unique<schema::LayoutT>();
  CO_CHECK_OK(check_wish(core, *q.layout));
  q.layout->generation = 1;
  CO_TRY(auto cred, cred_of(*call, q.cred));
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(auto outcome, co_await core.driver->once<wire::EmptyT>(ctx, [&](OpContext& c) { return set_layout(core, c, q); }));
  co_return encode(outcome.reply);
}

Task<Result<Bytes>> layout_get(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::LayoutGetRequestT>(call->request.body));
  OpContext ctx(*core.services, wire::CredT{}, call->identity());
  CO_TRY(auto reply, co_await core.driver->read(ctx, [&](OpContext& c) -> Result<wire::LayoutGetReplyT> {
    NACRE_TRY(auto record, c.settled_inode(Ino(q.ino)));
    wire::LayoutGetReplyT out;
    NACRE_TRY(auto attr, attr_of(c, record));
    out.attr = std::make_unique<wire::AttrT>(std::move(attr));
    if (is_dir(record)) {
      NACRE_TRY(auto found, core.dir_layouts.find(c, record));
      out.layout = std::make_unique<schema::LayoutT>(*found.layout);
      out.inherited = !found.own;
    } else if (record.layout) {
      out.layout = std::make_unique<schema::LayoutT>(*record.layout);
    }
    return out;
  }));
  reply.map = std::make_unique<wire::ClusterMapT>(core.registry->map());
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
