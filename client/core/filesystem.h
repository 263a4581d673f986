// SPDX-License-Identifier: Apache-2.0
// The client core as its users see it: one method per filesystem operation. No FUSE in here: the FUSE front translates
// to it, and the CLI and the benchmarks call it directly. Nothing that another client could change is cached.
//
// Threads: call a method on any Loop of the Runtime; everything it does happens on that loop, and several loops may work
// on one file or handle at once. Handles are shared pointers, thread-safe. Every method may wait for servers: for as long
// as it takes (hard, the default) or MountOptions::soft; Caller::cancel ends the wait with kIntr.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/io/buffer.h"
#include "common/rpc/transport.h"
#include "common/runtime/sync.h"
#include "common/schema/codec.h"
#include "common/wire/bits.h"
#include "common/wire/capability.h"

namespace nacre::config { struct Cluster; }

namespace nacre::client {

using Attr = wire::AttrT;
using GroupsProvider = std::function<Result<std::vector<uint32_t>>()>;

/// Who asks. `groups` is called at most once per operation, and only if the servers say that supplementary groups decide
/// (it may read /proc; null = the caller has none). `cancel` may be null.
struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  int32_t pid = 0;
  GroupsProvider groups;
  CancelPtr cancel;
};

/// Calls into the front, made on a loop. All may be empty.
struct FrontHooks {
  /// The file's size grew to `size` in a way the kernel of this node may not know: an append that landed elsewhere than the
  /// kernel thought, or (when told by the server) another client's. Called before the operation that caused it returns.
  std::function<void(Ino, uint64_t size)> size_grew;
  /// The session was evicted: open handles answer ESTALE from now on.
  std::function<void()> session_lost;
};

struct MountOptions {
  std::vector<std::string> mds;               ///< "HOST:PORT" of the metadata servers
  std::array<uint8_t, 16> cluster_id{};
  wire::Key key{};
  std::string subdir;                         ///< "" = all; "/a/b" = root() is that directory
  bool read_only = false;                     ///< operations that change something answer EROFS
  Nanos soft = 0;                             ///< give up with EIO after this long without a server; 0 = wait for ever
  Nanos warn_after = 30 * kSecond;            ///< a wait that takes longer is logged once, with server and operation
  uint64_t retained = 256 * MiB;              ///< most written data kept until the storage targets have made it stable
  bool atime = true;                          ///< relatime; false = reads never move it
  std::string host;                           ///< shown by `nacre client list`; empty = the machine's name
  std::string mount_point;                    ///< the same
  std::array<uint8_t, 16> client_uuid{};      ///< all zeros = a new random one
  FrontHooks hooks;
};
/// From a loaded cluster file; reads the key file. Errors: kAuth, kConfig, kNoEnt with a sentence.
Result<MountOptions> options_from_cluster(const config::Cluster& cluster);

/// An open file or directory.
class Handle {
 public:
  virtual ~Handle() = default;
  virtual Ino ino() const = 0;
  virtual uint64_t number() const = 0;        ///< unique in the session
  virtual uint32_t flags() const = 0;         ///< O_* as opened
  virtual bool is_directory() const = 0;
};
using HandlePtr = std::shared_ptr<Handle>;

struct OpenResult {
  HandlePtr handle;
  Attr attr;
  bool created = false;
};

struct SetAttr {
  uint32_t valid = 0;                         ///< wire::kSet…
  uint32_t mode = 0, uid = 0, gid = 0;
  uint64_t size = 0;
  Nanos atime = 0, mtime = 0;                 ///< ns since the epoch UTC
  bool kill_priv = false;                     ///< clear suid, sgid (if group-executable) and file capabilities
  HandlePtr handle;                           ///< ftruncate etc.: rights come from the handle; may be null
};

struct WriteOptions {
  /// The buffer's content stays as it is after write() has returned, so the core may keep a reference until the data is
  /// stable. False: the core copies what it must keep.
  bool may_retain = false;
  bool kill_priv = false;                     ///< FUSE_WRITE_KILL_SUIDGID
  /// A page of a shared mapping written back: never extends the file, ignores O_APPEND.
  bool from_page_cache = false;
};
struct WriteResult {
  uint64_t offset = 0;                        ///< where it landed (O_APPEND: not where the caller thought)
  uint64_t written = 0;
};

