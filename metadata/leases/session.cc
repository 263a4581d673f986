// SPDX-License-Identifier: Apache-2.0
// See session.h. Calls to the client run on the loop of the connection that they use.
#include "metadata/leases/session.h"

#include <algorithm>

namespace nacre::mds {

Session::Session(schema::SessionRecordT record, State state, Nanos now, bool from_restart)
    : record_(std::move(record)), state_(state), holds_window_(from_restart), last_seen_(now) {
  lock_mark_.stored = record_.locks;
}

void Session::gave_capability(Nanos expires) {
  Nanos old = last_capability_.load(std::memory_order_relaxed);
  while (old < expires && !last_capability_.compare_exchange_weak(old, expires)) {}
}

// ---------------------------------------------------------------- connections

bool Session::attach(rpc::PeerPtr peer) {
  std::deque<wire::LockGrantedCallT> pending;
  {
    std::lock_guard guard(mutex_);
    if (std::find(peers_.begin(), peers_.end(), peer) != peers_.end()) return true;
    if (peers_.size() >= kMaxSessionPeers) return false;
    peers_.push_back(peer);
    pending.swap(pending_);
  }
  auto alive = std::make_shared<std::atomic<bool>>(true);
  peer->context = PeerContext{shared_from_this(), alive};
  peer->on_close([self = weak_from_this(), raw = peer.get(), alive](Error) {
    alive->store(false);
    if (auto s = self.lock()) s->detach(raw);
  });
  for (auto& call : pending) push_granted(std::move(call));
  return true;
}

void Session::detach(const rpc::Peer* peer) {
  rpc::PeerPtr last;  // released after the mutex
  std::lock_guard guard(mutex_);
  auto it = std::find_if(peers_.begin(), peers_.end(), [&](const auto& p) { return p.get() == peer; });
  if (it == peers_.end()) return;
  last = std::move(*it);
  peers_.erase(it);
}

bool Session::connected() const {
  std::lock_guard guard(mutex_);
  return !peers_.empty();
}

std::string Session::address() const {
  std::lock_guard guard(mutex_);
  return peers_.empty() ? std::string() : peers_.front()->info().address;
}

rpc::PeerPtr Session::any_peer() const {
  std::lock_guard guard(mutex_);
  return peers_.empty() ? nullptr : peers_.back();
}

// ---------------------------------------------------------------- calls to the client

void Session::push_granted(wire::LockGrantedCallT call) {
  rpc::PeerPtr peer;
  {
    std::lock_guard guard(mutex_);
    if (peers_.empty()) {
      // More can't be waited for; a client that comes back asks for its locks anew.
      if (pending_.size() < kMaxPendingPushes) pending_.push_back(std::move(call));
      return;
    }
    peer = peers_.back();
  }
  peer->loop().spawn(send_granted(shared_from_this(), peer, std::move(call)));
}

Task<void> Session::send_granted(SessionPtr self, rpc::PeerPtr peer, wire::LockGrantedCallT call) {
  rpc::CallOptions options;
  options.deadline = peer->loop().clock().boot() + kPushTimeout;
  auto told = co_await rpc::call<rpc::Method::kLockGranted>(peer, call, std::move(options));
  if (told || self->state() == State::kEvicting) co_return;
  if (told.error().code == Errc::kShutdown) co_return;
  if (!peer->closed()) peer->close(Error(Errc::kDeadline, "the client did not answer a lock grant"));
  self->detach(peer.get());
  self->push_granted(std::move(call));
}

Task<void> Session::push_size(wire::SizeGrewCallT call) {
  rpc::PeerPtr peer = any_peer();
  if (!peer) co_return;
  Signal done;
  auto tell = [](rpc::PeerPtr to, wire::SizeGrewCallT what, Signal finished) -> Task<void> {
    rpc::CallOptions options;
    options.deadline = to->loop().clock().boot() + kPushTimeout;
    (void)co_await rpc::call<rpc::Method::kSizeGrew>(to, std::move(what), std::move(options));
    finished.set();
  };
  peer->loop().spawn(tell(peer, std::move(call), done));
  (void)co_await done.wait(Loop::current()->clock().boot() + kPushTimeout);
}

// ---------------------------------------------------------------- what it says of itself

void Session::waiting(uint32_t ms, std::string_view text) {
  std::lock_guard guard(mutex_);
  oldest_wait_ms_ = ms;
  oldest_wait_ = text.substr(0, kMaxWaitText);
}

std::pair<uint32_t, std::string> Session::oldest_wait() const {
  std::lock_guard guard(mutex_);
  return {oldest_wait_ms_, oldest_wait_};
}

}  // namespace nacre::mds
