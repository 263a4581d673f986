// SPDX-License-Identifier: Apache-2.0
// Formatting and opening of a metadata directory, with the checks that refuse a wrong one. A directory has `identity` (plain
// text: kind, format, cluster), `lock`, and `db` (RocksDB). `identity` is written last, so a half-made directory is none.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>

#include "common/log/log.h"
#include "metadata/store/directory.h"
#include "metadata/store/journal.h"
#include "metadata/store/rocks.h"

namespace nacre::mds {
namespace fs = std::filesystem;
namespace {

constexpr uint32_t kDirectoryFormat = 1;
constexpr int kBloomBits = 10;
constexpr int kMaxMemtables = 4;
constexpr uint64_t kSmallFamilyBuffer = 4ull << 20;

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

class ErrorListener final : public rocksdb::EventListener {
 public:
  explicit ErrorListener(Store::Rocks& rocks) : rocks_(rocks) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override { rocks_.report(*status); }

 private:
  Store::Rocks& rocks_;
};

rocksdb::DBOptions db_options(Store::Rocks& rocks) {
  rocksdb::DBOptions o;
  o.create_if_missing = false;
  o.create_missing_column_families = true;
  o.max_background_jobs = 2;
  o.max_open_files = -1;  // tables stay open: a read from the block cache alone must not fail for want of a file
  o.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  o.recycle_log_file_num = 0;
  o.manual_wal_flush = false;
  o.enable_pipelined_write = false;
  o.unordered_write = false;
  o.max_total_wal_size = 4 * rocks.options.write_buffer;
  o.keep_log_file_num = 4;
  o.wal_filter = &rocks.guard;
  o.listeners.push_back(rocks.listener);
  return o;
}

std::vector<rocksdb::ColumnFamilyDescriptor> families(const Store::Options& options) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(options.block_cache);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(kBloomBits));
  table.format_version = 5;
  std::shared_ptr<rocksdb::TableFactory> factory(rocksdb::NewBlockBasedTableFactory(table));
  std::vector<rocksdb::ColumnFamilyDescriptor> out;
  for (size_t i = 0; i < kFamilies; ++i) {
    auto f = static_cast<Family>(i);
    rocksdb::ColumnFamilyOptions o;
    o.table_factory = factory;
    bool large = f == Family::kInode || f == Family::kDentry || f == Family::kReply;
    o.write_buffer_size = large ? options.write_buffer : std::min(options.write_buffer, kSmallFamilyBuffer);
    o.max_write_buffer_number = kMaxMemtables;
    o.compression = rocksdb::kLZ4Compression;
    o.level_compaction_dynamic_level_bytes = true;
    out.emplace_back(std::string(family_name(f)), o);
  }
  return out;
}

Result<void> check_families(const std::string& db_path) {
  std::vector<std::string> stored;
  auto s = rocksdb::DB::ListColumnFamilies(rocksdb::DBOptions(), db_path, &stored);
  if (!s.ok()) return Err(Errc::kCorrupt, fmt::format("{} can't be read ({}): restore it from a backup, or look with `nacre fsck`", db_path, s.ToString()));
  for (const auto& name : stored) {
    bool known = false;
    for (size_t i = 0; i < kFamilies; ++i) known |= family_name(static_cast<Family>(i)) == name;
    if (!known) return Err(Errc::kVersion, fmt::format("{} has records of a kind ('{}') that this nacre-mds doesn't know: start the newer version that wrote it", db_path, name));
  }
  return {};
}

std::vector<uint64_t> log_files(const std::string& db_path) {
  std::vector<uint64_t> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(db_path, ec))
    if (entry.path().extension() == ".log") out.push_back(std::strtoull(entry.path().stem().c_str(), nullptr, 10));
  return out;
}

/// A new database gets its families in one step after the first: one by one each would write and check all options anew, with
/// an fsync or two, which is most of the time of a format.
rocksdb::Status open_families(Store::Rocks& rocks, const rocksdb::DBOptions& o, const std::string& path) {
  const auto all = families(rocks.options);
  const auto first = o.create_if_missing ? std::vector(all.begin(), all.begin() + 1) : all;
  rocksdb::DB* db = nullptr;
  auto s = rocksdb::DB::Open(o, path, first, &rocks.handles, &db);
  rocks.db.reset(db);
  if (!s.ok() || first.size() == all.size()) return s;
  std::vector<rocksdb::ColumnFamilyHandle*> more;
  s = rocks.db->CreateColumnFamilies(std::vector(all.begin() + 1, all.end()), &more);
  rocks.handles.insert(rocks.handles.end(), more.begin(), more.end());
  return s;
}

Result<void> open_db(Store::Rocks& rocks, bool create) {
  std::string path = rocks.options.path + "/db";
  rocks.listener = std::make_shared<ErrorListener>(rocks);
  auto o = db_options(rocks);
  o.create_if_missing = create;
  rocks.guard.expect(log_files(path), std::string(family_name(Family::kInode)));
  auto s = open_families(rocks, o, path);
  if (s.ok()) return {};
  if (s.IsCorruption()) return Err(Errc::kCorrupt, fmt::format("{} is damaged ({}): its disk lost data that had been synced; look with `nacre fsck`, or restore a backup", path, s.ToString()));
  return Err(to_error(s, "opening " + path));
}

