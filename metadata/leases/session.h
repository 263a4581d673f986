// SPDX-License-Identifier: Apache-2.0
// One mounted client. Its record is durable (sessions.h); here is what memory knows: its connections, when it was heard last,
// whether it still has to reclaim after a restart, and a gate through which each of its requests passes, so that an eviction can
// wait until none is running. Any thread, unless said otherwise.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/rpc/peer.h"
#include "common/runtime/sync.h"
#include "common/schema/codec.h"

namespace nacre::mds {

inline constexpr size_t kMaxSessionPeers = 1024;     ///< connections of one session: one per event loop of the client
inline constexpr size_t kMaxPendingPushes = 4096;    ///< grants that wait for a connection: as many as waiters (kMaxWaitersPerSession)
inline constexpr size_t kMaxWaitText = 256;          ///< bytes of what a client says it is waiting for
inline constexpr Nanos kPushTimeout = 5 * kSecond;

class Session;
using SessionPtr = std::shared_ptr<Session>;

/// What Peer::context holds once a connection belongs to a session.
struct PeerContext {
  SessionPtr session;
  std::shared_ptr<std::atomic<bool>> connected;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  enum class State : uint8_t {
    kActive,
    kUnreclaimed,  ///< known from before a restart; must reclaim first
    kEvicting,     ///< refused from now on; its state is being taken away
  };
  /// from_restart: found on record by a new start.
  Session(schema::SessionRecordT record, State state, Nanos now, bool from_restart = false);

  SessionId id() const { return SessionId(record_.id); }
  const schema::SessionRecordT& record() const { return record_; }  ///< as stored when the session was made or loaded
  State state() const { return state_.load(); }
  bool move_state(State from, State to) { return state_.compare_exchange_strong(from, to); }
  /// Whether it may have locks, as its stored record says. The mutex orders what is written of the record.
  struct LockMark {
    std::mutex mutex;
    bool stored = false;
    JournalNo number;        ///< of the commit that stored it
    Nanos asked = 0;         ///< boot time of the last lock request
    size_t under_way = 0;    ///< lock requests that have seen the mark and are not through
  };
  LockMark& lock_mark() { return lock_mark_; }
  /// True once: the first time this is asked of a session that a restart found. Until then it holds the recovery window open.
  bool let_window_go() { return holds_window_.exchange(false); }
  bool holds_window() const { return holds_window_.load(); }

  void seen(Nanos boot) { last_seen_.store(boot, std::memory_order_relaxed); }
  Nanos last_seen() const { return last_seen_.load(std::memory_order_relaxed); }
  /// The latest expiry of a capability given to it (server time); later no write of it can be accepted.
  void gave_capability(Nanos expires);
  Nanos last_capability() const { return last_capability_.load(std::memory_order_relaxed); }

  /// Each request runs between enter() and leave(). False once close_gate() was called.
  bool enter() { return gate_.enter(); }
  void leave() { gate_.leave(); }
  Task<void> close_gate() { return gate_.close(); }
  CancelPtr cancel() const { return cancel_; }  ///< fired by the eviction: ends what its requests wait for

  /// Joins a connection; on its loop. False if there are too many.
  bool attach(rpc::PeerPtr peer);
  bool connected() const;
  std::string address() const;                  ///< of one connection, empty if there is none

  /// Tells the client that a blocking lock request has ended. Kept for the next connection if there is none.
  void push_granted(wire::LockGrantedCallT call);
  /// Tells it that a file grew; returns when it has answered or can't. On a loop.
  Task<void> push_size(wire::SizeGrewCallT call);

  void waiting(uint32_t ms, std::string_view text);
  std::pair<uint32_t, std::string> oldest_wait() const;

 private:
  static Task<void> send_granted(SessionPtr self, rpc::PeerPtr peer, wire::LockGrantedCallT call);
  rpc::PeerPtr any_peer() const;
  void detach(const rpc::Peer* peer);

  const schema::SessionRecordT record_;
  std::atomic<State> state_;
  std::atomic<bool> holds_window_;
  std::atomic<Nanos> last_seen_;
  std::atomic<Nanos> last_capability_{0};
  LockMark lock_mark_;
  Gate gate_;
  CancelPtr cancel_ = std::make_shared<Cancel>();
  mutable std::mutex mutex_;
  std::vector<rpc::PeerPtr> peers_;
  std::deque<wire::LockGrantedCallT> pending_;
  uint32_t oldest_wait_ms_ = 0;
  std::string oldest_wait_;
};

}  // namespace nacre::mds
