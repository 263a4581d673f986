// SPDX-License-Identifier: Apache-2.0
// Changes of files that objects must take part in: partial truncation, punching, zeroing (P1.15). The intent lies synced in the
// inode record before any object hears of it; it is cleared with the new size in one commit when all objects have made their
// part stable. An intent is driven by whoever needs the inode next, one at a time per inode, and by load() after a restart.
// Invariant: commands of one intent carry its number, so repeating them does nothing. Any loop.
#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "metadata/leases/open_table.h"
#include "metadata/ops/driver.h"
#include "metadata/targets/objects.h"

namespace nacre::mds {

inline constexpr uint8_t kIntentTruncate = 1, kIntentPunch = 2, kIntentZero = 3;  ///< TruncateIntent.kind
inline constexpr int kMaxIntentTurns = 100;           ///< of others that one request waits out before it is told to come back
inline constexpr Nanos kIntentRetry = 2 * kSecond;

class Intents {
 public:
  struct Change {
    uint8_t kind = kIntentTruncate;
    uint64_t offset = 0, length = 0;                  ///< punch, zero: bytes of the file
    uint64_t new_size = 0;                            ///< truncate: the size; else the least size afterwards, 0 = as it is
  };
  Intents(Runtime& runtime, Services& services, OpenTable& opens, Objects& objects, RangeAllocator& commands)
      : runtime_(runtime), services_(services), opens_(opens), objects_(objects), commands_(commands) {}

  /// Carries the change out. Errors: kStale (no such file), kOstDown, kOstInactive: the intent then stays and is completed later.
  Task<Result<void>> carry_out(Driver& driver, Ino ino, Change change);
  /// Completes what is pending; nothing is no error.
  Task<Result<void>> finish(Driver& driver, Ino ino);
  /// Inodes with an intent on record; at start.
  Result<void> load();
  /// Completes what load() found, until the runtime stops.
  Task<void> run(Driver& driver);

 private:
  Task<Result<bool>> begin(Driver& driver, Ino ino, Change change);
  Task<Result<void>> drive(Driver& driver, Ino ino);
  Task<Result<void>> clear(Driver& driver, Ino ino, schema::TruncateIntentT intent, std::optional<Glimpse> seen);
  Task<Result<void>> forget(Driver& driver, Ino ino);
  void leave(Ino ino, Result<void> how);

  Runtime& runtime_;
  Services& services_;
  OpenTable& opens_;
  Objects& objects_;
  RangeAllocator& commands_;
  std::mutex mutex_;
  std::map<Ino, std::vector<Signal>> driving_;        ///< who waits for the one that drives it
  std::vector<Ino> found_;
};

}  // namespace nacre::mds
