// SPDX-License-Identifier: Apache-2.0
// See batch.h. Small batches are searched through, larger ones through an index.
#include "metadata/store/batch.h"

namespace nacre::mds {
namespace {
constexpr size_t kIndexFrom = 12;  // below, comparing keys is cheaper than hashing them
size_t hash_of(Family family, std::string_view key) { return std::hash<std::string_view>{}(key) ^ static_cast<size_t>(family) * 0x9E3779B97F4A7C15ull; }
}  // namespace

size_t Batch::locate(Family family, std::string_view key) const {
  if (rows_.size() < kIndexFrom) {
    for (size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].family == family && rows_[i].key == key) return i;
    return rows_.size();
  }
  auto [from, to] = index_.equal_range(hash_of(family, key));
  for (; from != to; ++from) {
    const Row& row = rows_[from->second];
    if (row.family == family && row.key == key) return from->second;
  }
  return rows_.size();
}

const Batch::Row* Batch::find(Family family, std::string_view key) const {
  size_t i = locate(family, key);
  return i < rows_.size() ? &rows_[i] : nullptr;
}

void Batch::set(Family family, std::string key, std::optional<std::string> value) {
  size_t i = locate(family, key);
  if (i < rows_.size()) {
    bytes_ += value ? value->size() : 0;
    bytes_ -= rows_[i].value ? rows_[i].value->size() : 0;
    rows_[i].value = std::move(value);
    return;
  }
  bytes_ += key.size() + (value ? value->size() : 0);
  rows_.push_back(Row{family, std::move(key), std::move(value)});
  if (rows_.size() == kIndexFrom) {
    for (uint32_t r = 0; r < rows_.size(); ++r) index_.emplace(hash_of(rows_[r].family, rows_[r].key), r);
  } else if (rows_.size() > kIndexFrom) {
    index_.emplace(hash_of(family, rows_.back().key), static_cast<uint32_t>(rows_.size() - 1));
  }
}

void Batch::del_range(Family family, std::string begin, std::string end) {
  bytes_ += begin.size() + end.size();
  ranges_.push_back(Range{family, std::move(begin), std::move(end)});
}

void Batch::charge(const Charge& c) {
  if (c.bytes == 0 && c.inodes == 0) return;
  for (auto& have : charges_) {
    if (have.fileset == c.fileset && have.uid == c.uid && have.gid == c.gid) {
      have.bytes += c.bytes;
      have.inodes += c.inodes;
      return;
    }
  }
  charges_.push_back(c);
}

void Batch::account(const schema::InodeRecordT* before, const schema::InodeRecordT* after) {
  if (before && after && before->fileset == after->fileset && before->uid == after->uid && before->gid == after->gid) {
    charge({FilesetId(after->fileset), after->uid, after->gid, static_cast<int64_t>(after->allocated - before->allocated), 0});
    return;
  }
  if (before) charge({FilesetId(before->fileset), before->uid, before->gid, -static_cast<int64_t>(before->allocated), -1});
  if (after) charge({FilesetId(after->fileset), after->uid, after->gid, static_cast<int64_t>(after->allocated), 1});
}

void Batch::clear() {
  rows_.clear();
  index_.clear();
  ranges_.clear();
  charges_.clear();
  changelog_.clear();
  bytes_ = 0;
}

void Batch::append(Batch&& later) {
  if (empty()) {
    *this = std::move(later);
    later.clear();
    return;
  }
  for (auto& range : later.ranges_)  // ranges are deleted before any row is written, so rows that the later range covers go here
    for (auto& row : rows_)
      if (row.family == range.family && row.key >= range.begin && row.key < range.end) row.value.reset();
  for (auto& row : later.rows_) set(row.family, std::move(row.key), std::move(row.value));
  for (auto& range : later.ranges_) del_range(range.family, std::move(range.begin), std::move(range.end));
  for (auto& c : later.charges_) charge(c);
  for (auto& entry : later.changelog_) changelog_.push_back(std::move(entry));
  later.clear();
}

}  // namespace nacre::mds
