// SPDX-License-Identifier: Apache-2.0
// What the store tells about itself, what the MDS tells it, and commit().
#include "common/log/log.h"
#include "storage/object/store.h"

namespace nacre::storage {
namespace {
constexpr size_t kMaxState = 100'000;  ///< epochs or fences in one call
}

void Store::note_object(Batch& batch, const ObjectId& object) {
  if (object.ino.v <= max_ino_.load(std::memory_order_relaxed)) return;
  max_ino_.store(object.ino.v, std::memory_order_relaxed);
  schema::RangeRecordT record;
  record.high = object.ino.v;
  batch.put(Family::kSuper, kMaxInoKey, encode_record(record));
}

void Store::note_command(Batch& batch, CmdSeq command) {
  if (command.v <= max_command_.load(std::memory_order_relaxed)) return;
  max_command_.store(command.v, std::memory_order_relaxed);
  schema::RangeRecordT record;
  record.high = command.v;
  batch.put(Family::kSuper, kMaxCommandKey, encode_record(record));
}

void Store::note_freed(const ObjectId& object, const std::vector<Extent>& extents) {
  if (doubtful_.empty() || !doubtful_.contains(object)) txg_->freed(extents);
  else rescan_ = true;  // another object frees what both have; the rest is found by the next start
}

Task<Result<WSeq>> Store::commit(WSeq up_to) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  const WSeq wanted = up_to && up_to < txg_->newest() ? up_to : txg_->newest();
  while (txg_->stable() < wanted) CO_CHECK_OK(co_await txg_->force());
  co_return txg_->stable();
}

Usage Store::usage() const { return {capacity_, space_->used(), space_->available(), objects_.load(std::memory_order_relaxed)}; }

Status Store::status() const {
  Status s;
  s.txg = txg_->filling();
  s.stable = txg_->stable();
  s.last = txg_->newest();
  s.checksum_errors = checksum_errors_.load(std::memory_order_relaxed);
  s.resends_applied = resends_applied_.load(std::memory_order_relaxed);
  s.resends_refused = resends_refused_.load(std::memory_order_relaxed);
  s.free_extents = space_->allocator().extents();
  s.undo_restored = undo_restored_;
  s.io = io_kind_;
  return s;
}

void Store::note_session(SessionId session) {
  if (session.v <= max_session_.load(std::memory_order_relaxed)) return;
  GateGuard open(gate_);
  if (!open) return;
  const auto build = [&](Batch& batch) -> Result<void> {
    if (session.v <= max_session_.load(std::memory_order_relaxed)) return {};
    schema::RangeRecordT record;
    record.high = (session.v / kSessionsPerMark + 1) * kSessionsPerMark;
    batch.put(Family::kSuper, kMaxSessionKey, encode_record(record));
    max_session_.store(record.high, std::memory_order_relaxed);
    txg_->touch();
    return {};
  };
  // Not waited for: after a power loss the metadata server adds more than one step to what it hears.
  if (auto number = index_->commit(build); !number) log::error("ost{}: {}", options_.ost, number.error().message());
}

Registration Store::registration() const {
  Registration r = registration_;
  r.max_session = SessionId(max_session_.load(std::memory_order_relaxed));
  {
    std::shared_lock lock(state_mutex_);
    for (const auto& [fileset, epoch] : epochs_) r.max_epoch = std::max(r.max_epoch, epoch);
  }
  r.max_ino = Ino(max_ino_.load(std::memory_order_relaxed));
  r.max_command = CmdSeq(max_command_.load(std::memory_order_relaxed));
  return r;
}

Task<Result<void>> Store::set_epochs(std::vector<std::pair<FilesetId, Epoch>> epochs) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (epochs.size() > kMaxState) co_return Err(Errc::kInval, fmt::format("{} epochs in one call; at most {} are possible", epochs.size(), kMaxState));
  bool changed = false;
  const auto build = [&](Batch& batch) -> Result<void> {
    std::unique_lock lock(state_mutex_);  // under the journal mutex: each write's batch is before or after
    for (auto [fileset, epoch] : epochs) {
      Epoch& known = epochs_[fileset];
      if (epoch <= known) continue;
      known = epoch;
      changed = true;
      schema::EpochRecordT record;
      record.epoch = epoch.v;
      batch.put(Family::kEpoch, epoch_key(fileset), encode_record(record));
    }
    txg_->touch();
    return {};
  };
  auto number = index_->commit(build);
  if (!number) co_return std::unexpected(std::move(number).error());
  if (!changed) co_return Result<void>{};
  co_return co_await txg_->through(*number);
}

Epoch Store::epoch(FilesetId fileset) const {
  std::shared_lock lock(state_mutex_);
  auto it = epochs_.find(fileset);
  return it == epochs_.end() || !it->second ? Epoch(1) : it->second;
}

Task<Result<void>> Store::set_fences(std::vector<FenceEntry> fences) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (fences.size() > kMaxState) co_return Err(Errc::kInval, fmt::format("{} fences in one call; at most {} are possible", fences.size(), kMaxState));
  const auto build = [&](Batch& batch) -> Result<void> {
    std::unique_lock lock(state_mutex_);
    for (const FenceEntry& f : fences) {
      if (f.until == 0) {
        fences_.erase(f.session);
        batch.erase(Family::kFence, fence_key(f.session));
        continue;
      }
      Nanos& until = fences_[f.session];
      if (f.until <= until) continue;
      until = f.until;
      schema::FenceRecordT record;
      record.until = f.until;
      record.since = now();
      batch.put(Family::kFence, fence_key(f.session), encode_record(record));
    }
    txg_->touch();
    return {};
  };
  auto number = index_->commit(build);
  if (!number) co_return std::unexpected(std::move(number).error());
  co_return co_await txg_->through(*number);  // a fence that is told again may be the one that isn't stable yet
}

bool Store::fenced(SessionId session) const {
  std::shared_lock lock(state_mutex_);
  return fences_.contains(session);
}

std::vector<FenceEntry> Store::fences() const {
  std::shared_lock lock(state_mutex_);
  std::vector<FenceEntry> out;
  for (auto [session, until] : fences_) out.push_back({session, until});
  return out;
}

}  // namespace nacre::storage
