// SPDX-License-Identifier: Apache-2.0
// A client of the protocol, as bare as can be: one connection, one request at a time, every number in the test's hand.
#pragma once
#include <fcntl.h>

#include <deque>

#include "metadata/ops/ops.h"
#include "tests/unit/metadata/service/world.h"

namespace nacre::mds::testing {

class TestClient {
 public:
  explicit TestClient(World& world, uint32_t uid = 0) : world_(world), uid_(uid) {
    uuid_.resize(16);
    system_rng().fill(std::as_writable_bytes(std::span(uuid_)));
  }
  ~TestClient() { disconnect(); }

  Result<void> connect(uint8_t role = wire::kRoleClient, std::optional<wire::Key> key = std::nullopt) {
    auto peer = world_.run(world_.connect(world_.mds(), role, [inbox = inbox_](rpc::PeerPtr, rpc::Request q) { return pushed(inbox, std::move(q)); }, key));
    if (!peer) return std::unexpected(std::move(peer).error());
    peer_ = *peer;
    return {};
  }
  void disconnect() {
    if (!peer_) return;
    auto end = [](rpc::PeerPtr p) -> Task<bool> {
      if (!p->closed()) p->close(Error(Errc::kDisconnected));
      co_return true;
    };
    world_.run(end(peer_));
    peer_.reset();
  }
  /// Connects and opens a new session, or resumes the one it had. False if a resumed one was lost.
  bool mount(bool read_only = false) {
    auto c = connect();
    EXPECT_TRUE(c) << c.error().message();
    if (!c) return false;
    wire::SessionOpenRequestT q;
    q.client_uuid = uuid_;
    q.host = "test";
    q.mount = "/mnt";
    q.read_only = read_only;
    q.resume = session;
    auto reply = call<rpc::Method::kSessionOpen>(q);
    EXPECT_TRUE(reply) << reply.error().message();
    if (!reply) return false;
    const bool kept = session == 0 || reply->resumed;
    session = reply->session;
    recovering = reply->recovering;
    return kept;
  }

  template <rpc::Method M>
  Result<typename rpc::MethodTraits<M>::Reply> call(typename rpc::MethodTraits<M>::Request q, uint16_t slot = 0, uint32_t sequence = 0) {
    if constexpr (requires { q.cred; }) {
      q.cred = std::make_unique<wire::CredT>();
      q.cred->uid = q.cred->gid = uid_;
      q.cred->groups_known = true;
    }
    rpc::CallOptions o;
    o.session = M == rpc::Method::kSessionOpen ? 0 : session;
    o.slot = slot;
    o.sequence = sequence;
    return world_.run(rpc::call<M>(peer_, std::move(q), o));
  }
  /// Exactly once, in slot 0; again while the server says that it can't yet.
  template <rpc::Method M>
  Result<typename rpc::MethodTraits<M>::Reply> once(typename rpc::MethodTraits<M>::Request q) {
    const uint32_t number = ++sequence;
    Result<typename rpc::MethodTraits<M>::Reply> reply = Err(Errc::kIo);
    (void)world_.eventually([&] {
      reply = call<M>(q, 0, number);
      return reply || (reply.error().code != Errc::kRecovering && reply.error().code != Errc::kRetryLater && reply.error().code != Errc::kOstDown);
    });
    return reply;
  }

