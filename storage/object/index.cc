// SPDX-License-Identifier: Apache-2.0
#include "storage/object/index.h"

#include <array>
#include <filesystem>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include "common/log/log.h"

namespace nacre::storage {
namespace {

/// One memtable; above kRotateBytes so that rotate() is what starts flushes, and the log is synced before each of them.
constexpr size_t kMemtableBytes = 4 * kRotateBytes;
/// Threads that look at the tables' footers during an open, per family: RocksDB's 16 would be 112 threads for a handful of tables.
constexpr int kOpenThreads = 2;
constexpr int kMemtables = 4;  ///< per family, with those being flushed; writers stall beyond

constexpr std::array<const char*, kFamilies> kNames = {"default", "object", "chunk", "undo", "tombstone", "fence", "epoch"};

std::string encode_number(uint64_t n) { return std::string(Key<8>().add(n).view()); }

/// Finds a batch's journal number.
struct NumberReader final : rocksdb::WriteBatch::Handler {
  std::optional<uint64_t> number;
  void LogData(const rocksdb::Slice& blob) override {
    if (blob.size() == 8) number = read_number<uint64_t>({blob.data(), blob.size()}, 0);
  }
  rocksdb::Status PutCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
  rocksdb::Status DeleteRangeCF(uint32_t, const rocksdb::Slice&, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }
};

/// Lets recovery replay a prefix: stops at the first batch whose number isn't its predecessor's plus one.
class PrefixFilter final : public rocksdb::WalFilter {
 public:
  uint64_t last = 0;
  std::string stopped;  ///< why, empty if not

  WalProcessingOption LogRecordFound(unsigned long long log, const std::string&, const rocksdb::WriteBatch& batch, rocksdb::WriteBatch*,
                                     bool*) override {
    if (!stopped.empty()) return WalProcessingOption::kStopReplay;
    NumberReader reader;
    const bool readable = batch.Iterate(&reader).ok();
    if (readable && !reader.number && batch.Count() == 0) return WalProcessingOption::kContinueProcessing;  // RocksDB's own marker
    if (!readable || !reader.number || (last != 0 && *reader.number != last + 1)) {
      stopped = fmt::format("log {} continues after batch {} with {}", log, last, reader.number ? std::to_string(*reader.number) : "a batch without number");
      return WalProcessingOption::kStopReplay;
    }
    last = *reader.number;
    return WalProcessingOption::kContinueProcessing;
  }
  const char* Name() const override { return "nacre.prefix"; }
};

class Listener final : public rocksdb::EventListener {
 public:
  explicit Listener(std::function<void(Error)> tell) : tell_(std::move(tell)) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override {
    if (tell_) tell_(Error(Errc::kIo, "the index can't be written: " + status->ToString()));
  }

 private:
  std::function<void(Error)> tell_;
};

Error from_status(const rocksdb::Status& s, const std::string& what) {
  Errc code = Errc::kIo;
  if (s.IsIncomplete()) code = Errc::kIncomplete;
  if (s.IsCorruption()) code = Errc::kCorrupt;
  if (s.IsNoSpace()) code = Errc::kNoSpc;
  return Error(code, what + ": " + s.ToString());
}

rocksdb::ColumnFamilyOptions family_options(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.block_size = 8 * 1024;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  rocksdb::ColumnFamilyOptions o;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  o.write_buffer_size = kMemtableBytes;
  o.max_write_buffer_number = kMemtables;
  o.compression = rocksdb::kNoCompression;  // most of a chunk record is checksums
  return o;
}
}  // namespace

struct IndexInternals {
  PrefixFilter filter;  // the options of the open database point to it
  std::unique_ptr<rocksdb::DB> db;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> families{};
  std::function<void(Error)> tell;
  rocksdb::WriteBatch batch;  // reused under the journal mutex, so that it keeps its memory
  rocksdb::ColumnFamilyHandle* of(Family f) const { return families[static_cast<size_t>(f)]; }
};

static rocksdb::Slice slice(std::string_view s) { return {s.data(), s.size()}; }

void Batch::put(Family family, std::string_view key, std::string_view value) { in_.batch.Put(in_.of(family), slice(key), slice(value)); }
void Batch::erase(Family family, std::string_view key) { in_.batch.Delete(in_.of(family), slice(key)); }
void Batch::erase_range(Family family, std::string_view from, std::string_view to) {
  in_.batch.DeleteRange(in_.of(family), slice(from), slice(to));
}

Result<std::unique_ptr<Index>> Index::open(IndexOptions options) {
  rocksdb::Env* env = options.env ? options.env : rocksdb::Env::Default();
  if (!options.create && !env->FileExists(options.dir + "/CURRENT").ok())
    return Err(Errc::kNotOurs, fmt::format("{} holds no index: this is no storage target's directory, or its formatting was cut short", options.dir));

  auto index = std::unique_ptr<Index>(new Index);
  index->in_ = std::make_unique<IndexInternals>();
  PrefixFilter& filter = index->in_->filter;
  auto cache = rocksdb::NewLRUCache(options.block_cache);
  rocksdb::DBOptions o;
  o.env = env;
  o.create_if_missing = options.create;
  o.error_if_exists = options.create;
  o.create_missing_column_families = options.create;
  o.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  o.recycle_log_file_num = 0;
  o.manual_wal_flush = false;
  o.enable_pipelined_write = false;
  o.unordered_write = false;
  o.wal_filter = &filter;
  o.max_background_jobs = 2;
  o.max_file_opening_threads = kOpenThreads;
  o.wal_bytes_per_sync = 1 << 20;  // so that a txg's sync finds little left to write
  o.keep_log_file_num = 4;
  o.info_log_level = rocksdb::WARN_LEVEL;
  o.listeners.push_back(std::make_shared<Listener>(options.on_background_error));

  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const char* name : kNames) descriptors.emplace_back(name, family_options(cache));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  rocksdb::Status s = rocksdb::DB::Open(o, options.dir, descriptors, &handles, &db);
  if (!s.ok()) {
    const std::string text = s.ToString();
    if (text.find("lock") != std::string::npos && s.IsIOError()) return Err(Errc::kInUse, fmt::format("{} is open in another process", options.dir));
    if (s.IsCorruption())
      return Err(Errc::kCorrupt, fmt::format("the index in {} is damaged ({}): the disk lost what it had confirmed; check the disk, then run nacre fsck", options.dir, text));
    if (s.IsInvalidArgument())
      return Err(Errc::kVersion, fmt::format("the index in {} was written by another version of Nacre ({})", options.dir, text));
    return Err(from_status(s, options.dir));
  }
  index->in_->db.reset(db);
  std::copy(handles.begin(), handles.end(), index->in_->families.begin());
  index->in_->tell = std::move(options.on_background_error);
  index->last_ = filter.last;
  if (!filter.stopped.empty()) log::warn("index {}: what follows the first gap of the log was never acknowledged as stable and is dropped ({})", options.dir, filter.stopped);
  return index;
}

