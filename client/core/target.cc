// SPDX-License-Identifier: Apache-2.0
#include "client/core/target.h"

#include "client/core/core.h"
#include "common/log/log.h"

namespace nacre::client {

Target::Target(Core& core, OstId number) : id(number), name(fmt::format("ost{}", number.v)), core_(core), loops_(core.runtime.size()) {}

void Target::update(const wire::OstEntryT& entry) {
  bool now_inactive = entry.state == wire::kOstInactive;
  bool was_inactive = inactive_.exchange(now_inactive);
  std::string address;
  {
    std::lock_guard lock(mutex_);
    if (!entry.address.empty()) address_ = entry.address;
    address = address_;
  }
  std::weak_ptr<Target> weak = weak_from_this();
  for (size_t i = 0; i < core_.runtime.size(); ++i) {
    core_.runtime.loop(i).post([weak, i, address, cut = now_inactive && !was_inactive] {
      auto t = weak.lock();
      if (!t || !t->loops_[i].channel) return;
      auto& mine = t->loops_[i];
      if (mine.address != address) {
        mine.address = address;
        mine.channel->set_addresses({address});
      }
      // What waits for an answer must hear that the target was given up.
      if (auto p = cut ? mine.channel->peek() : nullptr) p->close(Error(Errc::kDisconnected, "the storage target was marked inactive"));
    });
  }
}

rpc::Channel& Target::channel() {
  auto& mine = loops_[Loop::current()->index()];
  if (!mine.channel) {
    {
      std::lock_guard lock(mutex_);
      mine.address = address_;
    }
    rpc::Channel::Options options;
    options.addresses = {mine.address};
    options.connect = core_.connect_options();
    std::weak_ptr<Core> core = core_.weak_from_this();
    options.on_connected = [core, id = id](rpc::PeerPtr peer) { return Core::bind_target(core, id, std::move(peer)); };
    mine.channel = std::make_unique<rpc::Channel>(core_.transport, std::move(options), nullptr);
  }
  return *mine.channel;
}

void Target::close_on(Loop& loop) {
  if (auto& c = loops_[loop.index()].channel) c->close();
}

Task<Result<rpc::PeerPtr>> Target::peer(OpPtr op) {
  for (uint32_t attempt = 1;; ++attempt) {
    if (core_.stopping()) co_return Err(Errc::kShutdown, "the filesystem is being unmounted");
    if (inactive_.load(std::memory_order_relaxed)) co_return Err(Errc::kOstInactive, fmt::format("{} was marked inactive by the administrator; `nacre ost activate {}` brings it back", name, name));
    if (auto live = channel().peek()) co_return live;
    Nanos until = std::min(op->deadline(), core_.clock().boot() + kLookAround);
    auto got = co_await channel().get(until, Op::cancel(op));
    if (got) co_return std::move(*got);
    if (op->cancelled()) co_return std::unexpected(std::move(got).error());
    if (core_.clock().boot() >= op->deadline()) co_return Err(op->gave_up(name));
    if (got.error().code != Errc::kDeadline) CO_CHECK_OK(co_await pause_before_retry(op, name, attempt));
  }
}

bool Target::wrote_lately() const {
  const Nanos last = last_written_.load(std::memory_order_relaxed);
  return retained_bytes() > 0 || (last != 0 && core_.clock().boot() - last < kWroteLately);
}

Task<Result<rpc::Reply>> Target::call(rpc::Method method, Bytes body, Buffer payload, Buffer receive_into, OpPtr op) {
  Waits::Entry entry(core_.waits, op->name(), name, core_.clock().boot());
  if (method == rpc::Method::kObjectWrite) last_written_.store(core_.clock().boot(), std::memory_order_relaxed);
  for (uint32_t attempt = 1;; ++attempt) {
    CO_TRY(rpc::PeerPtr p, co_await peer(op));
    rpc::CallOptions options;
    options.deadline = op->deadline();
    options.cancel = Op::cancel(op);
    options.session = core_.mds.session();
    options.payload = payload;
    options.receive_into = receive_into;
    auto reply = co_await p->call(method, body, options);
    if (reply) co_return std::move(reply);
    if (op->cancelled()) co_return std::move(reply);
    if (core_.clock().boot() >= op->deadline()) co_return Err(op->gave_up(name));
    if (!is_transient(reply.error().code) && reply.error().code != Errc::kDeadline) co_return std::move(reply);
    core_.retries.fetch_add(1, std::memory_order_relaxed);
    CO_CHECK_OK(co_await pause_before_retry(op, name, attempt));
  }
}

Task<Result<void>> Target::commit(uint64_t wseq, OpPtr op) {
  {
    std::lock_guard lock(mutex_);
    if (wseq != 0 && incarnation_ != 0 && wseq <= stable_ && !resending_ && retained_.upper_bound(wseq) == retained_.begin()) co_return Result<void>{};
  }
  wire::ObjectCommitRequestT request;
  request.wseq = wseq;
  CO_TRY(rpc::Reply raw, co_await call(rpc::Method::kObjectCommit, encode(request), {}, {}, op));
  CO_TRY(auto reply, decode<wire::ObjectCommitReplyT>(raw.body));
  note(reply.stable, reply.incarnation);
  co_return Result<void>{};
}

bool Target::retain(uint64_t wseq, uint64_t incarnation, Retained write) {
  std::lock_guard lock(mutex_);
  if (incarnation != incarnation_) return false;
  if (wseq <= stable_) return true;
  uint64_t cost = write.cost();
  auto [it, fresh] = retained_.try_emplace(wseq, std::move(write));
  if (!fresh) return true;
  last_retained_ = core_.clock().boot();
  retained_bytes_.fetch_add(cost, std::memory_order_relaxed);
  core_.retained_total.fetch_add(cost, std::memory_order_relaxed);
  return true;
}

void Target::erase_locked(std::map<uint64_t, Retained>::iterator it) {
  uint64_t cost = it->second.cost();
  retained_bytes_.fetch_sub(cost, std::memory_order_relaxed);
  core_.retained_total.fetch_sub(cost, std::memory_order_relaxed);
  retained_.erase(it);
}

void Target::note(uint64_t stable, uint64_t incarnation) {
  std::vector<Retained> done;  // freed outside the lock
  std::lock_guard lock(mutex_);
  // While the target's restart isn't dealt with, its word about old write sequences doesn't count.
  if (incarnation != incarnation_ || resending_ || stable <= stable_) return;
  stable_ = stable;
  while (!retained_.empty() && retained_.begin()->first <= stable) {
    done.push_back(retained_.begin()->second);
    erase_locked(retained_.begin());
  }
}

Task<void> Target::relieve(OpPtr op) {
  Signal turn;
  bool mine = false;
  {
    std::lock_guard lock(mutex_);
    if (!relieving_) mine = relieving_ = true;
    else relief_waiters_.push_back(turn);
  }
  if (!mine) {
    (void)co_await turn.wait(op->deadline(), Op::cancel(op));
    co_return;
  }
  (void)co_await commit(0, op);
  std::vector<Signal> waiters;
  {
    std::lock_guard lock(mutex_);
    relieving_ = false;
    waiters.swap(relief_waiters_);
  }
  for (auto& w : waiters) w.set();
}

Task<void> Target::reconnect(std::shared_ptr<Core> core) {
  auto self = shared_from_this();
  auto op = make_op(core, "reconnect", Caller{});
  op->unlimited();
  while (!core->stopping() && wrote_lately() && !inactive_.load()) {
    if (co_await peer(op)) co_return;
    if (!co_await pause_before_retry(op, name, 10)) co_return;
  }
}

Task<void> Target::tidy(OpPtr op, Nanos idle) {
  uint64_t newest = 0;
  {
    std::lock_guard lock(mutex_);
    if (retained_.empty() || core_.clock().boot() - last_retained_ < idle) co_return;
    newest = retained_.rbegin()->first;
  }
  (void)co_await commit(newest, op);
}

void Target::drop(Ino ino, Generation older_than) {
  std::vector<Retained> freed;  // outside the lock
  std::lock_guard lock(mutex_);
  for (auto it = retained_.begin(); it != retained_.end();) {
    auto here = it++;
    if (here->second.object.ino != ino || here->second.object.generation >= older_than) continue;
    freed.push_back(here->second);
    erase_locked(here);
  }
}

uint64_t Target::drop_all() {
  std::map<uint64_t, Retained> gone;
  {
    std::lock_guard lock(mutex_);
    gone.swap(retained_);
  }
  for (auto& [wseq, r] : gone) {
    retained_bytes_.fetch_sub(r.cost(), std::memory_order_relaxed);
    core_.retained_total.fetch_sub(r.cost(), std::memory_order_relaxed);
    r.inode->fail(Error(Errc::kIo, fmt::format("the session was evicted before {} bytes of {} were stable", r.data.size(), r.object)));
  }
  return gone.size();
}

bool Target::retains(Ino ino) const {
  std::lock_guard lock(mutex_);
  for (auto& [wseq, r] : retained_)
    if (r.object.ino == ino) return true;
  return false;
}

ServerStatus Target::status() const {
  ServerStatus s;
  s.name = name;
  s.connected = connected_.load() > 0;
  s.retained = retained_bytes();
  s.checksum_errors = checksum_errors_.load();
  s.resent = resent_.load();
  std::lock_guard lock(mutex_);
  s.address = address_;
  s.incarnation = incarnation_;
  return s;
}

}  // namespace nacre::client
