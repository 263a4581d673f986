// SPDX-License-Identifier: Apache-2.0
// Whether a name (a row of family dentry) lies in a directory, leads to an inode of its type, and is known to it. On any view, as
// inode_check.h. One thread.
#pragma once
#include "metadata/check/inode_check.h"

namespace nacre::mds::check {

class EntryCheck {
 public:
  explicit EntryCheck(const View& view) : view_(view), dirs_(view) {}
  /// What is wrong with the row; nothing if it is as it must be. A name has one problem: the first of damaged, without directory,
  /// without inode, badly placed, of another type, unlisted.
  Result<std::optional<Problem>> look(std::string_view key, std::string_view value);

 private:
  Result<std::optional<Problem>> look_inode(const DentryKey& key, const schema::DentryRecordT& entry);
  const View& view_;
  Dirs dirs_;
};

/// Does the inode list (parent, name), as its first name or in a link row?
Result<bool> lists(const View& view, const schema::InodeRecordT& record, Ino parent, std::string_view name);

}  // namespace nacre::mds::check
