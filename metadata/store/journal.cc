// SPDX-License-Identifier: Apache-2.0
// See journal.h.
#include "metadata/store/journal.h"

#include <cassert>

#include "common/log/log.h"
#include "metadata/store/rocks.h"
#include "metadata/store/usage.h"

namespace nacre::mds {
namespace {
constexpr uint64_t kPruneEvery = 1024;  // changelog entries between two range deletions
}

struct Journal::State {
  State(Store& s, Options o) : options(std::move(o)), usage([&s](FilesetId id) {
    auto record = s.fileset(id);
    return record ? record->tier : std::string();
  }) {}

  Options options;
  std::mutex commit_mutex;  ///< number, usage cells, changelog sequence; held for one write
  Usage usage;
  uint64_t changelog_next = 1;
  std::atomic<uint64_t> committed{0}, synced{0};
  std::atomic<bool> failed{false};

  struct Waiter { uint64_t number; Signal signal; };
  std::mutex sync_mutex;    ///< syncing, waiters
  bool syncing = false;
  std::vector<Waiter> forcing, passive;
};

Journal::Journal(Store& store, Options options) : store_(store), state_(std::make_unique<State>(store, std::move(options))) {
  auto& rocks = store.rocks();
  state_->committed = state_->synced = rocks.last_number.load();
  std::lock_guard lock(rocks.error_mutex);
  rocks.on_error = [s = state_.get()](Error e) {
    if (!s->failed.exchange(true) && s->options.fatal) s->options.fatal(std::move(e));
  };
}

Journal::~Journal() {
  auto& rocks = store_.rocks();
  std::lock_guard lock(rocks.error_mutex);
  rocks.on_error = nullptr;
}

Result<std::unique_ptr<Journal>> Journal::open(Store& store, Options options) {
  std::unique_ptr<Journal> journal(new Journal(store, std::move(options)));
  View view(store, Tier::kFull);
  Error bad(Errc::kOk);
  NACRE_CHECK_OK(view.scan(Family::kUsage, "", "", [&](std::string_view key, std::string_view value) {
    auto cell = parse_usage_key(key);
    auto record = decode_record<schema::UsageRecordT>(value);
    if (!cell || !record) {
      bad = Error(Errc::kCorrupt, "a usage counter is damaged: look with `nacre fsck`");
      return false;
    }
    journal->state_->usage.load({cell->fileset, cell->uid, cell->gid}, {record->bytes, record->inodes});
    return true;
  }));
  if (bad.code != Errc::kOk) return Err(std::move(bad));
  std::unique_ptr<rocksdb::Iterator> last(store.rocks().db->NewIterator(rocksdb::ReadOptions(), store.rocks().family(Family::kChangelog)));
  last->SeekToLast();
  if (last->Valid())
    if (auto sequence = parse_changelog_key(text(last->key()))) journal->state_->changelog_next = *sequence + 1;
  if (!last->status().ok()) return Err(to_error(last->status(), "reading the changelog"));
  return journal;
}

Result<JournalNo> Journal::commit(Batch rows) {
  auto& s = *state_;
  if (s.failed.load(std::memory_order_acquire)) return Err(Errc::kIo, "the metadata journal has failed; nothing more is acknowledged");
  if (rows.empty()) return committed();
  auto& rocks = store_.rocks();
  rocksdb::Status status;
  uint64_t number = 0;
  {
    std::lock_guard lock(s.commit_mutex);
    RawBatch batch = rocks.begin(rows.bytes() + 32 * rows.rows().size() + 256);
    number = batch.number();
    for (const auto& range : rows.ranges()) batch.del_range(range.family, range.begin, range.end);
    for (const auto& row : rows.rows()) {
      if (row.value) batch.put(row.family, row.key, *row.value);
      else batch.del(row.family, row.key);
    }
    auto changes = s.usage.plan(rows.charges());
    for (const auto& c : changes) {
      std::string key = usage_key(c.cell.fileset, c.cell.uid, c.cell.gid);
      schema::UsageRecordT record;
      record.bytes = c.absolute.bytes;
      record.inodes = c.absolute.inodes;
      if (record.bytes == 0 && record.inodes == 0) batch.del(Family::kUsage, key);
      else batch.put(Family::kUsage, key, encode_record(record));
    }
    if (uint64_t most = s.options.changelog_records; most > 0) {
      for (const auto& entry : rows.changelog()) {
        uint64_t sequence = s.changelog_next++;
        batch.put(Family::kChangelog, changelog_key(sequence), encode_record(entry));
        if (sequence % kPruneEvery == 0 && sequence > most) batch.del_range(Family::kChangelog, changelog_key(0), changelog_key(sequence - most));
      }
    }
    schema::RangeRecordT last;
    last.high = number;
    batch.put(Family::kMeta, kLastKey, encode_record(last));
    status = rocks.write(batch);
    if (status.ok()) {
      s.usage.apply(changes);
      s.committed.store(number, std::memory_order_release);
    }
  }
  if (!status.ok()) {
    rocks.report(status);
    return Err(to_error(status, "committing to the metadata journal"));
  }
  return JournalNo(number);
}

uint64_t Journal::changelog_last() const {
  std::lock_guard lock(state_->commit_mutex);
  return state_->changelog_next - 1;
}

Result<void> Journal::restart_changelog(uint64_t skip) {
  {
    std::lock_guard lock(state_->commit_mutex);
    state_->changelog_next += skip;
  }
  schema::ChangelogRecordT entry;
  entry.time = store_.rocks().options.clock->real();
  entry.kind = kChangeRestore;
  Batch batch;
  batch.log(std::move(entry));
  auto number = commit(std::move(batch));
  if (!number) return std::unexpected(std::move(number).error());
  return {};
}

JournalNo Journal::committed() const { return JournalNo(state_->committed.load(std::memory_order_acquire)); }
JournalNo Journal::synced() const { return JournalNo(state_->synced.load(std::memory_order_acquire)); }
bool Journal::failed() const { return state_->failed.load(std::memory_order_acquire); }

Result<void> Journal::sync_now() {
  auto& s = *state_;
  if (s.failed.load(std::memory_order_acquire)) return Err(Errc::kIo, "the metadata journal has failed");
  uint64_t target = s.committed.load(std::memory_order_acquire);
  auto& rocks = store_.rocks();
  auto status = rocks.db->SyncWAL();
  if (!status.ok()) {  // never tried again: after a failed fsync the kernel calls the lost pages clean
    rocks.report(status);
    return Err(to_error(status, "syncing the metadata journal"));
  }
  uint64_t have = s.synced.load(std::memory_order_relaxed);
  while (have < target && !s.synced.compare_exchange_weak(have, target, std::memory_order_release)) {
  }
  std::vector<State::Waiter> woken;
  {
    std::lock_guard lock(s.sync_mutex);
    std::erase_if(s.passive, [&](State::Waiter& w) {
      if (w.number > target) return false;
      woken.push_back(std::move(w));
      return true;
    });
  }
  for (auto& w : woken) w.signal.set();
  return {};
}

Task<Result<void>> Journal::sync_to(JournalNo number) {
  auto& s = *state_;
  for (;;) {
    if (s.synced.load(std::memory_order_acquire) >= number.v) co_return Result<void>{};
    if (failed()) co_return Err(Errc::kIo, "the metadata journal has failed");
    assert(number.v <= committed().v);
    std::optional<Signal> wait;
    {
      std::lock_guard lock(s.sync_mutex);
      if (s.syncing) s.forcing.push_back({number.v, wait.emplace()});
      else s.syncing = true;
    }
    if (wait) {
      CO_CHECK_OK(co_await wait->wait());  // the leader has finished: look again
      continue;
    }
    auto done = co_await run_blocking([this] { return sync_now(); });
    std::vector<State::Waiter> followers;
    {
      std::lock_guard lock(s.sync_mutex);
      s.syncing = false;
      followers.swap(s.forcing);
    }
    for (auto& f : followers) f.signal.set();
    if (!done) co_return std::unexpected(std::move(done).error());
  }
}

Task<Result<void>> Journal::wait_synced(JournalNo number) {
  auto& s = *state_;
  std::optional<Signal> wait;
  {
    std::lock_guard lock(s.sync_mutex);
    if (s.synced.load(std::memory_order_acquire) >= number.v) co_return Result<void>{};
    s.passive.push_back({number.v, wait.emplace()});
  }
  co_return co_await wait->wait();
}

Task<void> Journal::run_periodic() {
  for (;;) {
    auto slept = co_await sleep_for(state_->options.commit_interval);
    if (!slept) co_return;
    JournalNo target = committed();
    if (target == synced()) continue;
    auto done = co_await sync_to(target);
    if (!done) co_return;
  }
}

schema::UsageRecordT Journal::usage(const Subject& subject) const {
  auto amount = state_->usage.of(subject);
  schema::UsageRecordT out;
  out.bytes = amount.bytes;
  out.inodes = amount.inodes;
  return out;
}

schema::UsageRecordT Journal::usage_total() const {
  auto amount = state_->usage.total();
  schema::UsageRecordT out;
  out.bytes = amount.bytes;
  out.inodes = amount.inodes;
  return out;
}

}  // namespace nacre::mds
