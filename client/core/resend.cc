// SPDX-License-Identifier: Apache-2.0
// What happens when a storage target comes back as a new incarnation: all retained writes are sent again in the order of
// their write sequences, then committed; only then other requests go to it. A write whose object is gone is dropped; one
// that is refused for another reason is lost, and the file's next fsync or close says so.
#include <fcntl.h>

#include <algorithm>
#include <set>

#include "client/core/core.h"
#include "client/core/target.h"
#include "common/log/log.h"

namespace nacre::client {

struct Target::Resend {
  rpc::PeerPtr peer;
  OpPtr op;
  std::vector<FileHandlePtr> borrowed;  // opened for this alone
  std::set<InodePtr> inodes;            // of the writes
};

namespace {
Task<Result<FileHandlePtr>> borrow(std::shared_ptr<Core> core, InodePtr inode, OpPtr op) {
  wire::OpenRequestT open;
  open.ino = inode->ino.v;
  open.flags = O_WRONLY;
  open.handle = core->next_handle();
  auto handle = std::make_shared<FileHandle>(inode, inode->ino, open.handle, open.flags, core->mds.session(), false);
  CO_TRY(wire::OpenReplyT reply, co_await core->mds.call<rpc::Method::kOpen>(std::move(open), op));
  inode->adopt(reply.layout.get(), reply.cap.get(), core->clock().boot(), core->mds.now());
  inode->add(handle);
  co_return handle;
}

/// A close before the resend has settled the size from objects that lacked these bytes, and reports of what this client knew of
/// the objects no longer hold: once more, after it. Files that are gone need nothing.
Task<void> settle_again(std::shared_ptr<Core> core, std::set<InodePtr> inodes) {
  for (const InodePtr& inode : inodes) {
    auto op = make_op(core, "settle", Caller{});
    op->unlimited();
    auto handle = co_await borrow(core, inode, op);
    if (!handle) continue;
    inode->mark_unsure();
    co_await Core::close_later(core, *handle);
  }
}
}  // namespace

Task<Result<void>> Target::on_connected(rpc::PeerPtr peer) {
  uint64_t theirs = peer->info().incarnation;
  for (;;) {
    Signal turn;
    bool wait = false;
    {
      std::lock_guard lock(mutex_);
      if (incarnation_ == theirs && !resending_) break;
      if (resending_) {
        wait = true;
        resend_waiters_.push_back(turn);
      } else if (retained_.empty() && incarnation_ == 0) {
        incarnation_ = theirs;
        stable_ = 0;
        break;
      } else {
        resending_ = true;
      }
    }
    if (wait) {
      CO_CHECK_OK(co_await turn.wait());
      continue;
    }
    auto done = co_await resend(peer);
    std::vector<Signal> waiters;
    {
      std::lock_guard lock(mutex_);
      resending_ = false;
      if (done) {
        incarnation_ = theirs;
        stable_ = 0;
      }
      waiters.swap(resend_waiters_);
    }
    for (auto& w : waiters) w.set();
    if (!done) co_return done;
    break;
  }
  connected_.fetch_add(1);
  std::weak_ptr<Target> weak = weak_from_this();
  Loop* loop = &peer->loop();
  peer->on_close([weak, loop](Error) {
    auto t = weak.lock();
    if (!t) return;
    t->connected_.fetch_sub(1);
    if (t->core_.stopping() || !t->wrote_lately()) return;
    // Others may read what this client was told is written: bring it back, or say that there is nothing to bring, as soon as the
    // target is there again.
    loop->spawn(Core::reconnect(t->core_.weak_from_this(), t));
  });
  co_return Result<void>{};
}

std::vector<uint64_t> Target::retained_keys() const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> keys;
  keys.reserve(retained_.size());
  for (auto& [wseq, r] : retained_) keys.push_back(wseq);
  return keys;
}

bool Target::find(uint64_t wseq, Retained& out) const {
  std::lock_guard lock(mutex_);
  auto it = retained_.find(wseq);
  if (it == retained_.end()) return false;
  out = it->second;
  return true;
}

void Target::erase(uint64_t wseq) {
  std::lock_guard lock(mutex_);
  if (auto it = retained_.find(wseq); it != retained_.end()) erase_locked(it);
}

