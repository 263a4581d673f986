// SPDX-License-Identifier: Apache-2.0
// The one seam through which anything is written: a commit is one RocksDB batch with the next journal number (in its log data),
// and recovery replays exactly a prefix of the numbers. Usage counters are computed here and nowhere else.
// commit() is a mutex held for one WAL and memtable insert on the caller's thread; it does not sync. Syncs are coalesced on
// workers. An error of a write or sync is fatal: nothing more is acknowledged (Options::fatal ends the server).
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/runtime/loop.h"
#include "common/runtime/sync.h"
#include "metadata/store/store.h"

namespace nacre::mds {

/// ChangelogRecord.kind that no operation writes; the others are in metadata/ops/op.h.
inline constexpr uint16_t kChangeRestore = 12;

/// Journal numbers: the server's incarnation above, a counter from 1 below; so they rise for ever and are dense within one run.
inline constexpr unsigned kJournalCounterBits = 44;  ///< 18 years of 30,000 commits a second; a million restarts above

class Journal {
 public:
  struct Options {
    Nanos commit_interval = kSecond;            ///< how often run_periodic syncs
    uint64_t changelog_records = 0;             ///< most entries kept; 0 = no changelog
    std::function<void(Error)> fatal;           ///< called once, from any thread; must end the process (tests may note it)
  };
  /// Reads all usage cells. Errors: as View's.
  static Result<std::unique_ptr<Journal>> open(Store& store, Options options);
  ~Journal();

  /// Any thread. An empty batch is no commit: returns committed(). Errors: kIo, once and for ever after the first failure.
  Result<JournalNo> commit(Batch batch);
  JournalNo committed() const;
  JournalNo synced() const;                     ///< everything up to it survives a power loss
  bool failed() const;

  /// Returns when everything up to `number` is synced; starts a sync at once (group commit). On a loop.
  Task<Result<void>> sync_to(JournalNo number);
  /// The barrier: returns when everything up to `number` is synced, by whoever syncs next. On a loop.
  Task<Result<void>> wait_synced(JournalNo number);
  /// Blocks for the sync. Start, stop and tests.
  Result<void> sync_now();
  /// Syncs every commit_interval while there is something to sync, until the runtime stops. Spawn once.
  Task<void> run_periodic();

  /// Number of the newest changelog entry ever, 0 = none.
  uint64_t changelog_last() const;
  /// The next entry is one that says that the metadata was restored, numbered so far on that no entry of after the backup had
  /// its number: readers see the rest as a gap. Not synced.
  Result<void> restart_changelog(uint64_t skip);

  /// Settled counters.
  schema::UsageRecordT usage(const Subject& subject) const;
  schema::UsageRecordT usage_total() const;

  Store& store() { return store_; }

 private:
  struct State;
  Journal(Store& store, Options options);
  Store& store_;
  std::unique_ptr<State> state_;
};

/// Hands out numbers that were never handed out before, whatever crash lies between: the high-water mark is synced before use,
/// an unclean start begins at the mark. Any thread.
class RangeAllocator {
 public:
  /// name: of the range row ("ino", "session", "command", …). first: of a new range. step: numbers per synced mark.
  static Result<std::unique_ptr<RangeAllocator>> open(Journal& journal, std::string name, uint64_t first, uint64_t step);
  /// The next number; nullopt if the synced range is used up: refill() and try again. Starts no I/O.
  std::optional<uint64_t> take();
  /// `n` consecutive numbers' first one; nullopt as take(). n ≤ step.
  std::optional<uint64_t> take(uint64_t n);
  bool low() const;                             ///< less than half a step left: a good moment for refill()
  /// Commits and syncs a higher mark. On a loop; concurrent calls share one sync.
  Task<Result<void>> refill();
  Result<void> refill_now();                    ///< blocks; start and tests
  /// Clean stop: stores the exact next number, so that nothing is skipped.
  Result<void> give_back();
  /// Everything up to `used` counts as handed out (an OST knows a higher number than a restored backup).
  void skip_past(uint64_t used);
  uint64_t next() const;

 private:
  RangeAllocator(Journal& journal, std::string name, uint64_t step);
  std::optional<uint64_t> begin_refill(Signal* wait);  ///< the mark to store; nullopt: another call is at it, `wait` will be set
  void end_refill(uint64_t high, bool ok);
  Result<JournalNo> store_mark(uint64_t high);
  Journal& journal_;
  std::string name_;
  uint64_t step_;
  mutable std::mutex mutex_;
  uint64_t next_ = 0, high_ = 0;
  bool refilling_ = false;
  std::vector<Signal> waiting_;
};

}  // namespace nacre::mds
