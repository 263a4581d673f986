// SPDX-License-Identifier: Apache-2.0
// See entry_check.h.
#include "metadata/check/entry_check.h"

namespace nacre::mds::check {

Result<bool> lists(const View& view, const schema::InodeRecordT& r, Ino parent, std::string_view name) {
  if (r.parent == parent.v && as_text(r.name) == name) return true;
  if (is_dir(r)) return false;
  NACRE_TRY(auto row, view.get(Family::kLink, link_key(Ino(r.ino), parent, name)));
  return row.has_value();
}

Result<std::optional<Problem>> EntryCheck::look_inode(const DentryKey& key, const schema::DentryRecordT& entry) {
  using Out = std::optional<Problem>;
  const Ino ino(entry.ino);
  auto record = view_.inode(ino);
  if (!record && is_damage(record.error())) return Out();  // told in the inodes' phase
  if (!record) return std::unexpected(std::move(record).error());
  if (!*record) return Out(make(kNameWithoutInode, ino, true, fmt::format("the name {} in directory {} leads to no inode", quoted(key.name), key.parent)));
  if (key.hash != view_.store().names()(key.name)) return Out(make(kNameHash, ino, true, fmt::format("the name {} in directory {} is stored where nobody finds it", quoted(key.name), key.parent)));
  const auto type = type_of((*record)->mode);
  if (entry.type != type) {
    return Out(make(kNameType, ino, static_cast<uint64_t>(type), static_cast<uint64_t>(entry.type), fmt::format("the name {} in directory {} says another type than its inode", quoted(key.name), key.parent)));
  }
  NACRE_TRY(const bool known, lists(view_, **record, key.parent, key.name));
  if (!known) return Out(make(kNameUnlisted, ino, true, fmt::format("the name {} in directory {} is not known to its inode", quoted(key.name), key.parent)));
  return Out();
}

Result<std::optional<Problem>> EntryCheck::look(std::string_view raw, std::string_view value) {
  using Out = std::optional<Problem>;
  const auto key = parse_dentry_key(raw);
  if (!key) return Out(make(kNameDamaged, Ino(), true, fmt::format("a key of {} bytes that names no directory", raw.size())));
  auto entry = decode_record<schema::DentryRecordT>(value);
  Out found;
  if (!entry) {
    found = make(kNameDamaged, Ino(), true, fmt::format("what the name {} in directory {} leads to can't be read", quoted(key->name), key->parent));
  } else {
    NACRE_TRY(const DirFacts dir, dirs_.find(key->parent.v));
    const bool lost = dir.state == DirFacts::State::kMissing || dir.state == DirFacts::State::kNoDirectory || dir.state == DirFacts::State::kDeleted;
    if (lost) {
      found = make(kNameWithoutDirectory, Ino(entry->ino), true, fmt::format("the name {} lies in {}, which is no directory", quoted(key->name), key->parent));
    } else {
      NACRE_TRY(found, look_inode(*key, *entry));
    }
  }
  if (!found) return found;
  NACRE_TRY(std::string path, path_of(view_, key->parent, key->name));
  found->path = as_bytes(path);
  return found;
}

}  // namespace nacre::mds::check
