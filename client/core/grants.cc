// SPDX-License-Identifier: Apache-2.0
// Layouts and capabilities: when what is known is good enough, when the metadata server is asked, and what its answers change.
// A capability past half its life is renewed in the background; one that has expired, or doesn't cover the range, before use.
#include "client/core/core.h"

namespace nacre::client {

void Core::adopt(Inode& inode, const schema::LayoutT* layout, const wire::CapabilityT* cap) {
  if (!layout) return;
  auto known = inode.grant(true);
  bool newer = known && layout->generation > known->layout.generation;
  inode.adopt(layout, cap, clock().boot(), mds.now());
  if (newer && retained_total.load(std::memory_order_relaxed) > 0)
    for (auto& t : targets()) t->drop(inode.ino, Generation(layout->generation));
}

void Core::adopt_if_open(Ino ino, const schema::LayoutT* layout, const wire::CapabilityT* cap) {
  if (auto inode = inodes.find(ino)) adopt(*inode, layout, cap);
}

Attr Core::shown(std::unique_ptr<wire::AttrT> attr) {
  if (!attr) return {};
  atimes.overlay(*attr);
  if (auto inode = inodes.find(Ino(attr->ino))) inode->saw(*attr, clock().boot());
  return std::move(*attr);
}

namespace {
bool good_enough(const GrantPtr& g, const GrantWanted& w, Nanos now) {
  if (!g || !g->valid(now) || g == w.refused) return false;
  if (w.refused_generation && g->layout.generation <= w.refused_generation) return false;
  return !w.write || g->covers(w.offset, w.length);
}

Task<void> renew_in_background(std::shared_ptr<Core> core, InodePtr inode, FileHandlePtr handle, GrantWanted wanted) {
  auto op = make_op(core, "LayoutGrant", Caller{});
  op->unlimited();
  op->limit(core->clock().boot() + 30 * kSecond);
  (void)co_await core->renew(inode, handle, wanted, op);
  inode->renewing = false;
}
}  // namespace

Task<Result<GrantPtr>> Core::granted(InodePtr inode, FileHandlePtr handle, GrantWanted wanted, OpPtr op) {
  if (handle->stale) co_return Err(Errc::kStale, "the file was open in a session that the metadata server has evicted");
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto g = inode->grant(wanted.write);
    Nanos now = clock().boot();
    if (!wanted.force && good_enough(g, wanted, now)) {
      if (g->ageing(now) && !inode->renewing.exchange(true)) {
        GrantWanted again = wanted;
        again.force = true;
        Loop::current()->spawn(renew_in_background(shared_from_this(), inode, handle, again));
      }
      co_return g;
    }
    CO_CHECK_OK(co_await renew(inode, handle, wanted, op));
    wanted.force = false;
    wanted.refused_generation = 0;  // it was told, and says what holds: the same one, if a migration of the data was given up
  }
  co_return Err(Errc::kIo, fmt::format("inode {}: the metadata server grants no right to [{}, +{})", inode->ino, wanted.offset, wanted.length));
}

Task<Result<void>> Core::renew(InodePtr inode, FileHandlePtr handle, GrantWanted wanted, OpPtr op) {
  AsyncMutex& refreshing = wanted.write ? inode->refreshing_write : inode->refreshing_read;
  CO_CHECK_OK(co_await refreshing.lock(op->deadline(), Op::cancel(op)));
  AsyncMutex::Guard guard(refreshing);
  // Somebody else may have asked while this one waited for its turn.
  if (!wanted.force && good_enough(inode->grant(wanted.write), wanted, clock().boot())) co_return Result<void>{};
  wire::LayoutRequestT request;
  request.ino = inode->ino.v;
  request.handle = handle->number();
  request.offset = wanted.offset;
  request.length = wanted.length;
  request.write = wanted.write;
  request.refused_generation = wanted.refused_generation;
  CO_TRY(wire::LayoutReplyT reply, co_await mds.call<rpc::Method::kLayoutGrant>(std::move(request), op, CallExtra{.session = handle->session()}));
  if (!reply.layout) co_return Err(Errc::kProtocol, "the metadata server granted rights without a layout");
  adopt(*inode, reply.layout.get(), reply.cap.get());
  co_return Result<void>{};
}

}  // namespace nacre::client