schema::InodeRecordT root_record(Nanos now) {
  schema::InodeRecordT root;
  root.ino = kRootIno.v;
  root.mode = S_IFDIR | 0755;
  root.nlink = 2;
  root.atime = root.mtime = root.ctime = root.btime = root.content_time = root.mtime_base = now;
  root.fileset = kRootFileset.v;
  root.birth_epoch = 1;
  root.parent = kRootIno.v;
  root.change = 1;
  return root;
}

/// The last row of the first batch of every run: the super record with the run's incarnation, not clean. Writes and syncs.
Result<void> start_run(Store::Rocks& rocks, schema::MetaSuperT super, RawBatch batch) {
  super.clean = false;
  batch.put(Family::kMeta, kSuperKey, encode_record(super));
  auto s = rocks.write(batch);
  if (!s.ok()) return Err(to_error(s, "writing the super record of " + rocks.options.path));
  return rocks.sync();
}

/// Where each of the last runs ended, the one before this included, oldest first.
Result<std::vector<uint64_t>> run_ends(const View& view) {
  NACRE_TRY(auto runs, view.get_record<schema::RunsRecordT>(Family::kMeta, kRunsKey));
  NACRE_TRY(auto last, view.get_record<schema::RangeRecordT>(Family::kMeta, kLastKey));
  std::vector<uint64_t> ends = runs ? std::move(runs->ends) : std::vector<uint64_t>();
  if (last && (ends.empty() || last->high > ends.back())) ends.push_back(last->high);  // a run without a batch leaves nothing to lose
  if (ends.size() > kRunsKept) ends.erase(ends.begin(), ends.end() - static_cast<std::ptrdiff_t>(kRunsKept));
  return ends;
}

Result<void> check_super(const schema::MetaSuperT& super, const Store::Options& o) {
  if (super.incompat & ~kKnownIncompat || super.ro_compat & ~kKnownRoCompat)
    return Err(Errc::kVersion, fmt::format("{} uses features ({:#x}, {:#x}) that this nacre-mds doesn't know: start the newer version that wrote it", o.path, super.incompat, super.ro_compat));
  if (!std::equal(super.cluster_id.begin(), super.cluster_id.end(), o.cluster_id.begin(), o.cluster_id.end()))
    return Err(Errc::kNotOurs, fmt::format("{} holds the metadata of cluster {}, the cluster file says {}: correct the data path or the cluster file", o.path, hex(super.cluster_id), hex(o.cluster_id)));
  if (super.hash_key.size() != 16) return Err(Errc::kCorrupt, fmt::format("the super record of {} has no hash key: restore it from a backup", o.path));
  return {};
}

}  // namespace

std::string identity_text(std::span<const uint8_t> cluster) { return fmt::format("nacre metadata {}\ncluster {}\n", kDirectoryFormat, hex(cluster)); }

Result<void> check_identity(const Store::Options& o) {
  std::error_code ec;
  if (!fs::is_directory(o.path, ec)) return Err(Errc::kNoEnt, fmt::format("{} is no directory: make a cluster with `nacre cluster init`, or correct the data path in the cluster file", o.path));
  std::ifstream in(o.path + "/identity");
  if (!in) {
    return Err(Errc::kNotOurs, fmt::format("{} is no metadata directory (it has no file `identity`): `nacre cluster init` makes one in an empty directory", o.path));
  }
  std::string word, kind, cluster_word, cluster;
  uint64_t format = 0;
  in >> word >> kind >> format >> cluster_word >> cluster;
  if (word != "nacre" || kind != "metadata" || cluster_word != "cluster")
    return Err(Errc::kNotOurs, fmt::format("{} belongs to {}, not to a Nacre metadata server: correct the data path in the cluster file", o.path, word == "nacre" ? "a Nacre " + kind + " server" : "something else"));
  if (format > kDirectoryFormat)
    return Err(Errc::kVersion, fmt::format("{} has metadata format {}, this nacre-mds knows up to {}: start the newer version that wrote it", o.path, format, kDirectoryFormat));
  if (cluster != hex(o.cluster_id))
    return Err(Errc::kNotOurs, fmt::format("{} belongs to cluster {}, the cluster file says {}: correct the data path or the cluster file", o.path, cluster, hex(o.cluster_id)));
  return {};
}

Result<int> take_directory_lock(const std::string& path) {
  int fd = ::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Err(Errc::kIo, fmt::format("{}/lock can't be opened: {}", path, std::strerror(errno)));
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return Err(Errc::kInUse, fmt::format("{} is in use by another nacre-mds process: stop that one first", path));
  }
  return fd;
}