struct RenameArgs { Ino parent; std::string name; Ino new_parent; std::string new_name; uint32_t flags = 0; };
struct CopyArgs { uint64_t in_offset = 0, out_offset = 0, length = 0; };
enum class Seek : uint8_t { kData, kHole };

struct ServerStatus {
  std::string name;                           ///< "mds" or "ost3"
  std::string address;
  bool connected = false;
  uint64_t incarnation = 0;
  uint64_t retained = 0;                      ///< bytes of written data not yet stable there
  uint64_t checksum_errors = 0;
  uint64_t resent = 0;                        ///< writes resent after restarts of the target
};
inline constexpr size_t kMaxWaitingShown = 100;
struct WaitingOperation { Nanos age = 0; std::string operation, server; };
struct ClientStatus {
  uint64_t session = 0;
  uint64_t map_version = 0;
  bool evicted = false;
  uint64_t open_handles = 0, held_locks = 0;
  uint64_t in_flight = 0;                     ///< operations being worked on
  Nanos oldest_wait = 0;                      ///< how long the longest waiting one has waited
  std::string oldest_wait_text;               ///< "Lookup on mds 10.0.0.1:7700"
  std::vector<WaitingOperation> waiting;      ///< oldest first, at most kMaxWaitingShown
  uint64_t read_bytes = 0, written_bytes = 0, retries = 0;
  std::vector<ServerStatus> servers;
};

class Filesystem {
 public:
  /// Makes the object; nothing is sent before connect(). Runtime and transport must outlive it.
  static Result<std::unique_ptr<Filesystem>> make(Runtime& runtime, rpc::Transport& transport, MountOptions options);
  virtual ~Filesystem() = default;

  /// Opens the session. Errors: kAuth, kNotOurs, kVersion, kNoEnt (subdir) at once; waits for a server that is not
  /// reachable until `cancel`, the soft limit or `deadline` (boot time).
  virtual Task<Result<void>> connect(Nanos deadline = kForever, CancelPtr cancel = nullptr) = 0;
  /// Commits what is not stable, closes handles and session, for which servers that don't answer are given `limit`; a little
  /// more passes until all is down. Operations in progress end with kShutdown.
  virtual Task<void> disconnect(Nanos limit = 20 * kSecond) = 0;
  virtual Attr root() const = 0;              ///< as of connect(); its ino is the root of this mount
  virtual ClientStatus status() const = 0;    ///< any thread

  // --- names
  virtual Task<Result<Attr>> lookup(Ino parent, std::string name, Caller caller) = 0;
  /// Makes a directory, fifo, socket, device or plain file, by S_IFMT of `mode`.
  virtual Task<Result<Attr>> mknod(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint64_t rdev, Caller caller) = 0;
  virtual Task<Result<Attr>> mkdir(Ino parent, std::string name, uint32_t mode, uint32_t umask, Caller caller) = 0;
  virtual Task<Result<Attr>> symlink(Ino parent, std::string name, std::string target, Caller caller) = 0;
  virtual Task<Result<void>> unlink(Ino parent, std::string name, Caller caller) = 0;
  virtual Task<Result<void>> rmdir(Ino parent, std::string name, Caller caller) = 0;
  virtual Task<Result<void>> rename(RenameArgs args, Caller caller) = 0;
  virtual Task<Result<Attr>> link(Ino ino, Ino new_parent, std::string new_name, Caller caller) = 0;
  virtual Task<Result<std::string>> readlink(Ino ino, Caller caller) = 0;