Task<Result<void>> Target::resend(rpc::PeerPtr peer) {
  auto keys = retained_keys();
  // Also with none: the target waits to hear so from everybody who wrote there before it serves what it has.
  if (!keys.empty()) log::info("{} has restarted: sending {} writes again that were not yet stable", name, keys.size());
  auto r = std::make_shared<Resend>();
  r->peer = peer;
  r->op = make_op(core_.shared_from_this(), "resend", Caller{});
  r->op->unlimited();
  Result<void> done;
  for (size_t i = 0; i < keys.size() && done; ++i) {
    if (Retained w; find(keys[i], w) && r->inodes.insert(w.inode).second) w.inode->mark_unsure();
    auto applied = co_await resend_one(r, keys[i]);
    if (!applied) done = std::unexpected(std::move(applied).error());
    else if (*applied) resent_.fetch_add(1, std::memory_order_relaxed);
  }
  if (done) {
    rpc::CallOptions options;
    options.session = core_.mds.session();
    auto committed = co_await rpc::call<rpc::Method::kObjectCommit>(peer, wire::ObjectCommitRequestT{}, options);
    if (!committed) done = std::unexpected(std::move(committed).error());
  }
  if (done)
    for (uint64_t wseq : keys) erase(wseq);
  if (done) Loop::current()->spawn(settle_again(core_.shared_from_this(), std::move(r->inodes)));
  for (auto& handle : r->borrowed) Loop::current()->spawn(Core::close_later(core_.shared_from_this(), handle));
  co_return done;
}

/// The right to write for a resend: the file may be closed here long since.
Task<Result<void>> Target::resend_rights(std::shared_ptr<Resend> r, InodePtr inode, Generation generation, bool force) {
  auto grant = inode->grant(true);
  if (!force && grant && grant->generation() == generation && grant->valid(core_.clock().boot())) co_return Result<void>{};
  if (auto handle = inode->any_writer(); handle && handle->session() == core_.mds.session())
    co_return co_await core_.renew(inode, handle, GrantWanted{.write = true, .length = 1, .force = true}, r->op);
  CO_TRY(auto handle, co_await borrow(core_.shared_from_this(), inode, r->op));
  r->borrowed.push_back(handle);
  co_return Result<void>{};
}

/// True if the target has the write now; false if it no longer matters. An error means: the connection is gone, start over.
Task<Result<bool>> Target::resend_one(std::shared_ptr<Resend> r, uint64_t wseq) {
  Retained write;
  if (!find(wseq, write)) co_return false;
  Error refused(Errc::kIo);
  for (int attempt = 0; attempt < 3; ++attempt) {
    auto rights = co_await resend_rights(r, write.inode, write.object.generation, attempt > 0);
    if (core_.stopping()) co_return Err(Errc::kShutdown);
    auto grant = write.inode->grant(true);
    if (!rights || !grant || grant->generation() != write.object.generation) {
      refused = rights ? Error(Errc::kStaleGeneration) : std::move(rights).error();
      break;
    }
    wire::ObjectWriteRequestT request;
    request.object = std::make_unique<schema::ObjectRef>(to_ref(write.object));
    request.offset = write.offset;
    request.length = static_cast<uint32_t>(write.data.size());
    request.sums = write.sums;
    request.cap = std::make_unique<wire::CapabilityT>(grant->cap);
    request.wseq = wseq;
    request.write_id = write.write_id;
    rpc::CallOptions options;
    options.session = core_.mds.session();
    options.payload = write.data;
    auto reply = co_await r->peer->call(rpc::Method::kObjectWrite, encode(request), options);
    if (reply) co_return true;
    refused = std::move(reply).error();
    if (is_transient(refused.code)) co_return std::unexpected(std::move(refused));
    if (refused.code != Errc::kCapExpired && refused.code != Errc::kStaleEpoch && refused.code != Errc::kCapInvalid) break;
  }
  erase(wseq);
  if (refused.code == Errc::kStaleGeneration || refused.code == Errc::kStale || refused.code == Errc::kNoEnt) co_return false;
  log::error("{}: {} bytes at {} of object {} are lost, the target refused them after its restart: {}", name, write.data.size(), write.offset, write.object, refused.message());
  write.inode->fail(Error(Errc::kIo, fmt::format("{} refused data after its restart: {}", name, refused.message())));
  co_return false;
}

}  // namespace nacre::client
