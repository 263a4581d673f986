// SPDX-License-Identifier: Apache-2.0
// Inodes without a name that are kept because somebody has them open, or may be about to open them by number. Destroys each
// when nobody has it open, its grace is over and the recovery window is closed. add() and closed() from any thread; run() once.
#pragma once
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "metadata/leases/open_table.h"
#include "metadata/leases/sessions.h"
#include "metadata/ops/driver.h"

namespace nacre::mds {

inline constexpr Nanos kOrphanPoll = 50 * kMillisecond;
inline constexpr size_t kOrphansAtOnce = 64;
/// How long an inode that a rename replaced can still be reached by number: a client that has just looked the name up opens it.
inline constexpr Nanos kReplacedGrace = 5 * kSecond;

class Orphans {
 public:
  Orphans(Runtime& runtime, Services& services, OpenTable& opens, Sessions& sessions) : runtime_(runtime), services_(services), opens_(opens), sessions_(sessions) {}

  Result<void> load();                        ///< the orphans on record; at start
  void add(Ino ino, Nanos not_before);        ///< boot time; 0 = as soon as nobody has it open
  void closed(Ino ino);                       ///< its last opener went; nothing if it is no orphan
  size_t size() const;
  Task<void> run(Driver& driver);             ///< until the runtime stops

 private:
  std::vector<Ino> due();
  Task<Result<void>> destroy(Driver& driver, Ino ino);
  Runtime& runtime_;
  Services& services_;
  OpenTable& opens_;
  Sessions& sessions_;
  mutable std::mutex mutex_;
  std::unordered_map<Ino, Nanos> entries_;    ///< when its grace ends
  std::set<std::pair<Nanos, Ino>> queue_;     ///< those worth a look, by time
};

}  // namespace nacre::mds
