// SPDX-License-Identifier: Apache-2.0
// Names against inodes, links, directories' counters, attributes, layouts, orphans, usage.
#include "tests/unit/metadata/ops/check_namespace.h"

#include <map>
#include <set>

#include "common/layout/layout.h"
#include "metadata/ops/common.h"

namespace nacre::mds::test {
namespace {

using Cell = std::tuple<uint32_t, uint32_t, uint32_t>;
using Name = std::pair<uint64_t, std::string>;  ///< parent, name

struct Recount {
  std::map<uint64_t, schema::InodeRecordT> inodes;
  std::multimap<uint64_t, Name> names, links;                ///< by ino
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> below;   ///< directory → entries, subdirectories
  std::set<uint64_t> orphans, with_xattrs;
  std::map<Cell, std::pair<int64_t, int64_t>> usage, stored;
  std::vector<std::string> faults;

  template <class... A>
  void fault(fmt::format_string<A...> f, A&&... a) { faults.push_back(fmt::format(f, std::forward<A>(a)...)); }
};

/// Reads all rows of a family; `fn` gets the parsed key and the value.
template <class Parse, class F>
void each(Recount& all, const Store& store, Family family, Parse parse, F fn) {
  auto done = View(store, Tier::kFull).scan(family, "", "", [&](std::string_view key, std::string_view value) {
    if (auto parsed = parse(key)) fn(*parsed, value);
    else all.fault("family {} has a key of {} bytes that is none", family_name(family), key.size());
    return true;
  });
  if (!done) all.fault("family {} can't be read: {}", family_name(family), done.error().message());
}
template <class T>
T record(Recount& all, Family family, std::string_view value) {
  auto out = decode_record<T>(value);
  if (out) return std::move(*out);
  all.fault("a record of family {} is damaged: {}", family_name(family), out.error().message());
  return T();
}

void load_names(Recount& all, const Store& store) {
  each(all, store, Family::kDentry, parse_dentry_key, [&](const DentryKey& key, std::string_view value) {
    const auto entry = record<schema::DentryRecordT>(all, Family::kDentry, value);
    if (key.hash != store.names()(key.name)) all.fault("name '{}' in {} has the hash of another", key.name, key.parent);
    all.names.emplace(entry.ino, Name(key.parent.v, std::string(key.name)));
    auto child = all.inodes.find(entry.ino);
    if (child == all.inodes.end()) return all.fault("name '{}' in {} leads to the missing inode {}", key.name, key.parent, entry.ino);
    if (entry.type != type_of(child->second.mode)) all.fault("name '{}' in {} has another type than inode {}", key.name, key.parent, entry.ino);
    all.below[key.parent.v].first += 1;
    all.below[key.parent.v].second += entry.type == schema::FileType::Directory;
  });
  each(all, store, Family::kLink, parse_link_key, [&](const LinkKey& key, std::string_view) { all.links.emplace(key.ino.v, Name(key.parent.v, std::string(key.name))); });
}

Recount load(const Store& store) {
  Recount all;
  each(all, store, Family::kInode, parse_inode_key, [&](Ino ino, std::string_view value) {
    if (ino) all.inodes[ino.v] = record<schema::InodeRecordT>(all, Family::kInode, value);
  });
  load_names(all, store);
  each(all, store, Family::kXattr, parse_xattr_key, [&](const XattrKey& key, std::string_view) { all.with_xattrs.insert(key.ino.v); });
  each(all, store, Family::kOrphan, parse_orphan_key, [&](Ino ino, std::string_view) { all.orphans.insert(ino.v); });
  each(all, store, Family::kUsage, parse_usage_key, [&](const UsageKey& key, std::string_view value) {
    const auto cell = record<schema::UsageRecordT>(all, Family::kUsage, value);
    all.stored[{key.fileset.v, key.uid, key.gid}] = {cell.bytes, cell.inodes};
  });
  return all;
}

void check_dir(Recount& all, uint64_t ino, const schema::InodeRecordT& r) {
  auto it = all.below.find(ino);
  const auto [entries, subdirs] = it == all.below.end() ? std::pair<uint64_t, uint32_t>() : it->second;
  const bool orphan = all.orphans.contains(ino);
  if (r.entries != entries) all.fault("directory {} counts {} entries and has {}", ino, r.entries, entries);
  if (r.subdirs != subdirs) all.fault("directory {} counts {} subdirectories and has {}", ino, r.subdirs, subdirs);
  if (r.nlink != (orphan ? 0 : subdirs + 2)) all.fault("directory {} has nlink {} and {} subdirectories", ino, r.nlink, subdirs);
  std::set<uint64_t> seen;
  for (uint64_t at = ino; at != kRootIno.v && !all.orphans.contains(at);) {
    if (!seen.insert(at).second || !all.inodes.contains(at)) return all.fault("directory {} isn't reached from the root", ino);
    at = all.inodes.at(at).parent;
  }
}

void check_names(Recount& all, uint64_t ino, const schema::InodeRecordT& r) {
  std::multiset<Name> names, known;
  for (auto [at, end] = all.names.equal_range(ino); at != end; ++at) names.insert(at->second);
  if (r.nlink > 0) known.insert({r.parent, std::string(as_text(r.name))});
  for (auto [at, end] = all.links.equal_range(ino); at != end; ++at) known.insert(at->second);
  if (names != known) all.fault("inode {} knows of {} names and has {}, or others", ino, known.size(), names.size());
  if (!is_dir(r) && r.nlink != names.size()) all.fault("inode {} has nlink {} and {} names", ino, r.nlink, names.size());
}

void check_layout(Recount& all, uint64_t ino, const schema::InodeRecordT& r) {
  if (is_file(r) && (!r.layout || r.layout->components.empty())) return all.fault("file {} has no layout", ino);
  if (!r.layout) return;
  if (auto valid = layout::validate(*r.layout); !valid) all.fault("inode {} has an invalid layout: {}", ino, valid.error().message());
  for (const auto& c : r.layout->components) {
    const bool sound = c->instantiated ? !c->osts.empty() && c->stripes_used >= 1 && c->stripes_used <= c->osts.size() : c->osts.empty() && c->stripes_used == 0;
    if (!sound) all.fault("inode {} has a component with {} targets and {} stripes in use", ino, c->osts.size(), c->stripes_used);
    if (is_dir(r) && c->instantiated) all.fault("directory {} has objects", ino);
  }
}

void check_usage(Recount& all, const Journal& journal) {
  if (all.stored != all.usage) all.fault("the stored usage counters are not what a recount gives");
  int64_t inodes = 0;
  for (const auto& [cell, amount] : all.usage) inodes += amount.second;
  if (journal.usage_total().inodes != inodes) all.fault("the journal counts {} inodes, there are {}", journal.usage_total().inodes, inodes);
}

}  // namespace

std::vector<std::string> namespace_faults(const Store& store, const Journal& journal) {
  Recount all = load(store);
  for (const auto& [ino, r] : all.inodes) {
    if (r.ino != ino) all.fault("inode {} lies under number {}", r.ino, ino);
    if (is_dir(r)) check_dir(all, ino, r);
    if (ino != kRootIno.v) check_names(all, ino, r);
    check_layout(all, ino, r);
    if (all.orphans.contains(ino) != (r.nlink == 0)) all.fault("inode {} has nlink {} and {} orphan record", ino, r.nlink, all.orphans.contains(ino) ? "an" : "no");
    auto& cell = all.usage[{r.fileset, r.uid, r.gid}];
    cell.first += static_cast<int64_t>(r.allocated);
    cell.second += 1;
  }
  for (uint64_t ino : all.with_xattrs)
    if (!all.inodes.contains(ino) || !(all.inodes.at(ino).flags & kHasXattrs)) all.fault("attributes of inode {}, which is missing or knows of none", ino);
  for (const auto& [ino, link] : all.links)
    if (!all.inodes.contains(ino)) all.fault("a link to the missing inode {}", ino);
  for (uint64_t ino : all.orphans)
    if (!all.inodes.contains(ino)) all.fault("an orphan record of the missing inode {}", ino);
  check_usage(all, journal);
  return std::move(all.faults);
}

}  // namespace nacre::mds::test
