// SPDX-License-Identifier: Apache-2.0
// Formatting, opening and closing a target; what runs beside the operations. DIR/blocks is the data, DIR/index the RocksDB,
// DIR/lock is flocked by the process that has the target open.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/log/log.h"
#include "storage/object/recovery.h"
#include "storage/object/store.h"
#include "storage/object/superblock.h"

namespace nacre::storage {
namespace fs = std::filesystem;
namespace {
constexpr size_t kExtentsPerRow = 65'536;      ///< of an allocator record: 1 MiB
constexpr size_t kExpirePerBatch = 10'000;     ///< tombstones
constexpr size_t kPunchPerTick = 64;           ///< at most 4 GiB
constexpr Nanos kBlocksWait = 10 * kSecond;    ///< for the last disk requests of a killed process; DIR/lock tells a living one at once

Error io_error(const std::string& what) {
  const int err = errno;
  return Error(Errc::kIo, fmt::format("{}: {}", what, std::strerror(err)));
}

struct Fd {
  int fd = -1;
  ~Fd() { if (fd >= 0) ::close(fd); }
};

Result<void> sync_directory(const std::string& dir) {
  Fd d{::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (d.fd < 0 || ::fsync(d.fd) != 0) return Err(io_error(dir));
  return {};
}

/// DIR exists and holds nothing (a fresh filesystem's lost+found apart).
Result<void> make_empty_directory(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return Err(Errc::kIo, fmt::format("{}: {}", dir, error.message()));
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename();
    if (name == "lost+found") continue;
    if (name == "blocks" || name == "index" || name == "lock" || name == "writers")
      return Err(Errc::kExist, fmt::format("{} is a storage target already (or its formatting was cut short): to format it anew, delete what is in it", dir));
    return Err(Errc::kNotOurs, fmt::format("{} holds other files ({}): name an empty directory", dir, name));
  }
  if (error) return Err(Errc::kIo, fmt::format("{}: {}", dir, error.message()));
  return {};
}

Result<void> make_file(const std::string& path, uint64_t size) {
  Fd f{::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)};
  if (f.fd < 0 || ::ftruncate(f.fd, static_cast<off_t>(size)) != 0 || ::fsync(f.fd) != 0) return Err(io_error(path));
  return {};
}
}  // namespace

Result<void> ObjectStore::format(const std::string& dir, const FormatOptions& options) {
  const uint64_t capacity = round_down(options.capacity, kBlockSize);
  if (capacity < kMinCapacity) return Err(Errc::kInval, fmt::format("a storage target of {} is too small: at least {} are needed", format_size(options.capacity), format_size(kMinCapacity)));
  NACRE_CHECK_OK(make_empty_directory(dir));
  NACRE_CHECK_OK(make_file(dir + "/lock", 0));
  NACRE_CHECK_OK(make_file(dir + "/blocks", capacity));

  schema::OstSuperT super;
  super.cluster_id.assign(options.cluster_id.begin(), options.cluster_id.end());
  super.uuid.assign(options.uuid.begin(), options.uuid.end());
  super.ost = options.ost.v;
  super.capacity = capacity;
  super.created = options.created;
  IndexOptions index_options;
  index_options.dir = dir + "/index";
  index_options.env = options.env;
  index_options.create = true;
  NACRE_TRY(auto index, Index::open(index_options));
  auto put = index->commit([&](Batch& batch) -> Result<void> {
    batch.put(Family::kSuper, kSuperKey, encode_super(super));
    return {};
  });
  if (!put) return std::unexpected(std::move(put).error());
  NACRE_CHECK_OK(index->sync());
  index.reset();
  return sync_directory(dir);
}

Task<Result<std::unique_ptr<ObjectStore>>> ObjectStore::open(Runtime& runtime, std::string dir, StoreOptions options) {
  auto store = std::make_unique<Store>(runtime, std::move(dir), std::move(options));
  CO_CHECK_OK(co_await store->start());
  co_return std::unique_ptr<ObjectStore>(std::move(store));
}

Store::Store(Runtime& runtime, std::string dir, StoreOptions options) : runtime_(runtime), dir_(std::move(dir)), options_(std::move(options)) {}

Store::~Store() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void Store::fail(const Error& why) {
  if (failed_.exchange(true)) return;
  log::error("ost{} can't go on: {}", options_.ost, why.message());
  if (options_.fatal) options_.fatal(why);
}

// ---- start

