// SPDX-License-Identifier: Apache-2.0
#include "storage/object/object_table.h"

#include <algorithm>

#include "common/schema/codec.h"

namespace nacre::storage {

void ObjectState::encode(std::string& out) const {
  thread_local flatbuffers::FlatBufferBuilder b(512);
  b.Clear();
  b.Finish(schema::CreateObjectRecord(b, size, allocated, fileset.v, changed, command.v, wseq.v, truncate_wseq.v, died_epoch));
  out.clear();
  out.push_back(static_cast<char>(kRecordFormat));
  out.append(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
}

Result<ObjectState> ObjectState::decode(std::string_view value) {
  NACRE_TRY(const auto* r, view_record<schema::ObjectRecordT>(value));
  ObjectState s;
  s.exists = true;
  s.size = r->size();
  s.allocated = r->allocated();
  s.fileset = FilesetId(r->fileset());
  s.changed = r->changed();
  s.command = CmdSeq(r->command());
  s.wseq = WSeq(r->wseq());
  s.truncate_wseq = WSeq(r->truncate_wseq());
  s.died_epoch = r->died_epoch();
  return s;
}

// ---- range locks

static bool meets_any(const std::vector<BlockRange>& held, const BlockRange& range) {
  return std::any_of(held.begin(), held.end(), [&](const BlockRange& h) { return h.meets(range); });
}

/// Grants what no longer meets a held range or an earlier waiter. locks_mutex is held.
static void grant(Entry& entry) {
  std::vector<BlockRange> ahead;
  for (auto it = entry.waiters.begin(); it != entry.waiters.end();) {
    Entry::Waiter& w = **it;
    if (meets_any(entry.held, w.range) || meets_any(ahead, w.range)) {
      ahead.push_back(w.range);
      ++it;
      continue;
    }
    entry.held.push_back(w.range);
    w.granted = true;
    w.signal.set();
    it = entry.waiters.erase(it);
  }
}

void RangeLock::unlock() {
  if (!entry_) return;
  {
    std::lock_guard lock(entry_->locks_mutex);
    auto it = std::find_if(entry_->held.begin(), entry_->held.end(), [&](const BlockRange& h) { return h.first == range_.first && h.last == range_.last; });
    *it = entry_->held.back();
    entry_->held.pop_back();
    if (!entry_->waiters.empty()) grant(*entry_);
  }
  entry_.reset();
}

RangeLock& RangeLock::operator=(RangeLock&& o) noexcept {
  if (this != &o) {
    unlock();
    entry_ = std::move(o.entry_);
    range_ = o.range_;
  }
  return *this;
}

Task<Result<RangeLock>> lock_range(EntryPtr entry, BlockRange range) {
  std::shared_ptr<Entry::Waiter> waiter;
  {
    std::lock_guard lock(entry->locks_mutex);
    const bool queued = std::any_of(entry->waiters.begin(), entry->waiters.end(), [&](auto& w) { return w->range.meets(range); });
    if (!queued && !meets_any(entry->held, range)) {
      entry->held.push_back(range);
    } else if (entry->waiters.size() >= kMaxRangeWaiters) {
      co_return Err(Errc::kRetryLater, fmt::format("object {}: {} writers wait for each other", entry->id, kMaxRangeWaiters));
    } else {
      waiter = std::make_shared<Entry::Waiter>();
      waiter->range = range;
      entry->waiters.push_back(waiter);
    }
  }
  if (!waiter) co_return RangeLock(std::move(entry), range);
  auto woken = co_await waiter->signal.wait();
  {
    std::lock_guard lock(entry->locks_mutex);
    if (!waiter->granted) {
      std::erase(entry->waiters, waiter);
      grant(*entry);
      co_return std::unexpected(woken ? Error(Errc::kShutdown) : std::move(woken).error());
    }
  }
  co_return RangeLock(std::move(entry), range);
}

// ---- the table

EntryPtr ObjectTable::pin(const ObjectId& id) {
  Shard& s = shard(id.ino);
  std::lock_guard lock(s.mutex);
  auto [it, fresh] = s.nodes.try_emplace(id);
  if (fresh) {
    it->second.entry = std::make_shared<Entry>(id);
    s.recent.push_front(id);
    it->second.used = s.recent.begin();
    EntryPtr kept = it->second.entry;
    evict(s);
    return kept;
  }
  s.recent.splice(s.recent.begin(), s.recent, it->second.used);
  return it->second.entry;
}

EntryPtr ObjectTable::peek(const ObjectId& id) {
  Shard& s = shard(id.ino);
  std::lock_guard lock(s.mutex);
  auto it = s.nodes.find(id);
  return it == s.nodes.end() ? nullptr : it->second.entry;
}

void ObjectTable::evict(Shard& s) {
  static constexpr size_t kLook = 8;  // entries in use are passed over; the next call looks again
  auto it = s.recent.end();
  for (size_t looked = 0; looked < kLook && it != s.recent.begin(); ++looked) {
    if (s.nodes.size() <= kMaxEntries / kShards && slots_.load(std::memory_order_relaxed) <= kMaxSlots) return;
    --it;
    auto node = s.nodes.find(*it);
    if (node->second.entry.use_count() > 1) continue;  // new holders come only through the shard's mutex
    {
      std::lock_guard entry(node->second.entry->mutex);
      slots_.fetch_sub(node->second.entry->slots.size(), std::memory_order_relaxed);
    }
    s.nodes.erase(node);
    it = s.recent.erase(it);
  }
}

SlotPtr ObjectTable::slot(Entry& entry, uint64_t chunk) {
  SlotPtr& slot = entry.slots[chunk];
  if (slot) return slot;
  slot = std::make_shared<ChunkSlot>();
  SlotPtr kept = slot;
  slots_.fetch_add(1, std::memory_order_relaxed);
  // The lowest go first: a sequential user has passed them.
  for (auto it = entry.slots.begin(); it != entry.slots.end() && entry.slots.size() > kSlotsPerEntry;) {
    if (it->second.use_count() > 1) {
      ++it;
      continue;
    }
    it = entry.slots.erase(it);
    slots_.fetch_sub(1, std::memory_order_relaxed);
  }
  return kept;
}

void ObjectTable::drop_slots(Entry& entry, uint64_t first) {
  for (auto it = entry.slots.lower_bound(first); it != entry.slots.end();) {
    it->second->chunk = Chunk();  // for an operation that still holds it
    it->second->loaded = true;
    it->second->undo_txg = 0;
    it = entry.slots.erase(it);
    slots_.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace nacre::storage
