// SPDX-License-Identifier: Apache-2.0
// What namespace operations need to know of, and do to, the server's other parts: the table of opens, glimpses, layouts, owed
// commands. The service implements it. Methods that aren't coroutines are called from loops and workers, must not block, and
// must not change anything themselves: effects go into the context (rows into batch(), memory through on_staged / on_commit),
// because an operation may be run several times before one of its runs counts.
#pragma once
#include <cstdint>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/runtime/task.h"
#include "common/schema/codec.h"

namespace nacre::mds {

class OpContext;

/// What the objects of a file that is open for writing say: taken after the request arrived.
struct Glimpse {
  Ino ino;
  uint64_t size = 0;       ///< max over objects of layout::file_end
  uint64_t allocated = 0;  ///< sum, bytes
  Nanos changed = 0;       ///< newest object.changed, 0 = no object
  uint32_t generation = 0; ///< of the layout whose objects were asked: it says nothing of a file that has another now; 0 = not known
  bool is_of(const schema::InodeRecordT& r) const { return generation == 0 || !r.layout || generation == r.layout->generation; }
};

/// Why an operation can't go on: what has to happen before it is run again from its start.
struct Park {
  enum class Kind : uint8_t {
    kGlimpse,   ///< `inos` need glimpses
    kIntent,    ///< a truncate intent of inos[0] must be completed first
    kTruncate,  ///< file inos[0] must be cut to `size` on its objects first (intent, commands, commit)
    kMoved,     ///< the data of inos[0] is on its way to other objects: changes wait for the end of that
    kNumbers,   ///< the range of inode numbers must be refilled (the driver does this itself)
  };
  Kind kind = Kind::kGlimpse;
  std::vector<Ino> inos;
  uint64_t size = 0;
};

class OpHooks {
 public:
  virtual ~OpHooks() = default;

  // --- queries: any thread
  /// Somebody has it open for writing: the record's size, allocated, mtime are not to be trusted. Must turn true before the
  /// first write can reach an object, and false only after the batch that settles the record was committed (on_commit).
  virtual bool open_for_write(Ino ino) const = 0;
  /// Open by any session but `self` (SessionId{} = by any at all).
  virtual bool open_elsewhere(Ino ino, SessionId self) const = 0;
  /// That session has the only handle open for writing and nobody has told of a write since: if it has written nothing, the
  /// record is right.
  virtual bool sole_quiet_writer(Ino ino, SessionId session) const = 0;
  /// Is `handle` an open of that inode for writing by that session? Its size may be changed without asking the mode again.
  virtual bool writable_handle(SessionId session, Ino ino, uint64_t handle) const = 0;
  /// The last name goes: keep the inode as an orphan (it is open, or may still be reached by a lookup just answered)?
  /// `replaced`: by a rename over it. False = it may be destroyed in this batch. The caller holds the inode's lock.
  virtual bool keep_unlinked(const schema::InodeRecordT& record, bool replaced) const = 0;

  /// The file's data is being moved and its objects take no writes: what would change size, data or layout parks (kMoved).
  virtual bool moving(Ino) const { return false; }

  // --- parts of an operation: called under the locks, may write into the context
  /// A regular file is being made by Create: choose its objects (instantiate component 0 of record.layout, which has been
  /// filled with the default), register the open (session, handle, flags), add the OpenRecord. `request` is the Create.
  virtual Result<void> created(OpContext& ctx, schema::InodeRecordT& record, const wire::CreateRequestT& request) = 0;
  /// The objects of record.layout's instantiated components will never be used again: owe their destruction to the OSTs.
  virtual Result<void> destroy_objects(OpContext& ctx, const schema::InodeRecordT& record) = 0;
  /// The file's data is about to change otherwise than by writes: if it is being moved (and not moving()), that ends here.
  virtual Result<void> end_migration(OpContext&, const schema::InodeRecordT&) { return {}; }
  /// The inode became an orphan in this batch (its OrphanRecord is in it): destroy it when nobody holds it any more.
  virtual void orphaned(OpContext& ctx, const schema::InodeRecordT& record) = 0;
  /// Default layout of the cluster, for files below directories that have none: never empty, uninstantiated.
  virtual schema::LayoutT cluster_layout() const = 0;

  // --- waits: on the calling loop, no locks held
  virtual Task<Result<std::vector<Glimpse>>> glimpse(std::vector<Ino> inos) = 0;  ///< same order; at most kMaxGlimpses
  virtual Task<Result<void>> finish_intent(Ino ino) = 0;
  virtual Task<Result<void>> wait_moved(Ino) { co_return Result<void>{}; }  ///< until it is no longer moving()
  virtual Task<Result<void>> truncate(Ino ino, uint64_t size) = 0;  ///< after it the record's size is `size`, objects are cut
};

inline constexpr size_t kMaxGlimpses = 4096;  ///< inodes of one park: a readdir page of 256 KiB has fewer

}  // namespace nacre::mds