Result<schema::OstSuperT> Store::open_index() {
  std::error_code error;
  if (!fs::is_directory(dir_, error)) return Err(Errc::kNotOurs, fmt::format("{} is no directory: correct the target's data directory in the cluster file, or format it", dir_));
  lock_fd_ = ::open((dir_ + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock_fd_ < 0 && errno == ENOENT) return Err(Errc::kNotOurs, fmt::format("{} is no storage target's directory: correct the target's data directory in the cluster file, or format it", dir_));
  if (lock_fd_ < 0) return Err(io_error(dir_ + "/lock"));
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Err(Errc::kInUse, fmt::format("{} is in use by another process: a second server on the same data would destroy it", dir_));
    return Err(io_error(dir_ + "/lock"));
  }
  IndexOptions o;
  o.dir = dir_ + "/index";
  o.block_cache = options_.block_cache;
  o.env = options_.env;
  o.on_background_error = [this](Error why) { fail(why); };
  NACRE_TRY(index_, Index::open(std::move(o)));
  std::string value;
  NACRE_TRY(const bool there, index_->get(Family::kSuper, kSuperKey, value, Tier::kDisk));
  if (!there) return Err(Errc::kNotOurs, fmt::format("{} was never formatted to the end: delete what is in it and format it again", dir_));
  NACRE_TRY(auto super, decode_super(value, dir_));
  NACRE_CHECK_OK(check_super(super, dir_, options_.cluster_id, options_.ost));
  capacity_ = super.capacity;
  blocks_ = capacity_ / kBlockSize;
  return super;
}

Result<void> Store::open_device() {
  device_ = options_.device;
  if (!device_) {
    FileDeviceOptions o;
    o.path = dir_ + "/blocks";
    o.direct = options_.direct;
    o.allow_uring = options_.uring;
    o.lock_wait = kBlocksWait;
    NACRE_TRY(device_, open_file_device(runtime_, std::move(o)));
  }
  if (device_->size() < capacity_)
    return Err(Errc::kCorrupt, fmt::format("{}/blocks has {} of {} bytes: it was cut short; put it back from a copy, or format the target anew", dir_, device_->size(), capacity_));
  io_kind_ = device_->kind();
  return {};
}

Result<void> Store::load_ranges() {
  bool sound = true;
  for (auto [key, into] : {std::pair(kMaxInoKey, &max_ino_), std::pair(kMaxCommandKey, &max_command_), std::pair(kMaxSessionKey, &max_session_)}) {
    std::string value;
    NACRE_TRY(const bool there, index_->get(Family::kSuper, key, value, Tier::kDisk));
    if (!there) continue;
    auto record = view_record<schema::RangeRecordT>(value);
    if (record) *into = (*record)->high();
    else sound = false;
  }
  if (sound) return {};
  log::error("ost{}: the record of its highest numbers is damaged; they are taken from the objects", options_.ost);
  return index_->scan(Family::kObject, {}, {}, [&](std::string_view key, std::string_view value) {
    ObjectId object;
    if (parse_object_key(key, object)) max_ino_ = std::max(max_ino_.load(), object.ino.v);
    if (auto state = ObjectState::decode(value)) max_command_ = std::max(max_command_.load(), state->command.v);
    return true;
  });
}

/// Damaged rows stop nothing: the metadata server tells the epochs again before anything is served, and a fence whose end can't be
/// read lasts as long as any does.
Result<void> Store::load_state() {
  NACRE_CHECK_OK(load_ranges());
  NACRE_CHECK_OK(index_->scan(Family::kEpoch, {}, {}, [&](std::string_view key, std::string_view value) {
    auto record = view_record<schema::EpochRecordT>(value);
    if (record && key.size() == 4) epochs_[FilesetId(read_number<uint32_t>(key, 0))] = Epoch((*record)->epoch());
    else log::error("ost{}: a record of a fileset's epoch is damaged", options_.ost);
    return true;
  }));
  return index_->scan(Family::kFence, {}, {}, [&](std::string_view key, std::string_view value) {
    auto record = view_record<schema::FenceRecordT>(value);
    if (!record || key.size() != 8) log::error("ost{}: a record of an evicted session is damaged", options_.ost);
    if (key.size() == 8) fences_[SessionId(read_number<uint64_t>(key, 0))] = record ? (*record)->until() : now() + kTombstoneTerm;
    return true;
  });
}

