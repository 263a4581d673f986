// SPDX-License-Identifier: Apache-2.0
// See usage.h.
#include "metadata/store/usage.h"

namespace nacre::mds {

void Usage::add_sums(const Cell& cell, const Amount& delta) {
  std::string tier = tier_of_(cell.fileset);
  using Kind = Subject::Kind;
  const Subject subjects[] = {{Kind::kFileset, cell.fileset, "", 0},
                              {Kind::kFilesetUser, cell.fileset, "", cell.uid},
                              {Kind::kTierUser, FilesetId(), tier, cell.uid},
                              {Kind::kTierGroup, FilesetId(), tier, cell.gid}};
  std::lock_guard lock(sums_mutex_);
  for (const auto& s : subjects) {
    auto& sum = sums_[s];
    sum.bytes += delta.bytes;
    sum.inodes += delta.inodes;
    if (sum.bytes == 0 && sum.inodes == 0) sums_.erase(s);
  }
  total_.bytes += delta.bytes;
  total_.inodes += delta.inodes;
}

void Usage::load(const Cell& cell, const Amount& amount) {
  cells_[cell] = amount;
  add_sums(cell, amount);
}

std::vector<Usage::Change> Usage::plan(std::span<const Charge> charges) const {
  std::vector<Change> out;
  for (const auto& c : charges) {
    if (c.bytes == 0 && c.inodes == 0) continue;
    Cell cell{c.fileset, c.uid, c.gid};
    auto it = cells_.find(cell);
    Amount now = it == cells_.end() ? Amount{} : it->second;
    out.push_back({cell, {c.bytes, c.inodes}, {now.bytes + c.bytes, now.inodes + c.inodes}});
  }
  return out;
}

void Usage::apply(std::span<const Change> changes) {
  for (const auto& c : changes) {
    if (c.absolute.bytes == 0 && c.absolute.inodes == 0) cells_.erase(c.cell);
    else cells_[c.cell] = c.absolute;
    add_sums(c.cell, c.delta);
  }
}

Usage::Amount Usage::of(const Subject& subject) const {
  std::lock_guard lock(sums_mutex_);
  auto it = sums_.find(subject);
  return it == sums_.end() ? Amount{} : it->second;
}

Usage::Amount Usage::total() const {
  std::lock_guard lock(sums_mutex_);
  return total_;
}

}  // namespace nacre::mds