  // --- attributes
  virtual Task<Result<Attr>> getattr(Ino ino, Caller caller) = 0;
  virtual Task<Result<Attr>> setattr(Ino ino, SetAttr change, Caller caller) = 0;
  virtual Task<Result<void>> access(Ino ino, uint32_t mask, Caller caller) = 0;
  virtual Task<Result<std::string>> xattr_get(Ino ino, std::string name, Caller caller) = 0;
  virtual Task<Result<void>> xattr_set(Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid, Caller caller) = 0;
  virtual Task<Result<std::vector<std::string>>> xattr_list(Ino ino, Caller caller) = 0;
  virtual Task<Result<void>> xattr_remove(Ino ino, std::string name, Caller caller) = 0;
  /// Never waits for a server for long: after a moment it answers with the last known figures (kUnavailable if there are none).
  virtual Task<Result<wire::StatfsReplyT>> statfs(Ino ino, Caller caller) = 0;

  // --- directories
  virtual Task<Result<HandlePtr>> opendir(Ino ino, uint32_t flags, Caller caller) = 0;
  /// Entries after `cookie` (0 = from the start) without "." and ".."; reply.parent is the directory's parent.
  virtual Task<Result<wire::ReaddirReplyT>> readdir(HandlePtr dir, uint64_t cookie, uint32_t max_bytes, bool plus, Caller caller) = 0;
  virtual Task<Result<void>> releasedir(HandlePtr dir) = 0;
  virtual Task<Result<void>> fsyncdir(HandlePtr dir, Caller caller) = 0;

  // --- files
  /// `name` empty = O_TMPFILE in `parent`.
  virtual Task<Result<OpenResult>> create(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint32_t flags, Caller caller) = 0;
  virtual Task<Result<OpenResult>> open(Ino ino, uint32_t flags, Caller caller) = 0;
  /// Fills `into` from the front; returns the bytes read, fewer than into.size() only at the end of the file.
  virtual Task<Result<uint64_t>> read(HandlePtr file, uint64_t offset, Buffer into, Caller caller) = 0;
  virtual Task<Result<WriteResult>> write(HandlePtr file, uint64_t offset, Buffer data, WriteOptions options, Caller caller) = 0;
  /// close(2) of one descriptor: frees POSIX locks of `lock_owner`, reports pending errors. The handle lives on.
  virtual Task<Result<void>> flush(HandlePtr file, uint64_t lock_owner, Caller caller) = 0;
  /// Last close. `flock_owner` ≠ 0 frees that owner's flock.
  virtual Task<Result<void>> release(HandlePtr file, uint64_t flock_owner) = 0;
  virtual Task<Result<void>> fsync(HandlePtr file, bool data_only, Caller caller) = 0;
  virtual Task<Result<void>> fallocate(HandlePtr file, uint32_t mode, uint64_t offset, uint64_t length, Caller caller) = 0;
  /// ENXIO at or after the end, or no data after `offset`.
  virtual Task<Result<uint64_t>> lseek(HandlePtr file, uint64_t offset, Seek whence, Caller caller) = 0;
  /// Returns the bytes copied; short only at the end of the input. EINVAL for overlapping ranges of one file.
  virtual Task<Result<uint64_t>> copy_file_range(HandlePtr in, HandlePtr out, CopyArgs args, Caller caller) = 0;

  // --- locks: spec.handle is filled in from `file`
  /// The lock that stands in the way, or type F_UNLCK.
  virtual Task<Result<wire::LockSpecT>> lock_test(HandlePtr file, wire::LockSpecT spec, Caller caller) = 0;
  /// Sets or frees. `wait`: until granted or cancelled; else kAgain.
  virtual Task<Result<void>> lock_set(HandlePtr file, wire::LockSpecT spec, bool wait, Caller caller) = 0;

  // --- tools
  /// Makes everything this client has written durable, and the server's journal up to now.
  virtual Task<Result<void>> sync_all(Caller caller) = 0;
  /// True for the methods that call_method passes on for ordinary users.
  static bool is_tool_method(uint16_t method);
  /// A metadata request as tools send it: FlatBuffer in, FlatBuffer out. The request's cred is replaced by the caller's.
  /// Errors: kPerm for methods that are not for tools, kProtocol for a body that fails verification.
  virtual Task<Result<Bytes>> call_method(uint16_t method, Bytes body, Caller caller) = 0;
};

}  // namespace nacre::client