Result<bool> Store::load_allocator(uint64_t txg) {
  bool found = false, valid = true;
  uint64_t end = 0;  // of the extent before: they are in order
  std::vector<Extent> extents;
  NACRE_CHECK_OK(index_->scan(Family::kSuper, kAllocatorPrefix, kAllocatorEnd, [&](std::string_view, std::string_view value) {
    auto record = view_record<schema::AllocatorRecordT>(value);
    valid = record && (*record)->txg() == txg && (!(*record)->free() || (*record)->free()->size() % 2 == 0);
    if (!valid) return false;
    if (!found) objects_ = (*record)->objects();
    found = true;
    const auto* free = (*record)->free();
    for (uint32_t i = 0; free && i + 1 < free->size() && valid; i += 2) {
      const Extent e{free->Get(i), free->Get(i + 1)};
      valid = e.at >= end && e.length > 0 && e.at < blocks_ && e.length <= blocks_ - e.at;
      if (valid) extents.push_back(e);
      end = e.at + e.length;
    }
    return valid;
  }));
  if (!valid) {
    log::error("ost{}: the allocator's record is damaged; the free blocks are found by a scan", options_.ost);
    return false;
  }
  for (const Extent& e : extents) space_->allocator().add_clean(e);
  return found;
}

/// The free blocks are those that no chunk record names. A damaged record costs its own object only: what it named counts as free, and
/// its reads fail. Of two objects that name the same block at most one can be right (the checksums tell which); only the first frees it.
Result<void> Store::scan_allocator() {
  std::vector<uint64_t> used((blocks_ + 63) / 64, 0);
  NACRE_CHECK_OK(index_->scan(Family::kChunk, {}, {}, [&](std::string_view key, std::string_view value) {
    ObjectId object;
    uint64_t chunk = 0;
    auto content = Chunk::decode(value, blocks_);
    if (!content || !parse_chunk_key(key, object, chunk)) {
      log::error("ost{}: the chunk record at object {} offset {} is damaged ({}): reads there will fail, nacre fsck names the file", options_.ost, object, chunk * kChunkSize,
                 content ? "its key" : content.error().message());
      return true;
    }
    for (const Run& run : content->runs())
      for (uint64_t b = run.at; b < run.at + run.length; ++b) {
        uint64_t& word = used[b / 64];
        if (word >> (b % 64) & 1 && doubtful_.insert(object).second)
          log::error("ost{}: block {} belongs to object {} and to another one: nacre fsck names the file whose data it isn't", options_.ost, b, object);
        word |= uint64_t{1} << (b % 64);
      }
    return true;
  }));
  uint64_t objects = 0;
  NACRE_CHECK_OK(index_->scan(Family::kObject, {}, {}, [&](std::string_view, std::string_view) {
    ++objects;
    return true;
  }));
  objects_ = objects;
  const auto is_used = [&](uint64_t b) { return used[b / 64] >> (b % 64) & 1; };
  for (uint64_t b = 0; b < blocks_;) {
    if (b % 64 == 0 && used[b / 64] == UINT64_MAX) {
      b += 64;
      continue;
    }
    if (is_used(b)) {
      ++b;
      continue;
    }
    uint64_t end = b;
    while (end < blocks_ && !is_used(end)) end += end % 64 == 0 && used[end / 64] == 0 ? std::min<uint64_t>(64, blocks_ - end) : 1;
    space_->allocator().add_clean({b, end - b});
    b = end;
  }
  return {};
}

Result<void> Store::begin(schema::OstSuperT& super) {
  super.clean = false;
  super.incarnation += 1;
  super.wseq_high += kWSeqRange;
  auto number = index_->commit([&](Batch& batch) -> Result<void> {
    batch.put(Family::kSuper, kSuperKey, encode_super(super));
    batch.erase_range(Family::kUndo, undo_prefix(0), undo_prefix(UINT64_MAX));
    batch.erase_range(Family::kSuper, kAllocatorPrefix, kAllocatorEnd);
    return {};
  });
  if (!number) return std::unexpected(std::move(number).error());
  return index_->sync();
}

Task<Result<void>> Store::start() {
  home_ = Loop::current();
  auto open = [this] { return open_index(); };
  CO_TRY(schema::OstSuperT super, co_await run_blocking(open));
  auto device = [this] { return open_device(); };
  CO_CHECK_OK(co_await run_blocking(device));
  space_ = std::make_unique<Space>(capacity_, *device_);
  const bool clean = super.clean;
  const uint64_t given_out = super.wseq_high;
  if (!clean) {
    Recovery recovery(*index_, *device_, blocks_, options_.ost);
    CO_CHECK_OK(co_await recovery.run(super.txg));
    undo_restored_ = recovery.restored();
    super.txg = std::max(super.txg, recovery.newest_txg());
  }
  auto load = [&]() -> Result<void> {
    NACRE_CHECK_OK(load_state());
    bool loaded = false;
    if (clean) {
      NACRE_TRY(loaded, load_allocator(super.txg));
    }
    if (!loaded) {
      NACRE_CHECK_OK(scan_allocator());
      if (super.incarnation > 0) space_->allocator().mark_unpunched();
    }
    return begin(super);
  };
  CO_CHECK_OK(co_await run_blocking(load));

  registration_.ost = options_.ost;
  std::copy(super.uuid.begin(), super.uuid.end(), registration_.uuid.begin());
  registration_.incarnation = super.incarnation;
  registration_.clean = clean;
  registration_.wseq = WSeq(given_out);
  next_expiry_ = runtime_.clock().boot() + kExpiryInterval;
  txg_ = std::make_unique<Txg>(Txg::Parts{*index_, *device_, *space_, super, given_out, options_.txg_interval, [this](Error why) { fail(why); }, [this] { tick(); }});
  txg_->start(*home_);
  log::info("ost{}: open, incarnation {}, {} objects, {} of {} used, {}", options_.ost, super.incarnation, objects_.load(), format_size(space_->used()),
            format_size(capacity_), io_kind_);
  co_return Result<void>{};
}

