// SPDX-License-Identifier: Apache-2.0
// Stand-ins for nacre-mds and nacre-oss: just enough of the protocol to test the client core against, over real sockets on
// loopback, with faults on demand. They are not the servers: no permissions, no durability, one flat directory of files.
// Invariant they check for the tests: a (session, slot, sequence) is executed once. State is under one mutex each.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/base/units.h"
#include "common/layout/layout.h"
#include "common/rpc/peer.h"
#include "common/rpc/server.h"
#include "common/runtime/loop.h"
#include "common/wire/bits.h"

namespace nacre::test {

inline constexpr std::array<uint8_t, 16> kClusterId{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
inline constexpr wire::Key kKey{42};

/// What happens to the next request of a method instead of being simply served.
struct Fault {
  enum Kind { kDropBefore, kDropAfter, kError, kHold, kHoldReply, kCorrupt } kind = kError;
  Errc error = Errc::kOk;
};

/// A server on loopback that can be stopped and started again on its port.
class StandIn {
 public:
  StandIn(Runtime& runtime, rpc::Transport& transport) : runtime_(runtime), transport_(transport) {}
  virtual ~StandIn() { stop(); }
  /// An address of a network in memory, for a runtime that is driven by hand; before start().
  void use_address(std::string address) { address_ = std::move(address), by_hand_ = true; }
  /// Sees each reply before it leaves. Set before start().
  std::function<void(const rpc::PeerPtr&, const rpc::Request&, rpc::Reply&)> alter;
  void start();                               ///< with a new incarnation
  void stop();                                ///< connections break; what is in progress goes on unheard
  std::string address() const { return address_; }
  uint64_t incarnation() const { return incarnation_; }
  void inject(rpc::Method method, Fault fault, int times = 1);
  void release_held();                        ///< requests under kHold go on
  int served(rpc::Method method) const;       ///< executed, repeats of the same sequence not counted
  int received(rpc::Method method) const;     ///< requests that arrived
  void wait_received(rpc::Method method, int count) const;  ///< until that many have arrived (10 s, else the test fails)

 protected:
  virtual rpc::Reply serve(rpc::PeerPtr peer, const rpc::Request& request) = 0;  ///< mutex_ held
  virtual void restarted() {}                 ///< mutex_ held
  void corrupt_payloads(rpc::Reply& reply);
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::map<uint16_t, int> served_, received_;

 private:
  static Task<rpc::Reply> handle(StandIn* self, rpc::PeerPtr peer, rpc::Request request);
  std::optional<Fault> next_fault(uint16_t method);
  Runtime& runtime_;
  rpc::Transport& transport_;
  std::unique_ptr<rpc::Server> server_;
  std::string address_ = "127.0.0.1:0";
  bool by_hand_ = false;
  uint64_t incarnation_ = 0;
  std::map<uint16_t, std::deque<Fault>> faults_;
  std::vector<Signal> held_;
};

class StandInOst : public StandIn {
 public:
  StandInOst(Runtime& runtime, rpc::Transport& transport, uint32_t id) : StandIn(runtime, transport), id(id) {}
  const uint32_t id;
  void lose_power();                          ///< unstable data is gone; then stop() and start()
  void make_stable();
  void set_always_stable(bool on) { always_stable_ = on; }
  bool exists(const ObjectId& object) const;
  uint64_t size(const ObjectId& object) const;
  void seal(const ObjectId& object, bool on); ///< takes no new writes
  void destroy(const ObjectId& object);       ///< leaves a tombstone: later requests get kStaleGeneration
  void truncate(const ObjectId& object, uint64_t size);
  int resent() const { return resent_; }
  uint64_t max_object = GiB;                  ///< objects lie in memory; data beyond is refused with kFBig
  Nanos expired_before = 0;                   ///< capabilities that end before this (MDS time) are refused

 protected:
  rpc::Reply serve(rpc::PeerPtr peer, const rpc::Request& request) override;
  void restarted() override { dedup_.clear(); }

 private:
  struct Object {
    std::vector<std::byte> bytes;
    std::map<uint64_t, uint64_t> block_wseq;
    std::set<uint64_t> data_blocks;           // what was written, for seeks
  };
  rpc::Reply write(const rpc::Request& request);
  rpc::Reply read(const rpc::Request& request);
  rpc::Reply seek(const rpc::Request& request);
  std::map<ObjectId, Object> objects_, stable_objects_;
  std::set<ObjectId> tombstones_, sealed_;
  std::map<std::pair<uint64_t, uint64_t>, Bytes> dedup_;
  uint64_t wseq_ = 0, stable_ = 0;
  bool always_stable_ = false;
  int resent_ = 0;
};

class StandInMds : public StandIn {
 public:
  StandInMds(Runtime& runtime, rpc::Transport& transport, std::vector<StandInOst*> osts) : StandIn(runtime, transport), osts_(std::move(osts)) {}
  uint32_t stripe_size = 64 * KiB;
  uint16_t stripe_count = 3;
  uint64_t small = 0;                         ///< > 0: a first component of one stripe up to here, the rest instantiated later
  uint32_t slots = 16;
  Nanos capability_life = 60 * kSecond;
  bool ask_for_groups = false;                ///< Getattr of cred.uid 1000 wants groups
  bool other_session_open = false;            ///< truncation to 0 keeps the generation

  void evict();                               ///< all sessions
  void set_ost_state(uint32_t ost, uint8_t state);
  void truncate_elsewhere(Ino ino);           ///< another client's O_TRUNC: generation + 1
  std::vector<uint8_t> migrate_steps() const; ///< in the order in which they were asked for
  void lose_migrations();                     ///< as a restart, a cut or the time limit do
  void hold_lock(Ino ino, uint64_t owner);    ///< somebody else's exclusive flock
  void drop_lock(Ino ino, uint64_t owner);    ///< and its end: waiters are granted by push
  std::vector<uint64_t> reclaimed_handles() const;
  size_t reclaimed_locks() const;
  std::vector<wire::CloseRequestT> closes() const;
  std::map<uint64_t, Nanos> reported_atimes() const;
  std::vector<uint32_t> last_groups() const;
  size_t open_handles() const;
  size_t waiters() const;
  Ino find(const std::string& name) const;

 protected:
  rpc::Reply serve(rpc::PeerPtr peer, const rpc::Request& request) override;
  void restarted() override;

 private:
  struct File {
    wire::AttrT attr;
    schema::LayoutT layout;
  };
  struct Session { bool reclaimed = true; std::map<uint16_t, std::pair<uint32_t, rpc::Reply>> replies; };
  struct Waiting { uint64_t session, waiter; wire::LockSpecT spec; rpc::PeerPtr peer; };
  rpc::Reply execute(rpc::PeerPtr peer, const rpc::Request& request);
  rpc::Reply session_open(rpc::PeerPtr peer, const rpc::Request& request);
  rpc::Reply lock(rpc::PeerPtr peer, const rpc::Request& request);
  rpc::Reply set_attributes(const rpc::Request& request);
  rpc::Reply migrate(const rpc::Request& request);
  void seal(const File& f, bool on);
  rpc::Reply open_reply(File& file, uint64_t handle, uint32_t flags, bool created, uint64_t session);
  File* file(uint64_t ino);
  std::unique_ptr<wire::AttrT> glimpse(File& f) const;
  std::unique_ptr<wire::CapabilityT> capability(const File& f, uint64_t session, uint8_t mode) const;
  std::unique_ptr<wire::ClusterMapT> map() const;
  void instantiate(File& f, uint64_t offset, uint64_t length);
  void new_generation(File& f);
  bool lock_free(uint64_t ino, const wire::LockSpecT& spec) const;

  std::vector<StandInOst*> osts_;
  std::map<std::string, uint64_t> names_;
  std::map<uint64_t, File> files_;
  std::map<uint64_t, Session> sessions_;
  std::map<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, uint32_t>> handles_;  // (session, number) → inode, flags
  std::map<uint32_t, uint8_t> ost_states_;
  std::map<uint64_t, std::vector<wire::LockSpecT>> locks_;
  std::map<uint64_t, std::vector<Waiting>> waiting_;
  struct Token { uint64_t token, session, handle; };
  std::map<uint64_t, Token> append_tokens_;   // by inode
  struct Move { schema::LayoutT target; bool sealed = false; };
  std::map<uint64_t, Move> moves_;            // by inode
  std::map<uint64_t, uint32_t> shadows_;
  std::vector<uint8_t> migrate_steps_;
  std::vector<uint64_t> reclaimed_;
  size_t reclaimed_locks_ = 0;
  std::vector<wire::CloseRequestT> closes_;
  std::map<uint64_t, Nanos> atimes_;
  std::vector<uint32_t> groups_;
  uint64_t next_ino_ = 100, next_session_ = 1, next_token_ = 1, map_version_ = 1;
};

}  // namespace nacre::test
