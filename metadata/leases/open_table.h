// SPDX-License-Identifier: Apache-2.0
// Which session has which inode open, how, and what the writers have reported of its objects.
// Invariant: open_for_write() turns true before a write can reach an object (the open is registered before its reply) and
// false only after the batch that settled the record was committed (remove() to settled()). Everything here is memory: what a
// restart needs lies in OpenRecords, and those writers come back as handle kLostHandle until their session reclaims.
// Sharded by inode; any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/schema/codec.h"
#include "metadata/ops/hooks.h"

namespace nacre::mds {

inline constexpr uint64_t kLostHandle = 0;                ///< a writer known from its OpenRecord only; clients count from 1
inline constexpr size_t kMaxOpensPerSession = 1'000'000;  ///< about 100 MB of memory; beyond: kNoMem
inline constexpr size_t kOpenShards = 64;
inline constexpr size_t kMaxReports = 64'000;             ///< kept per inode: kMaxComponents of kMaxStripes; beyond, the objects are asked
inline constexpr size_t kCutCounters = 4096;              ///< inodes share them by hash: a needless glimpse now and then

bool flags_write(uint32_t flags);       ///< O_WRONLY or O_RDWR
bool flags_read(uint32_t flags);        ///< O_RDONLY or O_RDWR
bool flags_append(uint32_t flags);

class OpenTable {
 public:
  /// Registers; the same handle again changes nothing. For the first writer of an inode `layout` (null = none) says which
  /// objects existed before. False if the session has too many.
  bool add(Ino ino, SessionId session, uint64_t handle, uint32_t flags, const schema::LayoutT* layout);
  /// A writer that is known from its OpenRecord only. Reports of others no longer tell the whole.
  void add_lost(Ino ino, SessionId session);

  // --- queries
  std::optional<uint32_t> flags(Ino ino, SessionId session, uint64_t handle) const;
  bool open_for_write(Ino ino) const;
  bool is_open(Ino ino) const;
  bool open_elsewhere(Ino ino, SessionId self) const;
  bool writes(Ino ino, SessionId session) const;
  /// The session has the only handle open for writing, and since the first writer came nobody has told of a write.
  bool sole_quiet_writer(Ino ino, SessionId session) const;
  bool has_lost(Ino ino) const;                           ///< a writer that is known from its OpenRecord only
  uint8_t rights(Ino ino, SessionId session) const;       ///< kCapRead | kCapWrite over all handles of the session
  std::vector<SessionId> appenders(Ino ino, SessionId except) const;
  size_t count(SessionId session) const;
  size_t total() const;
  std::vector<Ino> inodes_of(SessionId session) const;    ///< walks the table: eviction and reclaim only
  std::vector<uint64_t> handles(Ino ino, SessionId session) const;

  // --- closing; the caller holds the inode's lock from peek() to settled()
  struct Closing {
    bool known = false;            ///< the handle is registered
    bool session_done = false;     ///< afterwards the session has no write handle (and had one): its OpenRecord goes
    bool last_writer = false;      ///< afterwards nobody writes: the record must be settled
    bool last_open = false;        ///< afterwards nobody has it open
  };
  Closing peek(Ino ino, SessionId session, uint64_t handle) const;
  /// Unregisters. If it was the last writer the inode counts as open for write until settled().
  void remove(Ino ino, SessionId session, uint64_t handle);
  void settled(Ino ino);

  // --- what the writers know of the objects
  void report(Ino ino, const std::vector<wire::ObjectReport>& reports, bool unsure);
  /// Objects were cut or allocated by the server: earlier reports no longer hold, glimpses taken before are outdated.
  void objects_changed(Ino ino);
  /// Moves with each objects_changed(): a glimpse may be stored only if this is the same before it and under the inode's lock.
  uint64_t cuts(Ino ino) const;
  /// The file as the reports tell it, or nullopt if they don't suffice and the objects must be asked. `changed` 0 and size 0:
  /// nothing was written since the first writer came.
  std::optional<Glimpse> from_reports(const schema::InodeRecordT& record) const;

 private:
  struct Key {
    SessionId session;
    uint64_t handle;
    auto operator<=>(const Key&) const = default;
  };
  struct State {
    std::map<Key, uint32_t> openers;                   ///< flags
    uint32_t writers = 0;
    uint32_t settling = 0;
    bool unsure = false;
    uint32_t generation = 0;                           ///< layout when the first writer came …
    std::vector<uint16_t> used;                        ///< … and the stripes of each component that could have an object then
    std::map<ObjectId, wire::ObjectReport> reports;    ///< newest by wseq
    bool idle() const { return openers.empty() && settling == 0; }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<Ino, State> inodes;
  };
  Shard& shard(Ino ino) { return shards_[std::hash<Ino>{}(ino) % kOpenShards]; }
  const Shard& shard(Ino ino) const { return shards_[std::hash<Ino>{}(ino) % kOpenShards]; }
  void begin_writing(State& state, const schema::LayoutT* layout);
  bool charge(SessionId session);
  void uncharge(SessionId session);

  std::array<Shard, kOpenShards> shards_;
  std::array<std::atomic<uint64_t>, kCutCounters> cuts_{};
  mutable std::mutex counts_mutex_;
  std::unordered_map<SessionId, size_t> counts_;
};

}  // namespace nacre::mds