// ---- stop

Result<void> Store::store_clean() {
  schema::OstSuperT super = txg_->super();
  super.clean = true;
  super.wseq_high = std::max(super.wseq_high, txg_->newest().v);
  const std::vector<Extent> free = space_->allocator().all_free();
  auto number = index_->commit([&](Batch& batch) -> Result<void> {
    batch.put(Family::kSuper, kSuperKey, encode_super(super));
    uint32_t part = 0;
    for (size_t i = 0; !rescan_ && (i < free.size() || part == 0); i += kExtentsPerRow, ++part) {
      schema::AllocatorRecordT record;
      record.txg = super.txg;
      if (part == 0) record.objects = objects_.load();
      for (size_t j = i; j < std::min(free.size(), i + kExtentsPerRow); ++j) record.free.insert(record.free.end(), {free[j].at, free[j].length});
      batch.put(Family::kSuper, allocator_key(part), encode_record(record));
    }
    return {};
  });
  if (!number) return std::unexpected(std::move(number).error());
  return index_->sync();
}

Task<Result<void>> Store::close() {
  if (closed_) co_return Result<void>{};
  closed_ = true;
  co_await gate_.close();
  co_await txg_->stop();
  if (failed_.load()) co_return Err(Errc::kIo, fmt::format("ost{} had failed; the next start checks it", options_.ost));
  CO_CHECK_OK(co_await txg_->cycle());
  auto store = [this] {
    auto ok = store_clean();
    index_.reset();
    return ok;
  };
  auto ok = co_await run_blocking(store);
  device_.reset();  // nothing is under way any more; this lets the lock on DIR/blocks go
  ::close(lock_fd_);
  lock_fd_ = -1;
  co_return ok;
}

// ---- beside the operations

void Store::tick() {
  space_->refresh_backing();
  space_->allocator().age_windows();
  if (!punching_) {
    punching_ = true;
    home_->spawn(punch());
  }
  if (!expiring_ && time_known_.load(std::memory_order_relaxed) && runtime_.clock().boot() >= next_expiry_) {
    expiring_ = true;
    next_expiry_ = runtime_.clock().boot() + kExpiryInterval;
    home_->spawn(expire());
  }
}

Task<void> Store::punch() {
  GateGuard open(gate_);
  if (open) {
    if (auto ok = co_await space_->punch(kPunchPerTick); !ok) log::warn("ost{}: space can't be given back to the filesystem: {}", options_.ost, ok.error().message());
  }
  punching_ = false;
}

Task<void> Store::expire() {
  GateGuard open(gate_);
  if (open) {
    const Nanos before = now();
    auto job = [&]() -> Result<void> {
      std::vector<std::string> gone;
      NACRE_CHECK_OK(index_->scan(Family::kTombstone, {}, {}, [&](std::string_view key, std::string_view value) {
        auto record = view_record<schema::TombstoneRecordT>(value);
        if (!record || (*record)->until() < before) gone.emplace_back(key);
        return gone.size() < kExpirePerBatch;
      }));
      std::vector<SessionId> lifted;
      {
        std::shared_lock lock(state_mutex_);
        for (auto [session, until] : fences_)
          if (until < before) lifted.push_back(session);
      }
      if (gone.empty() && lifted.empty()) return {};
      auto number = index_->commit([&](Batch& batch) -> Result<void> {
        for (const std::string& key : gone) batch.erase(Family::kTombstone, key);
        for (SessionId session : lifted) batch.erase(Family::kFence, fence_key(session));
        return {};
      });
      if (!number) return std::unexpected(std::move(number).error());
      std::unique_lock lock(state_mutex_);
      for (SessionId session : lifted)
        if (auto it = fences_.find(session); it != fences_.end() && it->second < before) fences_.erase(it);
      return {};
    };
    if (auto ok = co_await run_blocking(job); !ok) log::warn("ost{}: old tombstones can't be removed: {}", options_.ost, ok.error().message());
  }
  expiring_ = false;
}

}  // namespace nacre::storage
