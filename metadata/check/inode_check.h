// SPDX-License-Identifier: Apache-2.0
// Whether one inode agrees with its names, its directory counts and its other rows. Works on any view: on a snapshot all it says is
// exact, since each operation is one batch; inside an operation that has locked the inode it says what to repair. One thread.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "metadata/check/findings.h"

namespace nacre::mds::check {

/// What a directory is, as far as names in it care.
struct DirFacts {
  enum class State : uint8_t { kMissing, kDamaged, kNoDirectory, kDeleted, kLive };
  State state = State::kMissing;
  uint64_t parent = 0;
};

/// Directories looked up once per page.
class Dirs {
 public:
  explicit Dirs(const View& view) : view_(view) {}
  Result<DirFacts> find(uint64_t ino);

 private:
  const View& view_;
  std::unordered_map<uint64_t, DirFacts> known_;
};

/// Which of the names an inode lists lead to it.
struct Names {
  struct Link { Ino parent; std::string name; };
  bool primary = false;               ///< the one in the record does
  std::vector<Link> good, dangling;   ///< link rows
  size_t count() const { return good.size() + primary; }
};

/// What a directory holds, as of a moment at which its record was `record` (encoded): all changes of names change the record too.
struct DirCount {
  std::string record;
  uint64_t entries = 0;
  uint32_t subdirs = 0;
};

/// Does (parent, name) lead to `ino`? A damaged row counts as yes: it is told as what it is.
Result<bool> leads(const View& view, Ino parent, std::string_view name, Ino ino);
Result<Names> names_of(const View& view, Dirs& dirs, const schema::InodeRecordT& record);
/// Walks all names of the directory: on a snapshot, on a worker.
Result<DirCount> count_dir(const View& view, const schema::InodeRecordT& record);

class InodeCheck {
 public:
  explicit InodeCheck(const View& view) : view_(view), dirs_(view) {}
  /// Adds what is wrong with names, counts, layout and orphan record.
  Result<void> look(const schema::InodeRecordT& record, std::vector<Problem>& out);
  /// Adds what is wrong with the rows of other families that belong to inodes in [from, to] (to 0: to the end).
  Result<void> look_rows(Ino from, Ino to, std::vector<Problem>& out);

 private:
  Result<void> look_nameless(const schema::InodeRecordT& r, const Names& names, std::vector<Problem>& out);
  Result<void> look_names(const schema::InodeRecordT& r, const Names& names, std::vector<Problem>& out);
  Result<void> look_dir(const schema::InodeRecordT& r, std::vector<Problem>& out);
  void look_layout(const schema::InodeRecordT& r, std::vector<Problem>& out);
  Result<bool> starts_cycle(uint64_t ino);
  Result<void> look_owner(Ino ino, Family family, size_t rows, std::vector<Problem>& out);

  const View& view_;
  Dirs dirs_;
  std::unordered_map<uint64_t, bool> climbed_;  ///< directories from which the way up was walked
};

}  // namespace nacre::mds::check
