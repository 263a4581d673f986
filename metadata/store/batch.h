// SPDX-License-Identifier: Apache-2.0
// Batch: the rows that one or more whole operations write, the usage they charge and what they leave in the changelog.
// A row that is written twice stays once, with the last value. It can be read through (find), which is how an operation
// sees what it and the earlier operations of its turn have written. One thread.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/schema/codec.h"
#include "metadata/store/keys.h"

namespace nacre::mds {

/// What one owner's share of one fileset changes by. The absolute counters are computed in Journal::commit and nowhere else.
struct Charge {
  FilesetId fileset;
  uint32_t uid = 0, gid = 0;
  int64_t bytes = 0, inodes = 0;
};

class Batch {
 public:
  struct Row {
    Family family;
    std::string key;
    std::optional<std::string> value;  ///< nullopt = deleted
  };

  void put(Family family, std::string key, std::string value) { set(family, std::move(key), std::move(value)); }
  void del(Family family, std::string key) { set(family, std::move(key), std::nullopt); }
  template <class T>
  void put_record(Family family, std::string key, const T& record) { put(family, std::move(key), encode_record(record)); }
  void put_inode(const schema::InodeRecordT& record) { put_record(Family::kInode, inode_key(Ino(record.ino)), record); }
  void del_inode(Ino ino) { del(Family::kInode, inode_key(ino)); }
  /// Deletes what is stored of [begin, end) when the batch is committed, before its rows are written. Not seen by find().
  void del_range(Family family, std::string begin, std::string end);

  void charge(const Charge& charge);
  /// Charges the difference between two states of one inode; null = absent. Same owner and size cost nothing.
  void account(const schema::InodeRecordT* before, const schema::InodeRecordT* after);
  void log(schema::ChangelogRecordT entry) { changelog_.push_back(std::move(entry)); }

  const Row* find(Family family, std::string_view key) const;
  const std::vector<Row>& rows() const { return rows_; }
  struct Range { Family family; std::string begin, end; };
  const std::vector<Range>& ranges() const { return ranges_; }
  const std::vector<Charge>& charges() const { return charges_; }
  std::vector<schema::ChangelogRecordT>& changelog() { return changelog_; }
  bool empty() const { return rows_.empty() && ranges_.empty() && charges_.empty() && changelog_.empty(); }
  size_t bytes() const { return bytes_; }
  void clear();
  /// Adds a later operation's rows: this batch becomes one commit of both.
  void append(Batch&& later);

 private:
  void set(Family family, std::string key, std::optional<std::string> value);
  size_t locate(Family family, std::string_view key) const;  ///< rows_.size() if absent
  std::vector<Row> rows_;
  std::unordered_multimap<size_t, uint32_t> index_;  ///< hash → row, kept from kIndexFrom rows on
  std::vector<Range> ranges_;
  std::vector<Charge> charges_;
  std::vector<schema::ChangelogRecordT> changelog_;
  size_t bytes_ = 0;
};

}  // namespace nacre::mds
