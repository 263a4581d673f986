// SPDX-License-Identifier: Apache-2.0
// The open store: raw commit, sync, errors, filesets, clean close.
#include "metadata/store/store.h"

#include <unistd.h>

#include "common/log/log.h"
#include "metadata/store/directory.h"
#include "metadata/store/journal.h"
#include "metadata/store/rocks.h"

namespace nacre::mds {
namespace {
constexpr char kMarkerValue[] = {static_cast<char>(kRecordFormat), 0};  // a value that begins as every value does and holds nothing
}

Error to_error(const rocksdb::Status& s, std::string_view doing) {
  if (s.IsIncomplete()) return Error(Errc::kIncomplete);
  std::string detail = fmt::format("{}: {}", doing, s.ToString());
  if (s.IsCorruption()) return Error(Errc::kCorrupt, std::move(detail));
  if (s.IsNoSpace()) return Error(Errc::kNoSpc, std::move(detail));
  return Error(Errc::kIo, std::move(detail));
}

Store::Rocks::~Rocks() {
  {
    std::lock_guard lock(error_mutex);
    on_error = nullptr;
  }
  for (auto* h : handles) (void)db->DestroyColumnFamilyHandle(h);
  if (db) (void)db->Close();
  db.reset();
  if (lock_fd >= 0) ::close(lock_fd);
}

void RawBatch::put(Family f, std::string_view key, std::string_view value) {
  touches_inodes_ |= f == Family::kInode;
  auto s = batch_.Put(rocks_->family(f), slice(key), slice(value));
  if (!s.ok()) status_ = s;
}
void RawBatch::del(Family f, std::string_view key) {
  touches_inodes_ |= f == Family::kInode;
  auto s = batch_.Delete(rocks_->family(f), slice(key));
  if (!s.ok()) status_ = s;
}
void RawBatch::del_range(Family f, std::string_view begin, std::string_view end) {
  auto s = batch_.DeleteRange(rocks_->family(f), slice(begin), slice(end));
  if (!s.ok()) status_ = s;
}

RawBatch Store::Rocks::begin(size_t bytes) const {
  RawBatch out;
  out.rocks_ = this;
  out.number_ = last_number.load(std::memory_order_relaxed) + 1;
  out.batch_ = rocksdb::WriteBatch(bytes);
  out.status_ = out.batch_.PutLogData(log_data_of(out.number_));
  return out;
}

rocksdb::Status Store::Rocks::write(RawBatch& b) {
  if (!b.touches_inodes_) b.put(Family::kInode, inode_key(Ino(0)), std::string_view(kMarkerValue, 1));
  if (!b.status_.ok()) return b.status_;
  auto s = db->Write(rocksdb::WriteOptions(), &b.batch_);
  if (s.ok()) last_number.store(b.number_, std::memory_order_release);
  return s;
}

void Store::Rocks::report(const rocksdb::Status& why) {
  log::error("{}: the database reports: {}", options.path, why.ToString());
  std::function<void(Error)> fn;
  {
    std::lock_guard lock(error_mutex);
    fn = on_error;
  }
  if (fn) fn(to_error(why, "the metadata database"));
}

Result<void> Store::Rocks::sync() {
  auto s = db->SyncWAL();
  if (!s.ok()) return Err(to_error(s, "syncing the log of " + options.path));
  return {};
}

Store::~Store() = default;

Result<void> Store::close_clean() {
  auto super = super_;
  super.clean = true;
  auto batch = rocks_->begin(512);
  batch.put(Family::kMeta, kSuperKey, encode_record(super));
  auto s = rocks_->write(batch);
  if (!s.ok()) return Err(to_error(s, "writing the super record of " + rocks_->options.path));
  NACRE_CHECK_OK(rocks_->sync());
  s = rocks_->db->Flush(rocksdb::FlushOptions(), rocks_->handles);
  if (!s.ok()) return Err(to_error(s, "flushing " + rocks_->options.path));
  return {};
}

uint32_t Store::first_generation() const {
  return static_cast<uint32_t>(std::min<uint64_t>(restores_.load(std::memory_order_relaxed), kMaxCountedRestores)) * kGenerationsPerRestore;
}

Result<void> Store::end_restore(Journal& journal) {
  schema::RangeRecordT count;
  count.high = restores_.load() + 1;
  Batch batch;
  batch.put_record(Family::kMeta, std::string(kRestoresKey), count);
  NACRE_TRY(JournalNo number, journal.commit(std::move(batch)));
  (void)number;
  NACRE_CHECK_OK(journal.sync_now());
  restores_ = count.high;
  const std::string marker = rocks_->options.path + "/" + std::string(kRestoredFile);
  if (::unlink(marker.c_str()) != 0 && errno != ENOENT) return Err(from_errno(errno), fmt::format("{} can't be removed: {}", marker, std::strerror(errno)));
  NACRE_CHECK_OK(sync_directory(rocks_->options.path));
  restored_ = false;
  return {};
}

Result<void> Store::raise_epochs(Journal& journal, Epoch least) {
  Batch batch;
  std::vector<std::shared_ptr<const schema::FilesetRecordT>> raised;
  for (const auto& f : filesets()) {
    if (f->epoch >= least.v) continue;
    auto record = std::make_shared<schema::FilesetRecordT>(*f);
    record->epoch = least.v;
    batch.put_record(Family::kFileset, fileset_key(FilesetId(record->id)), *record);
    raised.push_back(std::move(record));
  }
  NACRE_TRY(JournalNo number, journal.commit(std::move(batch)));
  (void)number;
  std::unique_lock lock(rocks_->filesets_mutex);
  for (auto& r : raised) rocks_->filesets[r->id] = r;
  return {};
}

uint64_t Store::recovered_journal() const { return rocks_->guard.last(); }
bool Store::survived(uint64_t acked) const {
  const uint64_t run = acked >> kJournalCounterBits;
  if (acked == 0 || run == incarnation()) return true;
  // Of a run that is not on record nothing is known: it is too long ago, or a backup from before it was restored.
  return std::ranges::any_of(ends_, [&](uint64_t end) { return end >> kJournalCounterBits == run && acked <= end; });
}

bool Store::recovered_to_gap() const { return rocks_->guard.found_gap(); }

std::shared_ptr<const schema::FilesetRecordT> Store::fileset(FilesetId id) const {
  std::shared_lock lock(rocks_->filesets_mutex);
  auto it = rocks_->filesets.find(id.v);
  return it == rocks_->filesets.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<const schema::FilesetRecordT>> Store::filesets() const {
  std::shared_lock lock(rocks_->filesets_mutex);
  std::vector<std::shared_ptr<const schema::FilesetRecordT>> out;
  for (const auto& [id, record] : rocks_->filesets) out.push_back(record);
  return out;
}

}  // namespace nacre::mds
