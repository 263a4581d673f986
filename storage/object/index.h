// SPDX-License-Identifier: Apache-2.0
// The index of one OST: a RocksDB with a column family per kind of record. Nothing else includes RocksDB.
// Every operation is one numbered batch; recovery replays exactly a prefix of the numbers (P1.11): a filter stops at the first
// gap, and a log file is synced whole before the next one is begun, so that a gap can't lie before the first record either.
// commit() may be called on any thread (a short mutex orders the batches); scan, sync, rotate block and belong on a worker.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "storage/object/keys.h"

namespace rocksdb {
class Env;
}

namespace nacre::storage {

struct IndexInternals;

/// Bytes of batches after which memtables are flushed and a new log is begun: what an unclean start replays, and a
/// quarter of what RocksDB would take before it flushed on its own.
inline constexpr uint64_t kRotateBytes = 32ull << 20;

enum class Tier { kMemory, kDisk };  ///< kMemory: kIncomplete instead of a read from disk

/// The changes of one operation. Lives for one Index::commit.
class Batch {
 public:
  void put(Family family, std::string_view key, std::string_view value);
  void erase(Family family, std::string_view key);
  void erase_range(Family family, std::string_view from, std::string_view to);  ///< [from, to)

 private:
  friend class Index;
  explicit Batch(IndexInternals& in) : in_(in) {}
  IndexInternals& in_;
};

struct IndexOptions {
  std::string dir;
  uint64_t block_cache = 256ull << 20;
  rocksdb::Env* env = nullptr;
  bool create = false;
  std::function<void(Error)> on_background_error;  ///< any thread
};

class Index {
 public:
  /// Errors: kNotOurs (no index there), kVersion, kInUse, kCorrupt, kIo.
  static Result<std::unique_ptr<Index>> open(IndexOptions options);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  /// Runs `build` under the journal mutex, then writes its batch to log and memtable as the next number. If `build` refuses, nothing
  /// is written and its error returned. An error of the write itself has been told to on_background_error and is final.
  Result<JournalNo> commit(const std::function<Result<void>(Batch&)>& build);
  /// Runs `fn` under the journal mutex: between two batches.
  void between(const std::function<void()>& fn);
  JournalNo last() const { return JournalNo(last_.load(std::memory_order_acquire)); }

  /// True and `value` filled, or false if there is no such key. Errors: kIncomplete (Tier::kMemory only), kIo, kCorrupt.
  Result<bool> get(Family family, std::string_view key, std::string& value, Tier tier) const;
  /// Calls `fn` for each key in [from, to) in order until it returns false; empty `to` = to the end. Errors as get's.
  Result<void> scan(Family family, std::string_view from, std::string_view to,
                    const std::function<bool(std::string_view key, std::string_view value)>& fn, Tier tier = Tier::kDisk) const;

  /// Makes all batches committed before the call survive a power cut. An error is final (P1.12).
  Result<void> sync();
  bool rotation_due() const { return bytes_.load(std::memory_order_relaxed) >= kRotateBytes; }
  /// Syncs the log, starts flushing the memtables and begins a new log.
  Result<void> rotate();

 private:
  Index() = default;
  Error failed(const std::string& what, const std::string& why);
  std::unique_ptr<IndexInternals> in_;
  std::mutex journal_;                ///< orders the batches; held for one insert into log and memtable
  std::atomic<uint64_t> last_{0};
  std::atomic<uint64_t> bytes_{0};    ///< of batches since the last rotation
};

}  // namespace nacre::storage