Index::~Index() {
  if (!in_ || !in_->db) return;
  for (auto* h : in_->families) in_->db->DestroyColumnFamilyHandle(h);
  in_->db->Close();
}

Error Index::failed(const std::string& what, const std::string& why) {
  Error e(Errc::kIo, fmt::format("{}: {}", what, why));
  if (in_->tell) in_->tell(e);
  return e;
}

Result<JournalNo> Index::commit(const std::function<Result<void>(Batch&)>& build) {
  std::lock_guard lock(journal_);
  in_->batch.Clear();
  const uint64_t number = last_.load(std::memory_order_relaxed) + 1;
  in_->batch.PutLogData(encode_number(number));
  Batch batch(*in_);
  if (auto ok = build(batch); !ok) return std::unexpected(std::move(ok).error());
  const rocksdb::Status s = in_->db->Write(rocksdb::WriteOptions(), &in_->batch);
  if (!s.ok()) return Err(failed("the index's log can't be written", s.ToString()));
  last_.store(number, std::memory_order_release);
  bytes_.fetch_add(in_->batch.GetDataSize(), std::memory_order_relaxed);
  return JournalNo(number);
}

void Index::between(const std::function<void()>& fn) {
  std::lock_guard lock(journal_);
  fn();
}

static rocksdb::ReadOptions read_options(Tier tier) {
  rocksdb::ReadOptions o;
  if (tier == Tier::kMemory) o.read_tier = rocksdb::kBlockCacheTier;
  return o;
}

Result<bool> Index::get(Family family, std::string_view key, std::string& value, Tier tier) const {
  const rocksdb::Status s = in_->db->Get(read_options(tier), in_->of(family), slice(key), &value);
  if (s.IsNotFound()) return false;
  if (!s.ok()) return Err(from_status(s, "the index can't be read"));
  return true;
}

Result<void> Index::scan(Family family, std::string_view from, std::string_view to,
                         const std::function<bool(std::string_view key, std::string_view value)>& fn, Tier tier) const {
  rocksdb::ReadOptions o = read_options(tier);
  const rocksdb::Slice end = slice(to);
  if (!to.empty()) o.iterate_upper_bound = &end;
  std::unique_ptr<rocksdb::Iterator> it(in_->db->NewIterator(o, in_->of(family)));
  for (it->Seek(slice(from)); it->Valid(); it->Next())
    if (!fn({it->key().data(), it->key().size()}, {it->value().data(), it->value().size()})) return {};
  if (!it->status().ok()) return Err(from_status(it->status(), "the index can't be read"));
  return {};
}

Result<void> Index::sync() {
  const rocksdb::Status s = in_->db->SyncWAL();
  if (!s.ok()) return Err(failed("the index's log can't be synced", s.ToString()));
  return {};
}

Result<void> Index::rotate() {
  if (auto ok = sync(); !ok) return ok;  // most of it, while others commit
  std::lock_guard lock(journal_);
  if (auto ok = sync(); !ok) return ok;
  rocksdb::FlushOptions flush;
  flush.wait = false;
  flush.allow_write_stall = true;
  const rocksdb::Status s = in_->db->Flush(flush, {in_->families.begin(), in_->families.end()});
  if (!s.ok()) return Err(failed("the index can't be flushed", s.ToString()));
  bytes_.store(0, std::memory_order_relaxed);
  return {};
}

}  // namespace nacre::storage
