// SPDX-License-Identifier: Apache-2.0
// The metadata database: one RocksDB, one column family per kind of record. Only metadata/store includes RocksDB.
// Reading goes through a View, writing through Journal::commit (journal.h) alone. Store, and Views of different threads, may
// be used at once; all methods are thread-safe unless said otherwise.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/rng.h"
#include "metadata/store/batch.h"
#include "metadata/store/keys.h"

namespace nacre::mds {

/// Feature bits this build knows (MetaSuper). Unknown incompat bits: refused. Unknown ro_compat bits: refused too, since a server writes.
inline constexpr uint64_t kKnownCompat = 0, kKnownRoCompat = 0, kKnownIncompat = 0;

/// kCached reads memory only and says kIncomplete where a disk would be needed; kFull reads the disk (workers, start-up).
enum class Tier { kCached, kFull };

/// A restored server must not look like one that its clients have met: it skips the incarnations that may lie between.
inline constexpr uint64_t kIncarnationsPerRestore = 1000;
/// A file would have to be truncated so often between backup and restore; 32 bits have room for 255 restores.
inline constexpr uint32_t kGenerationsPerRestore = 1u << 24, kMaxCountedRestores = 255;

class Journal;

class Store {
 public:
  struct Options {
    std::string path;                          ///< the server's data directory
    std::array<uint8_t, 16> cluster_id{};
    uint64_t block_cache = 512ull << 20;       ///< bytes
    uint64_t write_buffer = 64ull << 20;       ///< bytes per memtable of the large families; tests make it small
    Clock* clock = &system_clock();
    Rng* rng = &system_rng();
  };
  /// Makes an empty metadata directory: super record, root fileset, root directory (mode 0755, root's). The directory must
  /// be missing or empty. Errors: kExist, kIo, each with a sentence.
  static Result<void> format(const Options& options);
  /// Errors, each with a sentence: kNoEnt / kNotOurs (no metadata directory, another kind, another cluster), kVersion (newer
  /// format), kInUse (a second process), kCorrupt (media damage), kIo.
  /// Afterwards the super record says "not clean" and carries the next incarnation, both synced.
  static Result<std::unique_ptr<Store>> open(const Options& options);
  ~Store();
  /// Flushes and marks the directory clean. Call last, when nothing commits any more.
  Result<void> close_clean();

  const schema::MetaSuperT& super() const { return super_; }   ///< as of this start: `clean` says how the last run ended
  uint64_t incarnation() const { return super_.incarnation; }
  bool was_clean() const { return super_.clean; }
  const NameHash& names() const { return names_; }
  /// Number of the last journal batch that recovery found; 0 = none in the log.
  uint64_t recovered_journal() const;
  /// True if recovery stopped at a gap in the journal numbers (the rest of the log was dropped).
  bool recovered_to_gap() const;
  /// Did the journal's number `acked`, which this or an earlier run has given out, survive the restarts since? 0 always does.
  bool survived(uint64_t acked) const;

  // --- after a restore from a backup (backup.h)
  /// The database is a restored one whose numbers have not been raised yet above those given out since the backup.
  bool restored() const { return restored_; }
  /// They have: the mark goes, durably. Blocking.
  Result<void> end_restore(Journal& journal);
  /// Layout generations begin above this number, so that no object of a file's restored state has the name of one that the
  /// file got after the backup.
  uint32_t first_generation() const;
  /// Every fileset's epoch is at least `least` afterwards. Blocking; not synced.
  Result<void> raise_epochs(Journal& journal, Epoch least);

  /// A fileset's record, from memory. nullptr if there is none.
  std::shared_ptr<const schema::FilesetRecordT> fileset(FilesetId id) const;
  std::vector<std::shared_ptr<const schema::FilesetRecordT>> filesets() const;

  struct Rocks;                                ///< RocksDB handles: for metadata/store only
  Rocks& rocks() const { return *rocks_; }

 private:
  Store() = default;
  std::unique_ptr<Rocks> rocks_;
  schema::MetaSuperT super_;
  NameHash names_;
  std::vector<uint64_t> ends_;  ///< last numbers of the runs before this one
  std::atomic<bool> restored_{false};
  std::atomic<uint64_t> restores_{0};
};

/// The database as it was when this was made, for reads that must agree with each other: every operation is one batch, so a
/// snapshot holds all of it or nothing. Old versions of rows stay on disk while it lives. Any thread.
class Snapshot {
 public:
  explicit Snapshot(const Store& store);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  friend class View;
  const Store& store_;
  const void* handle_;
};

/// What a reader sees: the database, beneath the rows of a turn that is not committed yet, beneath an operation's own rows.
/// Each read is of the newest state; several reads are not one point in time unless the operation holds the locks.
/// Errors of all reads: kIncomplete (Tier::kCached only), kCorrupt, kVersion, kIo. One thread at a time.
class View {
 public:
  View() = default;
  View(const Store& store, Tier tier, const Batch* own = nullptr, const Batch* turn = nullptr) : store_(&store), tier_(tier), own_(own), turn_(turn) {}
  /// Of the snapshot, which must outlive the view; reads the disk.
  View(const Store& store, const Snapshot& snapshot) : store_(&store), snapshot_(snapshot.handle_) {}

  Result<std::optional<std::string>> get(Family family, std::string_view key) const;
  /// Many keys of one family at once, in the order given. The same semantics as get.
  Result<std::vector<std::optional<std::string>>> multi_get(Family family, const std::vector<std::string>& keys) const;
  template <class T>
  Result<std::optional<T>> get_record(Family family, std::string_view key) const {
    auto raw = get(family, key);
    if (!raw) return std::unexpected(std::move(raw).error());
    if (!*raw) return std::optional<T>();
    auto record = decode_record<T>(**raw);
    if (!record) return std::unexpected(named(std::move(record).error(), family, key));
    return std::optional<T>(std::move(*record));
  }
  /// Rows with begin ≤ key < end (end empty = to the end of the family) in key order, until `fn` returns false.
  /// `fn` must not keep the views it gets.
  Result<void> scan(Family family, std::string_view begin, std::string_view end,
                    const std::function<bool(std::string_view key, std::string_view value)>& fn) const;

  Result<std::optional<schema::InodeRecordT>> inode(Ino ino) const;  ///< none for number 0, whose row is the gap check's marker (wal_guard.h)
  Result<std::optional<schema::DentryRecordT>> dentry(Ino parent, std::string_view name) const;
  Result<std::optional<schema::XattrRecordT>> xattr(Ino ino, std::string_view name) const { return get_record<schema::XattrRecordT>(Family::kXattr, xattr_key(ino, name)); }
  const Store& store() const { return *store_; }
  Tier tier() const { return tier_; }

 private:
  static Error named(Error e, Family family, std::string_view key);
  Result<void> scan_merged(Family family, std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) const;
  const Store* store_ = nullptr;
  Tier tier_ = Tier::kFull;
  const Batch* own_ = nullptr;
  const Batch* turn_ = nullptr;
  const void* snapshot_ = nullptr;
};

}  // namespace nacre::mds