  // --- shorthands
  Result<wire::OpenReplyT> create(std::string_view name, uint64_t handle, uint32_t flags = O_RDWR, Ino parent = kRootIno) {
    wire::CreateRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    q.mode = 0644;
    q.flags = flags | O_CREAT;
    q.handle = handle;
    return once<rpc::Method::kCreate>(q);
  }
  Result<wire::OpenReplyT> open(Ino ino, uint64_t handle, uint32_t flags) {
    wire::OpenRequestT q;
    q.ino = ino.v;
    q.handle = handle;
    q.flags = flags;
    return once<rpc::Method::kOpen>(q);
  }
  Result<wire::AttrReplyT> close(Ino ino, uint64_t handle, std::vector<wire::ObjectReport> reports = {}, bool unsure = false) {
    wire::CloseRequestT q;
    q.ino = ino.v;
    q.handle = handle;
    q.objects = std::move(reports);
    q.unsure = unsure;
    return once<rpc::Method::kClose>(q);
  }
  Result<wire::AttrT> stat(Ino ino) {
    wire::GetattrRequestT q;
    q.ino = ino.v;
    auto reply = call<rpc::Method::kGetattr>(q);
    if (!reply) return std::unexpected(std::move(reply).error());
    return *reply->attr;
  }
  Result<wire::AttrT> lookup(std::string_view name) {
    wire::LookupRequestT q;
    q.parent = kRootIno.v;
    q.name = as_bytes(name);
    auto reply = call<rpc::Method::kLookup>(q);
    if (!reply) return std::unexpected(std::move(reply).error());
    return *reply->attr;
  }
  Result<wire::SetattrReplyT> truncate(Ino ino, uint64_t size, uint64_t handle = 0) {
    wire::SetattrRequestT q;
    q.ino = ino.v;
    q.valid = wire::kSetSize;
    q.size = size;
    q.handle = handle;
    return once<rpc::Method::kSetattr>(q);
  }
  Result<wire::EmptyT> unlink(std::string_view name) {
    wire::UnlinkRequestT q;
    q.parent = kRootIno.v;
    q.name = as_bytes(name);
    return once<rpc::Method::kUnlink>(q);
  }
  Errc lock(Ino ino, uint64_t handle, uint64_t owner, uint8_t type, bool flock = false, bool wait = false, uint64_t waiter = 0, uint64_t start = 0, uint64_t end = kLockEnd) {
    wire::LockRequestT q;
    q.ino = ino.v;
    q.lock = std::make_unique<wire::LockSpecT>();
    q.lock->handle = handle;
    q.lock->owner = owner;
    q.lock->type = type;
    q.lock->flock = flock;
    q.lock->start = start;
    q.lock->end = end;
    q.wait = wait;
    q.waiter = waiter;
    auto reply = call<rpc::Method::kLock>(q, 1, ++lock_sequence);
    return reply ? Errc::kOk : reply.error().code;
  }

  /// The next grant of a waiting lock: its waiter, 0 after kPatience.
  uint64_t next_grant() { return next(&Inbox::grants); }
  uint64_t next_size() { return next(&Inbox::sizes); }
  size_t grants() {
    std::lock_guard guard(inbox_->mutex);
    return inbox_->grants.size();
  }

  uint64_t session = 0;
  bool recovering = false;
  uint32_t sequence = 0, lock_sequence = 0;
  const std::vector<uint8_t>& uuid() const { return uuid_; }
  rpc::PeerPtr peer() { return peer_; }

 private:
  /// What the server has told, in a place that a late message may still use.
  struct Inbox {
    std::mutex mutex;
    std::deque<uint64_t> grants, sizes;
  };
  uint64_t next(std::deque<uint64_t> Inbox::*queue) {
    uint64_t out = 0;
    (void)world_.eventually([&] {
      std::lock_guard guard(inbox_->mutex);
      auto& q = (*inbox_).*queue;
      if (q.empty()) return false;
      out = q.front();
      q.pop_front();
      return true;
    });
    return out;
  }
  static Task<rpc::Reply> pushed(std::shared_ptr<Inbox> inbox, rpc::Request q) {
    std::lock_guard guard(inbox->mutex);
    if (q.header.method == static_cast<uint16_t>(rpc::Method::kLockGranted)) inbox->grants.push_back(decode<wire::LockGrantedCallT>(q.body)->waiter);
    if (q.header.method == static_cast<uint16_t>(rpc::Method::kSizeGrew)) inbox->sizes.push_back(decode<wire::SizeGrewCallT>(q.body)->size);
    co_return rpc::ok(wire::EmptyT{});
  }
  World& world_;
  const uint32_t uid_;
  std::vector<uint8_t> uuid_;
  rpc::PeerPtr peer_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
};

}  // namespace nacre::mds::testing
