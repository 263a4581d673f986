// SPDX-License-Identifier: Apache-2.0
// See wal_guard.h.
#include "metadata/store/wal_guard.h"

#include <fmt/format.h>

#include <algorithm>

namespace nacre::mds {
namespace {

class NumberReader final : public rocksdb::WriteBatch::Handler {
 public:
  std::optional<uint64_t> number;
  void LogData(const rocksdb::Slice& blob) override {
    if (blob.size() != kLogDataSize) return;
    uint64_t v = 0;
    for (size_t i = 0; i < kLogDataSize; ++i) v = v << 8 | static_cast<uint8_t>(blob[i]);
    number = v;
  }
  rocksdb::Status PutCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  bool Continue() override { return !number; }  // the number is the batch's first record
};

}  // namespace

std::string log_data_of(uint64_t number) {
  std::string out;
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
  return out;
}

std::optional<uint64_t> number_of(const rocksdb::WriteBatch& batch) {
  NumberReader reader;
  if (!batch.Iterate(&reader).ok()) return std::nullopt;
  return reader.number;
}

void WalGuard::expect(std::vector<uint64_t> logs, std::string family) {
  logs_ = std::move(logs);
  std::sort(logs_.begin(), logs_.end());
  family_ = std::move(family);
}

void WalGuard::ColumnFamilyLogNumberMap(const std::map<uint32_t, uint64_t>& log_of_family, const std::map<std::string, uint32_t>& id_of_name) {
  auto id = id_of_name.find(family_);
  if (id == id_of_name.end()) return;
  auto log = log_of_family.find(id->second);
  if (log != log_of_family.end()) first_needed_ = log->second;
}

WalGuard::WalProcessingOption WalGuard::stop(std::string why) {
  found_gap_ = true;
  gap_ = std::move(why);
  return WalProcessingOption::kStopReplay;
}

WalGuard::WalProcessingOption WalGuard::LogRecordFound(unsigned long long log_number, const std::string& file, const rocksdb::WriteBatch& batch, rocksdb::WriteBatch*,
                                                       bool*) {
  if (found_gap_) return WalProcessingOption::kStopReplay;
  auto number = number_of(batch);
  // After a torn record RocksDB begins the next log with an empty batch of its own, which keeps its sequence numbers dense.
  if (!number && batch.Count() == 0) return WalProcessingOption::kContinueProcessing;
  if (!number) return stop(fmt::format("a batch in log {} carries no journal number", file));
  if (last_ == 0) {
    for (uint64_t log : logs_)
      if (log >= first_needed_ && log < log_number) return stop(fmt::format("log {:06}.log is needed but holds nothing; batch {} and all behind it are dropped", log, *number));
  } else if (*number != last_ + 1) {
    return stop(fmt::format("batch {} is followed by {} (log {}); it and all behind it are dropped", last_, *number, file));
  }
  last_ = *number;
  return WalProcessingOption::kContinueProcessing;
}

}  // namespace nacre::mds
