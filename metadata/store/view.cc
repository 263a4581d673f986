// SPDX-License-Identifier: Apache-2.0
// Reads: own rows, then the turn's, then the database.
#include <map>

#include "metadata/store/rocks.h"

namespace nacre::mds {
namespace {

rocksdb::ReadOptions read_options(Tier tier, const void* snapshot) {
  rocksdb::ReadOptions o;
  o.snapshot = static_cast<const rocksdb::Snapshot*>(snapshot);
  o.read_tier = tier == Tier::kCached ? rocksdb::kBlockCacheTier : rocksdb::kReadAllTier;
  return o;
}

std::string describe(Family family, std::string_view key) {
  std::string out = fmt::format("family {}, key ", family_name(family));
  for (char c : key.substr(0, 64)) out += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return out;
}

}  // namespace

Snapshot::Snapshot(const Store& store) : store_(store), handle_(store.rocks().db->GetSnapshot()) {}
Snapshot::~Snapshot() { store_.rocks().db->ReleaseSnapshot(static_cast<const rocksdb::Snapshot*>(handle_)); }

Error View::named(Error e, Family family, std::string_view key) {
  e.detail += fmt::format("{}({})", e.detail.empty() ? "" : " ", describe(family, key));
  return e;
}

Result<std::optional<std::string>> View::get(Family family, std::string_view key) const {
  for (const Batch* batch : {own_, turn_}) {
    if (!batch) continue;
    if (auto* row = batch->find(family, key)) return row->value;
  }
  std::string value;
  auto& rocks = store_->rocks();
  auto s = rocks.db->Get(read_options(tier_, snapshot_), rocks.family(family), slice(key), &value);
  if (s.ok()) return std::optional(std::move(value));
  if (s.IsNotFound()) return std::optional<std::string>();
  return Err(to_error(s, "reading " + describe(family, key)));
}

Result<std::vector<std::optional<std::string>>> View::multi_get(Family family, const std::vector<std::string>& keys) const {
  std::vector<std::optional<std::string>> out(keys.size());
  std::vector<rocksdb::Slice> wanted;
  std::vector<size_t> place;
  for (size_t i = 0; i < keys.size(); ++i) {
    const Batch::Row* row = own_ ? own_->find(family, keys[i]) : nullptr;
    if (!row && turn_) row = turn_->find(family, keys[i]);
    if (row) {
      out[i] = row->value;
      continue;
    }
    wanted.push_back(slice(keys[i]));
    place.push_back(i);
  }
  auto& rocks = store_->rocks();
  std::vector<rocksdb::PinnableSlice> values(wanted.size());
  std::vector<rocksdb::Status> statuses(wanted.size());
  rocks.db->MultiGet(read_options(tier_, snapshot_), rocks.family(family), wanted.size(), wanted.data(), values.data(), statuses.data());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (statuses[i].ok()) out[place[i]] = values[i].ToString();
    else if (!statuses[i].IsNotFound()) return Err(to_error(statuses[i], "reading " + describe(family, text(wanted[i]))));
  }
  return out;
}

Result<void> View::scan(Family family, std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) const {
  if ((own_ && !own_->empty()) || (turn_ && !turn_->empty())) return scan_merged(family, begin, end, fn);
  auto& rocks = store_->rocks();
  auto options = read_options(tier_, snapshot_);
  rocksdb::Slice bound = slice(end);
  if (!end.empty()) options.iterate_upper_bound = &bound;
  std::unique_ptr<rocksdb::Iterator> it(rocks.db->NewIterator(options, rocks.family(family)));
  for (it->Seek(slice(begin)); it->Valid(); it->Next())
    if (!fn(text(it->key()), text(it->value()))) return {};
  if (!it->status().ok()) return Err(to_error(it->status(), "scanning from " + describe(family, begin)));
  return {};
}

Result<void> View::scan_merged(Family family, std::string_view begin, std::string_view end, const std::function<bool(std::string_view, std::string_view)>& fn) const {
  std::map<std::string_view, const std::optional<std::string>*> over;  // own rows replace the turn's
  for (const Batch* batch : {turn_, own_}) {
    if (!batch) continue;
    for (const auto& row : batch->rows())
      if (row.family == family && row.key >= begin && (end.empty() || row.key < end)) over[row.key] = &row.value;
  }
  auto next = over.begin();
  bool go = true;
  auto emit_until = [&](const std::string_view* key) {  // rows of the batches below `key`, all for nullptr
    for (; go && next != over.end() && (!key || next->first < *key); ++next)
      if (*next->second) go = fn(next->first, **next->second);
  };
  View stored(*store_, tier_);
  NACRE_CHECK_OK(stored.scan(family, begin, end, [&](std::string_view key, std::string_view value) {
    emit_until(&key);
    if (go && next != over.end() && next->first == key) {
      if (*next->second) go = fn(key, **next->second);
      ++next;
    } else if (go) {
      go = fn(key, value);
    }
    return go;
  }));
  emit_until(nullptr);
  return {};
}

Result<std::optional<schema::InodeRecordT>> View::inode(Ino ino) const {
  if (!ino) return std::optional<schema::InodeRecordT>();
  return get_record<schema::InodeRecordT>(Family::kInode, inode_key(ino));
}

Result<std::optional<schema::DentryRecordT>> View::dentry(Ino parent, std::string_view name) const {
  return get_record<schema::DentryRecordT>(Family::kDentry, dentry_key(parent, store_->names()(name), name));
}

}  // namespace nacre::mds
