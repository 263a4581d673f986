// SPDX-License-Identifier: Apache-2.0
// The start of a server whose database was restored from a backup. Between the backup and now numbers were given out of which it
// knows nothing: inodes, commands, sessions, epochs, layout generations. Nothing is served, and no background work begins, until
// every storage target that isn't inactive has said which are the highest it has seen; then all ranges begin above them with a
// margin (numbers that no target ever saw), sessions of the backup are evicted, and those of which it knows nothing are fenced
// on the targets, so that capabilities they still hold are worth nothing.
// What the targets hold for files of after the backup is neither used nor destroyed: `nacre fsck` is for that.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "metadata/background/evictor.h"
#include "metadata/leases/sessions.h"
#include "metadata/store/journal.h"
#include "metadata/targets/registry.h"

namespace nacre::mds {

inline constexpr Nanos kRestorePoll = 200 * kMillisecond;
inline constexpr Nanos kRestoreReport = 30 * kSecond;       ///< how often the log says what is waited for
/// Numbers that were given out but never got to a target: of files without data, of commands on their way, of sessions that
/// did no I/O. Each range has 2^40 and more, so this costs nothing.
inline constexpr uint64_t kRestoreMargin = uint64_t{1} << 24;
inline constexpr uint64_t kRestoreSessionMargin = uint64_t{1} << 16;
inline constexpr uint64_t kMaxUnknownSessions = 50'000;      ///< fenced one by one; of more the capabilities are waited out
inline constexpr uint64_t kSessionsUnderWay = 1024;          ///< had a number, but no record yet when the backup was made
inline constexpr size_t kEvictionsAtOnce = 32;

class Restoration {
 public:
  struct Parts {
    Runtime& runtime;
    Journal& journal;
    RangeAllocator &inos, &session_ids, &commands;
    Sessions& sessions;
    Registry& registry;
    Evictor& evictor;
    Nanos capability_term = 60 * kSecond;
    std::vector<OstId> configured;        ///< targets of the cluster file: one that was added after the backup is not on record
  };
  explicit Restoration(Parts parts) : p_(std::move(parts)), active_(p_.journal.store().restored()) {}

  bool active() const { return active_.load(); }
  /// What a target says as it registers; before it counts as up. Any loop.
  void seen(const wire::OstRegisterRequestT& request);
  /// A target of the cluster file that is not on record is not waited for any more. False if it isn't such a one. Any loop.
  bool give_up(OstId ost);
  /// "ost1 has not said …", for status and log; empty when nothing is waited for.
  std::vector<std::string> waiting_for() const;
  /// Returns when the server may serve: at once if the database isn't a restored one. Errors: the journal's, kShutdown.
  Task<Result<void>> run();

 private:
  struct Highest { uint64_t ino = 0, command = 0, session = 0, wseq = 0; uint32_t epoch = 0; };
  Task<Result<void>> wait_for_targets();
  Task<Result<void>> raise(const Highest& high);
  Task<Result<void>> fence_old(uint64_t last);
  Task<Result<void>> drop_sessions();
  Parts p_;
  std::atomic<bool> active_;
  std::atomic<const char*> doing_{"waiting for storage targets"};
  std::vector<OstId> silent() const;
  mutable std::mutex mutex_;              ///< high_, p_.configured
  Highest high_;
};

}  // namespace nacre::mds
