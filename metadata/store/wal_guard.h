// SPDX-License-Identifier: Apache-2.0
// Makes recovery replay exactly a prefix of the journal. RocksDB 7.8 opens happily when one log lost its tail and the next one
// is whole (docs/ondisk.md, "Recovery"); the guard sees every batch's number and stops the replay at the first gap.
// A log of which nothing is left leaves no number: it is recognised because every batch writes a row of family `inode`, so
// every log that family still needs must have records; the first log that replays must be the first that is needed.
// One thread (RocksDB's open).
#pragma once
#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nacre::mds {

class WalGuard final : public rocksdb::WalFilter {
 public:
  /// logs: numbers of the log files in the directory, before the open. family: name of the family that every batch writes.
  void expect(std::vector<uint64_t> logs, std::string family);
  uint64_t last() const { return last_; }          ///< number of the last batch replayed, 0 = none
  bool found_gap() const { return found_gap_; }
  const std::string& gap() const { return gap_; }  ///< a sentence for the log

  void ColumnFamilyLogNumberMap(const std::map<uint32_t, uint64_t>& log_of_family, const std::map<std::string, uint32_t>& id_of_name) override;
  WalProcessingOption LogRecordFound(unsigned long long log_number, const std::string& file, const rocksdb::WriteBatch& batch, rocksdb::WriteBatch*, bool*) override;
  const char* Name() const override { return "nacre.WalGuard"; }

 private:
  WalProcessingOption stop(std::string why);
  std::vector<uint64_t> logs_;
  std::string family_;
  uint64_t first_needed_ = 0, last_ = 0;
  bool found_gap_ = false;
  std::string gap_;
};

inline constexpr size_t kLogDataSize = 8;  ///< a batch's log data: its journal number, big-endian
std::string log_data_of(uint64_t number);
std::optional<uint64_t> number_of(const rocksdb::WriteBatch& batch);

}  // namespace nacre::mds
