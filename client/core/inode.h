// SPDX-License-Identifier: Apache-2.0
// What the core keeps per inode while it is open here or has data that isn't stable: layout and capabilities (Grant), open
// handles, what was written to which object, and errors still to be told. Thread-safe: state lies under one short mutex per
// inode; a Grant never changes once published.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "client/core/async_mutex.h"
#include "client/core/filesystem.h"

namespace nacre::client {

/// Layout and the right to use it, from one reply of the server.
struct Grant {
  schema::LayoutT layout;
  wire::CapabilityT cap;         ///< without mac: no right, layout only
  Nanos received = 0;            ///< boot time
  Nanos life = 0;                ///< of the capability when it came
  uint64_t weight = 0;           ///< stripes in use; grows while the generation stays

  Generation generation() const { return Generation(layout.generation); }
  bool valid(Nanos boot_now) const { return life > 0 && boot_now < received + life - std::min<Nanos>(life / 4, 500 * kMillisecond); }
  bool ageing(Nanos boot_now) const { return boot_now >= received + life / 2; }
  /// [offset, offset + length) lies in components that the capability names.
  bool covers(uint64_t offset, uint64_t length) const;
  /// Every component that the range touches is instantiated, so that all data there is would be found.
  bool reaches(uint64_t offset, uint64_t length) const;
};
using GrantPtr = std::shared_ptr<const Grant>;

class Inode;
using InodePtr = std::shared_ptr<Inode>;

class FileHandle final : public Handle {
 public:
  FileHandle(InodePtr inode, Ino ino, uint64_t number, uint32_t flags, uint64_t session, bool directory)
      : inode_(std::move(inode)), ino_(ino), number_(number), flags_(flags), session_(session), directory_(directory) {}
  Ino ino() const override { return ino_; }
  uint64_t number() const override { return number_; }
  uint32_t flags() const override { return flags_; }
  bool is_directory() const override { return directory_; }

  const InodePtr& inode() const { return inode_; }      ///< null for directories
  uint64_t session() const { return session_; }
  bool readable() const;
  bool writable() const;
  uint32_t opener_uid = 0, opener_gid = 0;              ///< directories: pages are read with the opener's rights
  std::atomic<bool> stale{false}, released{false};
  std::atomic<uint64_t> errors_seen{0};
  std::atomic<uint64_t> losses_seen{0};                 ///< MdsClient::losses

 private:
  InodePtr inode_;
  Ino ino_;
  uint64_t number_;
  uint32_t flags_;
  uint64_t session_;
  bool directory_;
};
using FileHandlePtr = std::shared_ptr<FileHandle>;

/// What the last attributes of the inode that came by said.
struct Seen {
  Nanos atime = 0, mtime = 0, ctime = 0;
  uint32_t mode = 0, flags = 0;
  Nanos at = 0;                                         ///< boot time, 0 = never
  /// Bits that a write by an unprivileged user must clear may be set.
  bool may_have_privileges() const;  ///< suid, sgid or a file capability
  bool may_have_capability() const;
};

inline constexpr Nanos kMaxCapabilityLife = 600 * kSecond;  ///< ten times what a metadata server gives
/// How long the right still holds; 0 for one whose end makes no sense.
Nanos left_of(const wire::CapabilityT& cap, Nanos mds_now);

class Inode {
 public:
  explicit Inode(Ino number) : ino(number) {}
  const Ino ino;

  // --- rights
  GrantPtr grant(bool write) const;
  /// Takes layout and capability of a reply. Older generations and smaller layouts than the known ones are ignored.
  void adopt(const schema::LayoutT* layout, const wire::CapabilityT* cap, Nanos boot_now, Nanos mds_now);
  /// One LayoutGrant at a time, for reading and for writing: one for writing may wait for the end of a migration, whose mover reads.
  AsyncMutex refreshing_read, refreshing_write;
  AsyncMutex appending;                                 ///< one append of this client at a time
  std::atomic<bool> renewing{false};

  // --- handles
  void add(const FileHandlePtr& handle);
  /// When the last one open for writing goes, so does what only a close needs to know.
  void remove(const FileHandlePtr& handle);
  std::vector<FileHandlePtr> handles() const;
  FileHandlePtr any_writer() const;

  // --- what was written
  void wrote(const ObjectId& object, OstId ost, const wire::ObjectWriteReplyT& reply);
  std::vector<wire::ObjectReport> reports() const;
  void forget_reports();                                ///< they no longer say how large the objects are
  void mark_unsure();
  bool unsure() const;
  std::map<uint32_t, uint64_t> written_up_to() const;   ///< OST → newest write sequence

  /// From before its first write is sent, for as long as the inode is known here.
  std::atomic<bool> ever_written{false};

  // --- errors that came after write() had returned
  void fail(Error why);
  /// The error this handle hasn't been told yet.
  std::optional<Error> take_error(FileHandle& handle);

  // --- for relatime and for clearing privileges
  void saw(const wire::AttrT& attr, Nanos boot_now);
  Seen seen() const;
  void set_atime(Nanos atime);

 private:
  mutable std::mutex mutex_;
  GrantPtr read_, write_;
  std::vector<FileHandlePtr> handles_;
  std::map<ObjectId, wire::ObjectReport> reports_;
  std::map<uint32_t, uint64_t> written_;
  bool unsure_ = false;
  uint64_t error_number_ = 0;
  Error error_;
  Seen seen_;
};

class InodeTable : public std::enable_shared_from_this<InodeTable> {
 public:
  InodePtr get(Ino ino);                                ///< made if absent
  InodePtr find(Ino ino);                               ///< null if nothing is open
  std::vector<std::unique_ptr<wire::ReclaimOpenT>> opens(uint64_t session);
  void make_stale(const std::vector<uint64_t>& handle_numbers);
  void make_all_stale(uint64_t except_session);
  std::vector<FileHandlePtr> all_handles();

 private:
  static constexpr size_t kShards = 64;
  struct Shard {
    std::mutex mutex;
    std::unordered_map<uint64_t, std::weak_ptr<Inode>> map;
  };
  Shard& shard(Ino ino) { return shards_[std::hash<Ino>{}(ino) >> 32 & (kShards - 1)]; }
  std::array<Shard, kShards> shards_;
};

}  // namespace nacre::client
