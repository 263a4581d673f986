// SPDX-License-Identifier: Apache-2.0
// The contract between operations and their driver. An operation is a synchronous function `Result<Reply> op(OpContext&, const
// Request&)` that locks what it changes, reads through view(), and fills batch(). It has no effect of its own: the driver runs
// it, perhaps several times (locks in the wrong order, blocks not in memory, something to wait for), and commits the run that
// counts. All of that is invisible to it, except that every error must be handed up at once.
// An OpContext belongs to one request. It is used by one thread at a time.
#pragma once
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/schema/codec.h"
#include "common/wire/bits.h"
#include "metadata/ops/hooks.h"
#include "metadata/store/journal.h"
#include "metadata/store/store.h"

namespace nacre::mds {

class DirLayouts;
class Turn;

/// What all operations work on. Owned by the server's main.
struct Services {
  Store& store;
  Journal& journal;
  RangeAllocator& inos;
  OpHooks& hooks;
  DirLayouts& dir_layouts;
  Clock& clock;
};

/// Who sent a request, and in which slot. sequence 0 = not slotted.
struct Identity {
  SessionId session;
  uint16_t slot = 0;
  uint32_t sequence = 0;
  uint16_t method = 0;
};

class OpContext {
 public:
  OpContext(Services& services, wire::CredT cred, Identity identity = {}) : services_(services), cred_(std::move(cred)), identity_(identity) {}
  OpContext(const OpContext&) = delete;
  OpContext& operator=(const OpContext&) = delete;

  const wire::CredT& cred() const { return cred_; }
  const Identity& identity() const { return identity_; }
  Services& services() { return services_; }
  OpHooks& hooks() { return services_.hooks; }
  const View& view() const { return view_; }
  Batch& batch() { return batch_; }
  Nanos now() const { return now_; }  ///< the server's time, one value per run

  /// Locks the inodes until the commit. Errors are the driver's (it starts again): hand them up at once.
  /// Anything an operation decides upon and changes must be locked before it is read.
  Result<void> lock(std::initializer_list<Ino> inos);
  /// The fileset's mutex for moves of directories between parents: holds the tree's shape still.
  Result<void> lock_moves(FilesetId fileset);

  // --- records
  /// Notes, before it reads, whether the file is open for writing: a record read while it wasn't is true of that moment.
  Result<schema::InodeRecordT> inode(Ino ino, Errc absent = Errc::kStale);
  /// As inode(), and parks while a truncate intent is pending: for what needs size or data rights.
  Result<schema::InodeRecordT> settled_inode(Ino ino, Errc absent = Errc::kStale);
  Result<std::optional<schema::DentryRecordT>> dentry(Ino parent, std::string_view name) const { return view_.dentry(parent, name); }
  void put_inode(const schema::InodeRecordT& record) { batch_.put_inode(record); }
  void put_dentry(Ino parent, std::string_view name, Ino ino, schema::FileType type, uint32_t birth_epoch);
  void del_dentry(Ino parent, std::string_view name);
  Result<std::shared_ptr<const schema::FilesetRecordT>> fileset(uint32_t id);  ///< notes durability_sync for the driver
  /// A number for a new inode: the same one in every run of this request. Parks when the range is used up.
  Result<Ino> new_ino();
  void log(uint16_t kind, Ino ino, Ino parent, std::string_view name, Ino new_parent = {}, std::string_view new_name = {});

  // --- waiting
  /// Says what must happen first; return the error at once.
  std::unexpected<Error> park(Park why);
  bool parked() const { return park_.has_value(); }
  /// True if the record of `ino` can't be trusted for size and times: open for writing at every look of this request so far.
  /// Call before the record is read.
  bool look_open(Ino ino);
  bool was_open(Ino ino) const { return open_.contains(ino); }  ///< what the last look of this run said
  /// The glimpse taken for this request, if any.
  const Glimpse* glimpse(Ino ino) const;
  /// The size this request has already had the file cut to.
  std::optional<uint64_t> truncated(Ino ino) const;

  // --- effects on memory
  /// Runs when this run counts, under the locks, before the commit (so that later operations of the turn see it).
  void on_staged(std::function<void()> fn) { staged_.push_back(std::move(fn)); }
  /// Runs after the commit, still under the locks, before the reply.
  void on_commit(std::function<void()> fn) { committed_.push_back(std::move(fn)); }
  /// The reply waits for the sync of this batch, whatever the fileset says.
  void require_sync() { needs_sync_ = true; }
  JournalNo journal_no() const { return journal_no_; }  ///< after the driver returned: of the batch; 0 = nothing was written

 private:
  friend class Driver;
  friend class Turn;
  friend class DirectRunner;
  void begin_run(Tier tier, Turn* turn, bool overlay);  ///< forgets the previous run; keeps glimpses, the number, truncations
  Result<void> lock_stripe(uint32_t stripe);
  void note_truncated(Ino ino, uint64_t size);

  Services& services_;
  wire::CredT cred_;
  Identity identity_;
  View view_;
  Batch batch_;
  Turn* turn_ = nullptr;  ///< null: no locks (reads, rehearsals on workers, direct runs)
  Nanos now_ = 0;
  std::optional<Park> park_;
  std::vector<std::function<void()>> staged_, committed_;
  bool needs_sync_ = false;
  JournalNo journal_no_;
  std::optional<Ino> new_ino_;
  bool restart_ = false;           ///< a lock was held by another turn
  std::vector<uint32_t> asked_;    ///< stripes this run asked for
  std::unordered_set<Ino> closed_; ///< seen not open for writing during this request
  std::unordered_set<Ino> open_;
  std::map<Ino, Glimpse> glimpses_;
  std::map<Ino, uint64_t> truncated_;
};

/// Inode numbers are below this: the 8 bits above say which metadata target has the inode, and this server is target 0.
inline constexpr uint64_t kInoLimit = uint64_t{1} << 40;

/// Changelog kinds.
inline constexpr uint16_t kLogCreate = 1, kLogMkdir = 2, kLogMknod = 3, kLogSymlink = 4, kLogLink = 5, kLogUnlink = 6, kLogRmdir = 7, kLogRename = 8, kLogSetattr = 9, kLogXattr = 10, kLogExchange = 11;  // 12: metadata/store/journal.h

}  // namespace nacre::mds
