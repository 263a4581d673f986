// SPDX-License-Identifier: Apache-2.0
// Building and parsing of keys. See keys.h.
#include "metadata/store/keys.h"

#include <cassert>

namespace nacre::mds {
namespace {

void add8(std::string& out, uint8_t v) { out.push_back(static_cast<char>(v)); }
void add16(std::string& out, uint16_t v) {
  add8(out, static_cast<uint8_t>(v >> 8));
  add8(out, static_cast<uint8_t>(v));
}
void add32(std::string& out, uint32_t v) {
  add16(out, static_cast<uint16_t>(v >> 16));
  add16(out, static_cast<uint16_t>(v));
}
void add64(std::string& out, uint64_t v) {
  add32(out, static_cast<uint32_t>(v >> 32));
  add32(out, static_cast<uint32_t>(v));
}

/// Takes numbers off the front; `bad` once the bytes ran out.
struct Cursor {
  std::string_view left;
  bool bad = false;
  uint64_t take(size_t bytes) {
    if (left.size() < bytes) {
      bad = true;
      return 0;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i) v = v << 8 | static_cast<uint8_t>(left[i]);
    left.remove_prefix(bytes);
    return v;
  }
  uint8_t u8() { return static_cast<uint8_t>(take(1)); }
  uint16_t u16() { return static_cast<uint16_t>(take(2)); }
  uint32_t u32() { return static_cast<uint32_t>(take(4)); }
  uint64_t u64() { return take(8); }
  /// The rest but for the last `behind` bytes.
  std::string_view rest(size_t behind = 0) {
    if (left.size() < behind) {
      bad = true;
      return {};
    }
    auto out = left.substr(0, left.size() - behind);
    left.remove_prefix(out.size());
    return out;
  }
  bool whole() const { return !bad && left.empty(); }
};

constexpr std::array<std::string_view, kFamilies> kNames = {
    "default", "inode", "dentry", "link", "xattr", "history", "history_by_epoch", "fileset", "snapshot", "quota",
    "usage", "age", "orphan", "owed", "session", "reply", "open", "range", "changelog", "ost"};

}  // namespace

std::string_view family_name(Family family) { return kNames[static_cast<size_t>(family)]; }

std::string inode_key(Ino ino) {
  std::string k;
  add64(k, ino.v);
  return k;
}
std::string dentry_prefix(Ino parent) { return inode_key(parent); }
std::string dentry_from(Ino parent, uint64_t hash) {
  std::string k;
  k.reserve(16);
  add64(k, parent.v);
  add64(k, hash);
  return k;
}
std::string dentry_key(Ino parent, uint64_t hash, std::string_view name) {
  std::string k;
  k.reserve(16 + name.size());
  add64(k, parent.v);
  add64(k, hash);
  k.append(name);
  return k;
}
std::string link_prefix(Ino ino) { return inode_key(ino); }
std::string link_key(Ino ino, Ino parent, std::string_view name) {
  std::string k;
  add64(k, ino.v);
  add64(k, parent.v);
  k.append(name);
  return k;
}
std::string xattr_prefix(Ino ino) { return inode_key(ino); }
std::string xattr_key(Ino ino, std::string_view name) {
  std::string k;
  add64(k, ino.v);
  k.append(name);
  return k;
}
std::string history_key(Family family, std::string_view key, Epoch last) {
  std::string k;
  add8(k, static_cast<uint8_t>(family));
  k.append(key);
  add32(k, last.v);
  return k;
}
std::string history_by_epoch_key(FilesetId fileset, Epoch last, Family family, std::string_view key) {
  std::string k;
  add32(k, fileset.v);
  add32(k, last.v);
  add8(k, static_cast<uint8_t>(family));
  k.append(key);
  return k;
}
std::string fileset_key(FilesetId fileset) {
  std::string k;
  add32(k, fileset.v);
  return k;
}
std::string snapshot_key(FilesetId fileset, Epoch epoch) {
  std::string k;
  add32(k, fileset.v);
  add32(k, epoch.v);
  return k;
}
std::string usage_key(FilesetId fileset, uint32_t uid, uint32_t gid) {
  std::string k;
  add32(k, fileset.v);
  add32(k, uid);
  add32(k, gid);
  return k;
}
std::string age_key(FilesetId fileset, uint32_t day, Ino ino) {
  std::string k;
  add32(k, fileset.v);
  add32(k, day);
  add64(k, ino.v);
  return k;
}
std::string orphan_key(Ino ino) { return inode_key(ino); }
std::string owed_prefix(OstId ost) { return ost_key(ost); }
std::string owed_key(OstId ost, CmdSeq command) {
  std::string k;
  add32(k, ost.v);
  add64(k, command.v);
  return k;
}
std::string session_key(SessionId session) {
  std::string k;
  add64(k, session.v);
  return k;
}
std::string reply_prefix(SessionId session) { return session_key(session); }
std::string reply_key(SessionId session, uint16_t slot) {
  std::string k;
  add64(k, session.v);
  add16(k, slot);
  return k;
}
std::string open_prefix(SessionId session) { return session_key(session); }
std::string open_key(SessionId session, Ino ino) {
  std::string k;
  add64(k, session.v);
  add64(k, ino.v);
  return k;
}
std::string range_key(std::string_view name) { return std::string(name); }
std::string changelog_key(uint64_t sequence) {
  std::string k;
  add64(k, sequence);
  return k;
}
std::string changelog_reader_prefix() { return "changelog_reader"; }
std::string changelog_reader_key(uint32_t reader) {
  std::string k = changelog_reader_prefix();
  add32(k, reader);
  return k;
}
std::string ost_key(OstId ost) {
  std::string k;
  add32(k, ost.v);
  return k;
}
std::string migration_prefix() { return "migrate"; }
std::string migration_key(Ino ino) { return migration_prefix() + inode_key(ino); }

std::string quota_key(const Subject& s) {
  std::string k;
  add8(k, static_cast<uint8_t>(s.kind));
  switch (s.kind) {
    case Subject::Kind::kFileset: add32(k, s.fileset.v); break;
    case Subject::Kind::kFilesetUser:
      add32(k, s.fileset.v);
      add32(k, s.id);
      break;
    case Subject::Kind::kTierUser:
    case Subject::Kind::kTierGroup:
      assert(s.tier.size() <= 255);
      add8(k, static_cast<uint8_t>(s.tier.size()));
      k.append(s.tier);
      add32(k, s.id);
      break;
  }
  return k;
}

std::optional<Ino> parse_inode_key(std::string_view key) {
  Cursor c{key};
  Ino ino(c.u64());
  return c.whole() ? std::optional(ino) : std::nullopt;
}
std::optional<DentryKey> parse_dentry_key(std::string_view key) {
  Cursor c{key};
  DentryKey out;
  out.parent = Ino(c.u64());
  out.hash = c.u64();
  out.name = c.rest();
  return c.whole() && !out.name.empty() ? std::optional(out) : std::nullopt;
}
std::optional<LinkKey> parse_link_key(std::string_view key) {
  Cursor c{key};
  LinkKey out;
  out.ino = Ino(c.u64());
  out.parent = Ino(c.u64());
  out.name = c.rest();
  return c.whole() && !out.name.empty() ? std::optional(out) : std::nullopt;
}
std::optional<XattrKey> parse_xattr_key(std::string_view key) {
  Cursor c{key};
  XattrKey out;
  out.ino = Ino(c.u64());
  out.name = c.rest();
  return c.whole() && !out.name.empty() ? std::optional(out) : std::nullopt;
}
namespace {
std::optional<Family> to_family(uint8_t number) { return number < kFamilies ? std::optional(static_cast<Family>(number)) : std::nullopt; }
}  // namespace
std::optional<HistoryKey> parse_history_key(std::string_view key) {
  Cursor c{key};
  auto family = to_family(c.u8());
  HistoryKey out;
  out.key = c.rest(4);
  out.last = Epoch(c.u32());
  if (!c.whole() || !family) return std::nullopt;
  out.family = *family;
  return out;
}
std::optional<HistoryByEpochKey> parse_history_by_epoch_key(std::string_view key) {
  Cursor c{key};
  HistoryByEpochKey out;
  out.fileset = FilesetId(c.u32());
  out.last = Epoch(c.u32());
  auto family = to_family(c.u8());
  out.key = c.rest();
  if (!c.whole() || !family) return std::nullopt;
  out.family = *family;
  return out;
}
std::optional<FilesetId> parse_fileset_key(std::string_view key) {
  Cursor c{key};
  FilesetId out(c.u32());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<SnapshotKey> parse_snapshot_key(std::string_view key) {
  Cursor c{key};
  SnapshotKey out;
  out.fileset = FilesetId(c.u32());
  out.epoch = Epoch(c.u32());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<UsageKey> parse_usage_key(std::string_view key) {
  Cursor c{key};
  UsageKey out;
  out.fileset = FilesetId(c.u32());
  out.uid = c.u32();
  out.gid = c.u32();
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<AgeKey> parse_age_key(std::string_view key) {
  Cursor c{key};
  AgeKey out;
  out.fileset = FilesetId(c.u32());
  out.day = c.u32();
  out.ino = Ino(c.u64());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<Ino> parse_orphan_key(std::string_view key) { return parse_inode_key(key); }
std::optional<OwedKey> parse_owed_key(std::string_view key) {
  Cursor c{key};
  OwedKey out;
  out.ost = OstId(c.u32());
  out.command = CmdSeq(c.u64());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<SessionId> parse_session_key(std::string_view key) {
  Cursor c{key};
  SessionId out(c.u64());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<ReplyKey> parse_reply_key(std::string_view key) {
  Cursor c{key};
  ReplyKey out;
  out.session = SessionId(c.u64());
  out.slot = c.u16();
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<OpenKey> parse_open_key(std::string_view key) {
  Cursor c{key};
  OpenKey out;
  out.session = SessionId(c.u64());
  out.ino = Ino(c.u64());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<uint64_t> parse_changelog_key(std::string_view key) {
  Cursor c{key};
  uint64_t out = c.u64();
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<OstId> parse_ost_key(std::string_view key) {
  Cursor c{key};
  OstId out(c.u32());
  return c.whole() ? std::optional(out) : std::nullopt;
}
std::optional<Ino> parse_migration_key(std::string_view key) {
  if (!key.starts_with(migration_prefix())) return std::nullopt;
  return parse_inode_key(key.substr(migration_prefix().size()));
}
std::optional<Subject> parse_quota_key(std::string_view key) {
  Cursor c{key};
  Subject out;
  out.kind = static_cast<Subject::Kind>(c.u8());
  switch (out.kind) {
    case Subject::Kind::kFileset: out.fileset = FilesetId(c.u32()); break;
    case Subject::Kind::kFilesetUser:
      out.fileset = FilesetId(c.u32());
      out.id = c.u32();
      break;
    case Subject::Kind::kTierUser:
    case Subject::Kind::kTierGroup: {
      size_t size = c.u8();
      if (c.bad || c.left.size() != size + 4) return std::nullopt;
      out.tier = c.rest(4);
      out.id = c.u32();
      break;
    }
    default: return std::nullopt;
  }
  return c.whole() ? std::optional(out) : std::nullopt;
}

std::string prefix_end(std::string_view prefix) {
  std::string out(prefix);
  while (!out.empty() && static_cast<uint8_t>(out.back()) == 0xff) out.pop_back();
  if (!out.empty()) out.back() = static_cast<char>(static_cast<uint8_t>(out.back()) + 1);
  return out;
}

}  // namespace nacre::mds
