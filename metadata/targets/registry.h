// SPDX-License-Identifier: Apache-2.0
// The storage targets: who they are (durable OstRecords), how they are (heartbeats), and the versioned cluster map made of
// both. A target is up while its heartbeats come. The map's version rises with each change of what clients act on, across
// restarts too. Any thread; commits only rows of its own (ost, map).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/config/cluster.h"
#include "metadata/store/journal.h"
#include "metadata/targets/layout_policy.h"

namespace nacre::mds {

inline constexpr uint32_t kMaxOstNumber = 65'535;
inline constexpr size_t kMaxOsts = 4096;
inline constexpr size_t kMaxOstText = 255;            ///< bytes of an address, host or pool name
inline constexpr size_t kMaxOstPools = 16;
inline constexpr uint64_t kMapVersionsPerStart = 1'000'000;  ///< more changes than that are never unsynced at a power loss
inline constexpr size_t kMaxFences = 100'000;

class Registry {
 public:
  struct Options {
    Nanos ost_timeout = 10 * kSecond;
    Nanos resend_term = 34 * kSecond;                 ///< a client that hasn't sent again for so long is evicted
    std::array<uint8_t, 16> cluster_id{};
    std::vector<std::string> mds;                     ///< addresses, for the map
    Clock* clock = &system_clock();
  };
  /// Errors: as View's and Journal's.
  static Result<std::unique_ptr<Registry>> open(Journal& journal, Options options);

  /// Would enroll() take it? Its errors. Asked before anything else that the target tells is believed.
  Result<void> may_enroll(const wire::OstRegisterRequestT& request) const;
  /// A target says that it is there. Durable before the reply. On a loop. Errors, with a sentence: kInval (malformed),
  /// kNotOurs (the number is another target's), kRetryLater (too many).
  Task<Result<wire::OstRegisterReplyT>> enroll(wire::OstRegisterRequestT request);
  wire::OstHeartbeatReplyT heartbeat(const wire::OstHeartbeatRequestT& request);
  /// Active, inactive, draining; durable before it returns. On a loop. Errors: kNoEnt, kInval.
  Task<Result<void>> set_state(OstId ost, uint8_t state);
  void tick();                                        ///< notes who has gone silent; call a few times per ost_timeout
  void all_heard(Nanos now);                           ///< this server stood still itself: heartbeats were not its targets' to send
  /// Requests of the session are refused by targets that register from now on, until then (server time).
  void fence(SessionId session, Nanos until);
  std::map<SessionId, Nanos> fences() const;

  /// Targets, of those on record and of `more`, that have not registered since this start (or ask_again) and are not inactive.
  std::vector<OstId> silent(const std::vector<OstId>& more) const;
  /// Each target registers once more with its next heartbeat, and hears of epochs and fences then.
  void ask_again();
  /// The map's version is higher by so much. Not synced.
  Result<void> raise_version(uint64_t by);

  wire::ClusterMapT map() const;
  uint64_t version() const { return version_.load(); }
  std::vector<Candidate> candidates() const;
  bool has_pool(const std::string& pool) const;
  bool has(OstId ost) const;
  size_t size() const;

  struct Endpoint {
    std::string address;
    uint8_t state = 0;
    bool up = false;
    uint64_t incarnation = 0;
    Nanos lost_until = 0;                             ///< server time: until then clients may send again what an unclean stop has lost
  };
  std::optional<Endpoint> endpoint(OstId ost) const;

  struct Space { uint64_t capacity = 0, free = 0, available = 0, objects = 0; };
  Space space() const;                                ///< sums over active and draining targets, as last heard

 private:
  struct Target {
    schema::OstRecordT record;
    bool heard = false;                               ///< since this start of the server
    bool up = false;
    Nanos last_heard = 0;                             ///< boot
    uint64_t used = 0, available = 0, objects = 0, incarnation = 0;
    Nanos lost_until = 0;                             ///< see Endpoint
  };
  Registry(Journal& journal, Options options) : journal_(journal), options_(options) {}
  Result<JournalNo> store(const schema::OstRecordT* record);
  bool presumed_up(const Target& t) const;
  void changed();
  wire::OstRegisterReplyT greeting(const Target& t) const;
  Result<void> check_identity(const wire::OstRegisterRequestT& request) const;

  Journal& journal_;
  Options options_;
  Nanos started_ = 0;
  std::atomic<uint64_t> version_{0};
  mutable std::mutex mutex_;
  std::map<OstId, Target> targets_;
  std::map<SessionId, Nanos> fences_;
};

}  // namespace nacre::mds
