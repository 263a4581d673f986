// SPDX-License-Identifier: Apache-2.0
// A recount of everything: names against inodes, links, directories' counters, attributes, orphans, usage.
#include "tests/unit/metadata/ops/world.h"

namespace nacre::mds::test {
namespace {

struct Recount {
  std::map<uint64_t, schema::InodeRecordT> inodes;
  std::multimap<uint64_t, std::pair<uint64_t, std::string>> names;  ///< ino → parent, name
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> below;          ///< directory → entries, subdirectories
  std::multimap<uint64_t, std::pair<uint64_t, std::string>> links;
  std::set<uint64_t> orphans, with_xattrs;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::pair<int64_t, int64_t>> usage;
};

Recount load(const Store& store) {
  Recount all;
  View view(store, Tier::kFull);
  must(view.scan(Family::kInode, "", "", [&](std::string_view key, std::string_view value) {
    uint64_t ino = parse_inode_key(key)->v;
    if (ino != 0) all.inodes[ino] = must(decode_record<schema::InodeRecordT>(value));
    return true;
  }));
  must(view.scan(Family::kDentry, "", "", [&](std::string_view key, std::string_view value) {
    auto name = parse_dentry_key(key);
    auto entry = must(decode_record<schema::DentryRecordT>(value));
    EXPECT_EQ(name->hash, store.names()(name->name));
    all.names.emplace(entry.ino, std::pair(name->parent.v, std::string(name->name)));
    auto child = all.inodes.find(entry.ino);
    if (child == all.inodes.end()) {
      ADD_FAILURE() << "name '" << name->name << "' in " << name->parent.v << " leads to the missing inode " << entry.ino;
      return true;
    }
    EXPECT_EQ(entry.type, type_of(child->second.mode));
    all.below[name->parent.v].first += 1;
    all.below[name->parent.v].second += entry.type == schema::FileType::Directory;
    return true;
  }));
  must(view.scan(Family::kLink, "", "", [&](std::string_view key, std::string_view) {
    auto link = parse_link_key(key);
    all.links.emplace(link->ino.v, std::pair(link->parent.v, std::string(link->name)));
    return true;
  }));
  must(view.scan(Family::kXattr, "", "", [&](std::string_view key, std::string_view) {
    all.with_xattrs.insert(parse_xattr_key(key)->ino.v);
    return true;
  }));
  must(view.scan(Family::kOrphan, "", "", [&](std::string_view key, std::string_view) {
    all.orphans.insert(parse_orphan_key(key)->v);
    return true;
  }));
  return all;
}

void check_dir(const Recount& all, uint64_t ino, const schema::InodeRecordT& r) {
  auto it = all.below.find(ino);
  auto [entries, subdirs] = it == all.below.end() ? std::pair<uint64_t, uint32_t>() : it->second;
  EXPECT_EQ(r.entries, entries) << "directory " << ino;
  EXPECT_EQ(r.subdirs, subdirs) << "directory " << ino;
  EXPECT_EQ(r.nlink, all.orphans.contains(ino) ? 0 : subdirs + 2) << "directory " << ino;
  std::set<uint64_t> seen;
  for (uint64_t at = ino; at != kRootIno.v && !all.orphans.contains(at);) {
    if (!seen.insert(at).second || !all.inodes.contains(at)) {
      ADD_FAILURE() << "directory " << ino << " isn't reached from the root";
      return;
    }
    at = all.inodes.at(at).parent;
  }
}

void check_names(const Recount& all, uint64_t ino, const schema::InodeRecordT& r) {
  auto [from, to] = all.names.equal_range(ino);
  std::multiset<std::pair<uint64_t, std::string>> names, known;
  for (; from != to; ++from) names.insert(from->second);
  if (r.nlink > 0) known.insert({r.parent, std::string(as_text(r.name))});
  auto [link, last] = all.links.equal_range(ino);
  for (; link != last; ++link) known.insert(link->second);
  EXPECT_EQ(names, known) << "inode " << ino;
  if (!is_dir(r)) EXPECT_EQ(r.nlink, names.size()) << "inode " << ino;
}

}  // namespace

void check_namespace(const Store& store, const Journal& journal) {
  Recount all = load(store);
  for (const auto& [ino, r] : all.inodes) {
    EXPECT_EQ(r.ino, ino);
    if (is_dir(r)) check_dir(all, ino, r);
    if (ino != kRootIno.v) check_names(all, ino, r);
    EXPECT_EQ(all.orphans.contains(ino), r.nlink == 0) << "inode " << ino;
    auto& cell = all.usage[{r.fileset, r.uid, r.gid}];
    cell.first += static_cast<int64_t>(r.allocated);
    cell.second += 1;
  }
  for (uint64_t ino : all.with_xattrs) {
    ASSERT_TRUE(all.inodes.contains(ino)) << "attributes of the missing inode " << ino;
    EXPECT_TRUE(all.inodes.at(ino).flags & kHasXattrs);
  }
  for (const auto& [ino, link] : all.links) EXPECT_TRUE(all.inodes.contains(ino));
  for (uint64_t ino : all.orphans) EXPECT_TRUE(all.inodes.contains(ino));
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::pair<int64_t, int64_t>> stored;
  must(View(store, Tier::kFull).scan(Family::kUsage, "", "", [&](std::string_view key, std::string_view value) {
    auto cell = parse_usage_key(key);
    auto record = must(decode_record<schema::UsageRecordT>(value));
    stored[{cell->fileset.v, cell->uid, cell->gid}] = {record.bytes, record.inodes};
    return true;
  }));
  EXPECT_EQ(stored, all.usage);
  int64_t inodes = 0;
  for (const auto& [cell, amount] : all.usage) inodes += amount.second;
  EXPECT_EQ(journal.usage_total().inodes, inodes);
}

void World::add_fileset(uint32_t id, Ino root) {
  schema::FilesetRecordT f;
  f.id = id;
  f.root = root.v;
  f.parent = 1;
  Batch b;
  b.put_record(Family::kFileset, fileset_key(FilesetId(id)), f);
  must(journal->commit(std::move(b)));
  change(root, [&](auto& r) { r.fileset = id; });
  stop();
  start();
}

}  // namespace nacre::mds::test
