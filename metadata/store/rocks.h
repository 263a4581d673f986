// SPDX-License-Identifier: Apache-2.0
// What is behind Store: the RocksDB handles and the raw commit. For metadata/store alone. begin() gives a batch its number;
// from there to the end of write() the caller (format, open, Journal) is the only writer.
#pragma once
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "metadata/store/store.h"
#include "metadata/store/wal_guard.h"

namespace nacre::mds {

inline constexpr std::string_view kSuperKey = "super";
inline constexpr std::string_view kLastKey = "last";          ///< RangeRecord: number of the newest batch, in each batch
inline constexpr std::string_view kRunsKey = "runs";          ///< RunsRecord
inline constexpr size_t kRunsKept = 64;                       ///< a client that was away for longer is told that it may have lost something
inline constexpr std::string_view kRestoresKey = "restores";  ///< RangeRecord: how often this cluster's metadata was restored

/// A batch with its number, which is its first record, so that recovery finds it without reading the rest.
class RawBatch {
 public:
  void put(Family f, std::string_view key, std::string_view value);
  void del(Family f, std::string_view key);
  void del_range(Family f, std::string_view begin, std::string_view end);
  uint64_t number() const { return number_; }

 private:
  friend struct Store::Rocks;
  const Store::Rocks* rocks_ = nullptr;
  rocksdb::WriteBatch batch_;
  rocksdb::Status status_;
  uint64_t number_ = 0;
  bool touches_inodes_ = false;
};

struct Store::Rocks {
  ~Rocks();
  rocksdb::ColumnFamilyHandle* family(Family f) const { return handles[static_cast<size_t>(f)]; }
  RawBatch begin(size_t bytes) const;
  /// Not synced. Adds the row of family `inode` that the gap check needs (wal_guard.h) if the batch has none.
  rocksdb::Status write(RawBatch& batch);
  Result<void> sync();                       ///< blocking
  void report(const rocksdb::Status& why);   ///< a write or background error: calls on_error

  Store::Options options;
  int lock_fd = -1;
  WalGuard guard;
  std::shared_ptr<rocksdb::EventListener> listener;
  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  std::atomic<uint64_t> last_number{0};      ///< of the last batch written
  std::mutex error_mutex;
  std::function<void(Error)> on_error;       ///< set by the journal
  mutable std::shared_mutex filesets_mutex;
  std::map<uint32_t, std::shared_ptr<const schema::FilesetRecordT>> filesets;
};

/// kIncomplete, kCorrupt, kNoSpc, kIo.
Error to_error(const rocksdb::Status& status, std::string_view doing);
inline rocksdb::Slice slice(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view text(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

}  // namespace nacre::mds