Result<uint64_t> sync_tree(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator at(path, ec), end; !ec && at != end; at.increment(ec)) {
    if (at->is_directory()) {
      NACRE_CHECK_OK(sync_directory(at->path()));
      continue;
    }
    const int fd = ::open(at->path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool ok = fd >= 0 && ::fsync(fd) == 0;
    const int e = errno;
    if (fd >= 0) ::close(fd);
    if (!ok) return Err(from_errno(e), fmt::format("{} can't be synced: {}", at->path().string(), std::strerror(e)));
    bytes += at->file_size();
  }
  if (ec) return Err(Errc::kIo, fmt::format("{} can't be read: {}", path, ec.message()));
  NACRE_CHECK_OK(sync_directory(path));
  return bytes;
}

Result<void> Store::format(const Options& o) {
  std::error_code ec;
  if (fs::exists(o.path, ec) && !fs::is_empty(o.path, ec)) return Err(Errc::kExist, fmt::format("{} is not empty: choose another data path, or empty it first", o.path));
  fs::create_directories(o.path, ec);
  fs::permissions(o.path, fs::perms::owner_all, ec);
  if (ec) return Err(Errc::kIo, fmt::format("{} can't be made: {}", o.path, ec.message()));
  NACRE_TRY(int lock, take_directory_lock(o.path));
  Rocks rocks;
  rocks.options = o;
  rocks.lock_fd = lock;
  NACRE_CHECK_OK(open_db(rocks, true));

  schema::MetaSuperT super;
  super.cluster_id.assign(o.cluster_id.begin(), o.cluster_id.end());
  super.created = o.clock->real();
  super.hash_key.resize(16);
  o.rng->fill(std::as_writable_bytes(std::span(super.hash_key)));
  schema::FilesetRecordT fileset;
  fileset.id = kRootFileset.v;
  fileset.root = kRootIno.v;
  fileset.created = super.created;
  auto root = root_record(super.created);
  schema::UsageRecordT usage;
  usage.inodes = 1;
  auto batch = rocks.begin(1024);
  batch.put(Family::kInode, inode_key(kRootIno), encode_record(root));
  batch.put(Family::kFileset, fileset_key(kRootFileset), encode_record(fileset));
  batch.put(Family::kUsage, usage_key(kRootFileset, root.uid, root.gid), encode_record(usage));
  NACRE_CHECK_OK(start_run(rocks, super, std::move(batch)));
  return replace_file(o.path + "/identity", identity_text(o.cluster_id));
}

Result<std::unique_ptr<Store>> Store::open(const Options& o) {
  NACRE_CHECK_OK(check_identity(o));
  NACRE_TRY(int lock, take_directory_lock(o.path));
  std::unique_ptr<Store> store(new Store());
  store->rocks_ = std::make_unique<Rocks>();
  Rocks& rocks = *store->rocks_;
  rocks.options = o;
  rocks.lock_fd = lock;
  NACRE_CHECK_OK(check_families(o.path + "/db"));
  NACRE_CHECK_OK(open_db(rocks, false));
  if (rocks.guard.found_gap()) log::warn("{}: the log ends in a gap after a power loss: {}", o.path, rocks.guard.gap());

  View view(*store, Tier::kFull);
  NACRE_TRY(auto restores, view.get_record<schema::RangeRecordT>(Family::kMeta, kRestoresKey));
  store->restores_ = restores ? restores->high : 0;
  NACRE_TRY(auto super, view.get_record<schema::MetaSuperT>(Family::kMeta, kSuperKey));
  if (!super) return Err(Errc::kCorrupt, fmt::format("{} has no super record: restore it from a backup", o.path));
  NACRE_CHECK_OK(check_super(*super, o));
  store->restored_ = fs::exists(o.path + "/" + std::string(kRestoredFile));
  super->incarnation += store->restored_ ? kIncarnationsPerRestore : 1;
  store->super_ = *super;
  std::array<uint8_t, 16> key;
  std::copy_n(super->hash_key.begin(), key.size(), key.begin());
  store->names_ = NameHash(key);

  Error bad(Errc::kOk);
  NACRE_CHECK_OK(view.scan(Family::kFileset, "", "", [&](std::string_view, std::string_view value) {
    auto record = decode_record<schema::FilesetRecordT>(value);
    if (!record) {
      bad = std::move(record).error();
      return false;
    }
    rocks.filesets[record->id] = std::make_shared<const schema::FilesetRecordT>(std::move(*record));
    return true;
  }));
  if (bad.code != Errc::kOk) return Err(std::move(bad));
  rocks.last_number = super->incarnation << kJournalCounterBits;
  auto batch = rocks.begin(1024 + 10 * kRunsKept);
  NACRE_TRY(store->ends_, run_ends(view));
  schema::RunsRecordT runs;
  runs.ends = store->ends_;
  batch.put(Family::kMeta, kRunsKey, encode_record(runs));
  NACRE_CHECK_OK(start_run(rocks, *super, std::move(batch)));
  return store;
}

}  // namespace nacre::mds
