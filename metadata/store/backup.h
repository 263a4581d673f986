// SPDX-License-Identifier: Apache-2.0
// Copies of the metadata database: made while the server serves, put back while it doesn't. A backup is a directory with
// `identity` (written last: without it the backup is not whole), `backup` (text: when, up to which journal number) and `db`.
// Blocking: on workers, or in a process of its own.
#pragma once
#include <string>

#include "metadata/store/journal.h"

namespace nacre::mds {

struct BackupResult {
  uint64_t journal = 0;   ///< everything that was acknowledged up to this batch is in it
  uint64_t bytes = 0;
};
/// Makes `directory` (0700), which must not exist; its parent must. On disk when it returns; nothing is left of one that fails.
/// Tables are hard-linked where the filesystem is the same, so that this costs little. Errors: kExist, kNoEnt, kInval, kIo, kNoSpc, with a sentence.
Result<BackupResult> make_backup(Journal& journal, const std::string& directory);

struct RestoreResult {
  std::string kept;       ///< where the metadata lies that was there before; empty if there was none
  std::string about;      ///< what the backup says of itself
};
/// Puts a copy of the backup into options.path, of which the server must not be running (kInUse). What was there is moved into a
/// directory inside, not deleted. Marks it as restored: the server that opens it first learns from all storage targets which
/// numbers were given out since (metadata/background/restoration.h). May be repeated when it was interrupted.
/// Errors, with a sentence: kNotOurs (no backup, of another cluster), kVersion, kInUse, kIo, kNoSpc.
Result<RestoreResult> restore_backup(const Store::Options& options, const std::string& directory);

}  // namespace nacre::mds
