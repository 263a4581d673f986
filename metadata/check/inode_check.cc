// SPDX-License-Identifier: Apache-2.0
// See inode_check.h.
#include "metadata/check/inode_check.h"

#include <algorithm>
#include <unordered_set>

#include "common/layout/layout.h"

namespace nacre::mds::check {
namespace {
constexpr size_t kMaxLinksTold = 20;  ///< dangling link rows of one inode
}  // namespace

Result<DirFacts> Dirs::find(uint64_t ino) {
  auto it = known_.find(ino);
  if (it != known_.end()) return it->second;
  DirFacts facts;
  auto record = view_.inode(Ino(ino));
  if (!record && !is_damage(record.error())) return std::unexpected(std::move(record).error());
  if (!record) facts.state = DirFacts::State::kDamaged;
  else if (*record && !is_dir(**record)) facts.state = DirFacts::State::kNoDirectory;
  else if (*record) facts.state = (*record)->nlink == 0 ? DirFacts::State::kDeleted : DirFacts::State::kLive;
  if (record && *record) facts.parent = (*record)->parent;
  known_[ino] = facts;
  return facts;
}

Result<bool> leads(const View& view, Ino parent, std::string_view name, Ino ino) {
  auto entry = view.dentry(parent, name);
  if (!entry && !is_damage(entry.error())) return std::unexpected(std::move(entry).error());
  return !entry || (*entry && (*entry)->ino == ino.v);
}

/// A name counts if its row leads to the inode and lies in a directory that exists (or whose record nobody can read).
static Result<bool> counts(const View& view, Dirs& dirs, Ino parent, std::string_view name, Ino ino) {
  NACRE_TRY(const DirFacts dir, dirs.find(parent.v));
  if (dir.state != DirFacts::State::kLive && dir.state != DirFacts::State::kDamaged) return false;
  return leads(view, parent, name, ino);
}

Result<Names> names_of(const View& view, Dirs& dirs, const schema::InodeRecordT& r) {
  Names out;
  const Ino ino(r.ino);
  if (!r.name.empty()) {
    NACRE_TRY(out.primary, counts(view, dirs, Ino(r.parent), as_text(r.name), ino));
  }
  std::vector<Names::Link> links;
  NACRE_CHECK_OK(view.scan(Family::kLink, link_prefix(ino), prefix_end(link_prefix(ino)), [&](std::string_view key, std::string_view) {
    if (auto link = parse_link_key(key)) links.push_back({link->parent, std::string(link->name)});
    return true;
  }));
  for (Names::Link& link : links) {
    const bool same = link.parent.v == r.parent && link.name == as_text(r.name);  // listed twice is one name
    NACRE_TRY(bool good, counts(view, dirs, link.parent, link.name, ino));
    good = good && !same && !is_dir(r);
    (good ? out.good : out.dangling).push_back(std::move(link));
  }
  return out;
}

Result<DirCount> count_dir(const View& view, const schema::InodeRecordT& r) {
  DirCount out;
  out.record = encode_record(r);
  const std::string prefix = dentry_prefix(Ino(r.ino));
  NACRE_CHECK_OK(view.scan(Family::kDentry, prefix, prefix_end(prefix), [&](std::string_view, std::string_view value) {
    auto entry = view_record<schema::DentryRecordT>(value);
    out.entries += 1;
    out.subdirs += entry && (*entry)->type() == schema::FileType::Directory;
    return true;
  }));
  return out;
}

// ---- names

/// An inode with nlink 0 waits for its last user.
Result<void> InodeCheck::look_nameless(const schema::InodeRecordT& r, const Names& names, std::vector<Problem>& out) {
  if (names.count() > 0) {
    out.push_back(make(kLinkCount, Ino(r.ino), names.count(), 0, "it has names and counts as deleted"));
    return {};
  }
  NACRE_TRY(auto orphan, view_.get(Family::kOrphan, orphan_key(Ino(r.ino))));
  if (!orphan) out.push_back(make(kOrphanUnlisted, Ino(r.ino), true, "it has no name and is not on the list of those to be destroyed"));
  return {};
}

Result<void> InodeCheck::look_names(const schema::InodeRecordT& r, const Names& names, std::vector<Problem>& out) {
  const Ino ino(r.ino);
  for (size_t i = 0; i < std::min(names.dangling.size(), kMaxLinksTold); ++i) {
    const Names::Link& link = names.dangling[i];
    const bool more = i + 1 == kMaxLinksTold && names.dangling.size() > kMaxLinksTold;
    out.push_back(make(kLinkDangling, ino, true, fmt::format("it lists the name {} in directory {}, which does not lead to it{}", quoted(link.name), link.parent, more ? fmt::format(" ({} more like that)", names.dangling.size() - kMaxLinksTold) : "")));
  }
  if (names.count() == 0) {
    out.push_back(make(kUnreachable, ino, true, fmt::format("no name leads to it; it was {} in directory {}", quoted(as_text(r.name)), r.parent)));
    return {};
  }
  if (!names.primary) out.push_back(make(kNameLost, ino, true, fmt::format("its first name {} in directory {} does not lead to it, others do", quoted(as_text(r.name)), r.parent)));
  if (is_dir(r)) {
    NACRE_TRY(const bool cycle, starts_cycle(r.ino));
    if (cycle) out.push_back(make(kCycle, ino, true, "going up from it one comes back to it, never to the root"));
    return {};
  }
  // What is told above already is no second fault.
  const size_t told = names.dangling.size() + !names.primary;
  if (r.nlink != names.count() && r.nlink != names.count() + told) out.push_back(make(kLinkCount, ino, names.count(), r.nlink, "its count of names is wrong"));
  return {};
}

/// True for one directory of each ring: the one with the lowest number.
Result<bool> InodeCheck::starts_cycle(uint64_t ino) {
  std::vector<uint64_t> way;
  std::unordered_set<uint64_t> seen;
  bool found = false;
  for (uint64_t at = ino; at != kRootIno.v && !climbed_.contains(at);) {
    if (!seen.insert(at).second) {
      auto ring = std::find(way.begin(), way.end(), at);
      found = std::find(ring, way.end(), ino) != way.end() && *std::min_element(ring, way.end()) == ino;
      return found;  // members of the ring are not remembered: each has to look for itself
    }
    way.push_back(at);
    NACRE_TRY(const DirFacts dir, dirs_.find(at));
    if (dir.state != DirFacts::State::kLive) break;  // told there
    at = dir.parent;
  }
  for (uint64_t at : way) climbed_[at] = true;
  return false;
}

// ---- counts and layout

Result<void> InodeCheck::look_dir(const schema::InodeRecordT& r, std::vector<Problem>& out) {
  const Ino ino(r.ino);
  NACRE_TRY(const DirCount counted, count_dir(view_, r));
  if (r.entries != counted.entries) out.push_back(make(kEntries, ino, counted.entries, r.entries, "its count of names in it is wrong"));
  if (r.subdirs != counted.subdirs) out.push_back(make(kSubdirs, ino, counted.subdirs, r.subdirs, "its count of directories in it is wrong"));
  else if (r.nlink != 0 && r.nlink != r.subdirs + 2) out.push_back(make(kLinkCount, ino, r.subdirs + 2, r.nlink, "a directory has two links and one for each directory in it"));
  return {};
}

void InodeCheck::look_layout(const schema::InodeRecordT& r, std::vector<Problem>& out) {
  const Ino ino(r.ino);
  if (is_file(r) && (!r.layout || r.layout->components.empty())) return out.push_back(make(kLayoutDamaged, ino, false, "it has no layout, so nothing says where its data lies: restore it from a copy"));
  if (!r.layout) return;
  if (auto valid = layout::validate(*r.layout); !valid) return out.push_back(make(kLayoutDamaged, ino, false, valid.error().detail + ": restore it from a copy"));
  for (size_t i = 0; i < r.layout->components.size(); ++i) {
    const auto& c = *r.layout->components[i];
    const bool sound = c.instantiated ? !is_dir(r) && !c.osts.empty() && c.osts.size() <= layout::kMaxStripes && c.stripes_used >= 1 && c.stripes_used <= c.osts.size() : c.osts.empty() && c.stripes_used == 0;
    if (!sound) return out.push_back(make(kLayoutDamaged, ino, false, fmt::format("component {} has {} storage targets and {} stripes in use: restore it from a copy", i, c.osts.size(), c.stripes_used)));
  }
}

Result<void> InodeCheck::look(const schema::InodeRecordT& r, std::vector<Problem>& out) {
  NACRE_TRY(const Names names, names_of(view_, dirs_, r));
  if (r.ino != kRootIno.v) NACRE_CHECK_OK(r.nlink == 0 ? look_nameless(r, names, out) : look_names(r, names, out));
  if (is_dir(r)) NACRE_CHECK_OK(look_dir(r, out));
  look_layout(r, out);
  return {};
}

// ---- rows of other families

/// The inode that `rows` rows of `family` name.
Result<void> InodeCheck::look_owner(Ino ino, Family family, size_t rows, std::vector<Problem>& out) {
  auto record = view_.inode(ino);
  if (!record && is_damage(record.error())) return {};  // told as that
  if (!record) return std::unexpected(std::move(record).error());
  if (!*record) {
    Problem p = make(kRowsWithoutInode, ino, 0, rows, fmt::format("family {} has rows of an inode that does not exist", family_name(family)));
    out.push_back(std::move(p));
    return {};
  }
  if (family == Family::kXattr && !((*record)->flags & kHasXattrs)) out.push_back(make(kXattrUnlisted, ino, true, "it has extended attributes that would stay when it is deleted"));
  if (family == Family::kOrphan && (*record)->nlink != 0) out.push_back(make(kOrphanNamed, ino, true, "it has a name and is on the list of those to be destroyed"));
  return {};
}

Result<void> InodeCheck::look_rows(Ino from, Ino to, std::vector<Problem>& out) {
  for (Family family : {Family::kLink, Family::kXattr, Family::kOrphan}) {
    std::vector<std::pair<Ino, size_t>> owners;
    const std::string end = to.v == 0 ? "" : inode_key(Ino(to.v + 1));  // keys of all three begin with the number of the inode
    NACRE_CHECK_OK(view_.scan(family, inode_key(from), end, [&](std::string_view key, std::string_view) {
      if (key.size() < inode_key(from).size()) return true;
      auto ino = parse_inode_key(key.substr(0, inode_key(from).size()));
      if (ino && (owners.empty() || owners.back().first != *ino)) owners.emplace_back(*ino, 0);
      if (ino) ++owners.back().second;
      return true;
    }));
    for (auto [ino, rows] : owners) NACRE_CHECK_OK(look_owner(ino, family, rows, out));
  }
  return {};
}

}  // namespace nacre::mds::check
