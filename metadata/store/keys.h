// SPDX-License-Identifier: Apache-2.0
// Every key layout of the metadata server, nowhere else. Numbers are big-endian, so that key order is number order and ranges
// mean something; a variable part stands last, or behind its length. Values are records of common/schema/records.fbs.
// A changed layout without a new incompat bit of MetaSuper fails the golden test. Pure, thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace nacre::mds {

/// One RocksDB column family each; the number is an index, the name (family_name) is what lies on disk.
enum class Family : uint8_t {
  kMeta,            ///< "super" MetaSuper, "map" MapRecord, "migrate" + ino MigrationRecord, further single rows by name
  kInode,           ///< ino → InodeRecord
  kDentry,          ///< parent, hash63(name), name → DentryRecord; key order is cookie order
  kLink,            ///< ino, parent, name → LinkRecord: every name but the one in the inode record
  kXattr,           ///< ino, name → XattrRecord
  kHistory,         ///< logical key (family byte + key), last epoch → version needed by snapshots only
  kHistoryByEpoch,  ///< fileset, last epoch, logical key → nothing
  kFileset,         ///< fileset → FilesetRecord
  kSnapshot,        ///< fileset, epoch → SnapshotRecord (later)
  kQuota,           ///< subject → limits (later)
  kUsage,           ///< fileset, uid, gid → UsageRecord; all subjects' counters are sums of these cells
  kAge,             ///< fileset, day of content_time, ino → nothing: the purge index (later)
  kOrphan,          ///< ino → OrphanRecord
  kOwed,            ///< ost, command → OwedRecord
  kSession,         ///< session → SessionRecord
  kReply,           ///< session, slot → ReplyRecord
  kOpen,            ///< session, ino → OpenRecord: open for writing
  kRange,           ///< name → RangeRecord
  kChangelog,       ///< sequence → ChangelogRecord
  kOst,             ///< ost → OstRecord
};
inline constexpr size_t kFamilies = 20;
std::string_view family_name(Family family);

// ---- building
std::string inode_key(Ino ino);
std::string dentry_key(Ino parent, uint64_t hash, std::string_view name);
std::string dentry_prefix(Ino parent);
std::string dentry_from(Ino parent, uint64_t hash);  ///< the first possible key of that hash
std::string link_key(Ino ino, Ino parent, std::string_view name);
std::string link_prefix(Ino ino);
std::string xattr_key(Ino ino, std::string_view name);
std::string xattr_prefix(Ino ino);
std::string history_key(Family family, std::string_view key, Epoch last);
std::string history_by_epoch_key(FilesetId fileset, Epoch last, Family family, std::string_view key);
std::string fileset_key(FilesetId fileset);
std::string snapshot_key(FilesetId fileset, Epoch epoch);
std::string usage_key(FilesetId fileset, uint32_t uid, uint32_t gid);
std::string age_key(FilesetId fileset, uint32_t day, Ino ino);
std::string orphan_key(Ino ino);
std::string owed_key(OstId ost, CmdSeq command);
std::string owed_prefix(OstId ost);
std::string session_key(SessionId session);
std::string reply_key(SessionId session, uint16_t slot);
std::string reply_prefix(SessionId session);
std::string open_key(SessionId session, Ino ino);
std::string open_prefix(SessionId session);
std::string range_key(std::string_view name);
std::string changelog_key(uint64_t sequence);
std::string changelog_reader_key(uint32_t reader);   ///< in kMeta
std::string changelog_reader_prefix();
std::string ost_key(OstId ost);
std::string migration_key(Ino ino);
std::string migration_prefix();

/// Whom a limit or a counter speaks of. Tiers go by name, since a template may come and go. Quota keys.
struct Subject {
  enum class Kind : uint8_t { kFileset = 1, kTierUser = 2, kTierGroup = 3, kFilesetUser = 4 };
  Kind kind = Kind::kFileset;
  FilesetId fileset;   ///< kFileset, kFilesetUser
  std::string tier;    ///< kTierUser, kTierGroup; at most 255 bytes
  uint32_t id = 0;     ///< uid or gid
  auto operator<=>(const Subject&) const = default;
};
std::string quota_key(const Subject& subject);

// ---- parsing; nullopt for bytes that are no such key
struct DentryKey { Ino parent; uint64_t hash = 0; std::string_view name; };
struct LinkKey { Ino ino; Ino parent; std::string_view name; };
struct XattrKey { Ino ino; std::string_view name; };
struct UsageKey { FilesetId fileset; uint32_t uid = 0, gid = 0; };
struct OwedKey { OstId ost; CmdSeq command; };
struct ReplyKey { SessionId session; uint16_t slot = 0; };
struct OpenKey { SessionId session; Ino ino; };
struct AgeKey { FilesetId fileset; uint32_t day = 0; Ino ino; };
struct HistoryKey { Family family = Family::kMeta; std::string_view key; Epoch last; };
struct HistoryByEpochKey { FilesetId fileset; Epoch last; Family family = Family::kMeta; std::string_view key; };
struct SnapshotKey { FilesetId fileset; Epoch epoch; };
std::optional<Ino> parse_inode_key(std::string_view key);
std::optional<DentryKey> parse_dentry_key(std::string_view key);
std::optional<LinkKey> parse_link_key(std::string_view key);
std::optional<XattrKey> parse_xattr_key(std::string_view key);
std::optional<HistoryKey> parse_history_key(std::string_view key);
std::optional<HistoryByEpochKey> parse_history_by_epoch_key(std::string_view key);
std::optional<FilesetId> parse_fileset_key(std::string_view key);
std::optional<SnapshotKey> parse_snapshot_key(std::string_view key);
std::optional<UsageKey> parse_usage_key(std::string_view key);
std::optional<AgeKey> parse_age_key(std::string_view key);
std::optional<Ino> parse_orphan_key(std::string_view key);
std::optional<OwedKey> parse_owed_key(std::string_view key);
std::optional<SessionId> parse_session_key(std::string_view key);
std::optional<ReplyKey> parse_reply_key(std::string_view key);
std::optional<OpenKey> parse_open_key(std::string_view key);
std::optional<uint64_t> parse_changelog_key(std::string_view key);
std::optional<OstId> parse_ost_key(std::string_view key);
std::optional<Ino> parse_migration_key(std::string_view key);
std::optional<Subject> parse_quota_key(std::string_view key);

/// The first key behind all keys that begin with `prefix`; empty if there is none (prefix of 0xff only).
std::string prefix_end(std::string_view prefix);

/// hash63(name): SipHash-2-4 under the cluster's key (names are chosen by users, so collisions must not be), top bit off,
/// never 0-2: those are the cookies of the start, "." and "..".
class NameHash {
 public:
  NameHash() = default;
  explicit NameHash(std::array<uint8_t, 16> key);
  uint64_t operator()(std::string_view name) const;

 private:
  uint64_t k0_ = 0, k1_ = 0;
};
inline constexpr uint64_t kFirstNameHash = 3;

}  // namespace nacre::mds
