// SPDX-License-Identifier: Apache-2.0
#include "storage/object/space.h"

#include <algorithm>

#include "common/base/units.h"

namespace nacre::storage {

uint64_t reserve_of(uint64_t capacity) { return std::min(std::max(capacity / 100 * 3, GiB), capacity / 10); }

uint64_t ReadEpochs::enter() {
  std::lock_guard lock(mutex_);
  ++counts_.back();
  return first_ + counts_.size() - 1;
}

void ReadEpochs::leave(uint64_t epoch) {
  std::lock_guard lock(mutex_);
  --counts_[epoch - first_];
  while (counts_.size() > 1 && counts_.front() == 0) {
    counts_.pop_front();
    ++first_;
  }
}

uint64_t ReadEpochs::advance() {
  std::lock_guard lock(mutex_);
  const uint64_t ended = first_ + counts_.size() - 1;
  if (counts_.size() == 1 && counts_.front() == 0) ++first_;
  else counts_.push_back(0);
  return ended;
}

bool ReadEpochs::ended(uint64_t epoch) const {
  std::lock_guard lock(mutex_);
  return first_ > epoch;
}

static uint64_t blocks_of(std::span<const Extent> extents) {
  uint64_t n = 0;
  for (const Extent& e : extents) n += e.length;
  return n;
}

Space::Space(uint64_t capacity, BlockDevice& device)
    : device_(device), allocator_(capacity / kBlockSize), reserve_(reserve_of(capacity) / kBlockSize) {
  refresh_backing();
}

uint64_t Space::leave(Purpose purpose) const {
  switch (purpose) {
    case Purpose::kNew: return reserve_;
    case Purpose::kOverwrite: return reserve_ / 2;
    case Purpose::kCommand: return 0;
  }
  return reserve_;
}

bool Space::backing_allows(uint64_t blocks, Purpose purpose) const {
  // The index lives on the same filesystem and grows with every write: half a reserve is kept for it.
  const int64_t keep = static_cast<int64_t>(leave(purpose) / 2 * kBlockSize);
  return backing_left_.load(std::memory_order_relaxed) - static_cast<int64_t>(blocks * kBlockSize) >= keep;
}

bool Space::has(uint64_t blocks, Purpose purpose) const {
  const uint64_t free = allocator_.free();
  return free >= blocks && free - blocks >= leave(purpose) && backing_allows(blocks, purpose);
}

std::string Space::shortage(uint64_t blocks, Purpose purpose) const {
  const std::string wanted = format_size(blocks * kBlockSize);
  if (!backing_allows(blocks, purpose))
    return fmt::format("the filesystem under it can't give {} more: remove other files from it, or add a storage target", wanted);
  return fmt::format("no room for {} more ({} are kept in reserve): delete files, or add a storage target", wanted, format_size(leave(purpose) * kBlockSize));
}

std::optional<std::vector<Extent>> Space::take(uint64_t blocks, Purpose purpose, const Allocator::Hint& hint) {
  if (!backing_allows(blocks, purpose)) return std::nullopt;
  auto extents = allocator_.allocate(blocks, leave(purpose), hint);
  if (extents) backing_left_.fetch_sub(static_cast<int64_t>(blocks * kBlockSize), std::memory_order_relaxed);
  return extents;
}

void Space::freed(std::span<const Extent> extents) { pending_.fetch_add(blocks_of(extents), std::memory_order_acq_rel); }

void Space::after_txg(std::vector<Extent> extents) {
  if (!extents.empty()) {
    std::lock_guard lock(mutex_);
    waiting_.push_back({reads_.advance(), std::move(extents)});
  }
  poll();
}

void Space::poll() {
  std::lock_guard lock(mutex_);
  while (!waiting_.empty() && reads_.ended(waiting_.front().epoch)) {
    allocator_.release(waiting_.front().extents);
    pending_.fetch_sub(blocks_of(waiting_.front().extents), std::memory_order_acq_rel);
    waiting_.pop_front();
  }
}

void Space::refresh_backing() { backing_left_.store(static_cast<int64_t>(std::min<uint64_t>(device_.backing_free(), INT64_MAX / 2)), std::memory_order_relaxed); }

Task<Result<void>> Space::punch(size_t times) {
  for (size_t i = 0; i < times; ++i) {
    auto extent = allocator_.take_for_punch();
    if (!extent) break;
    punching_.fetch_add(extent->length, std::memory_order_relaxed);
    auto ok = co_await device_.punch(extent->at * kBlockSize, extent->length * kBlockSize);
    punching_.fetch_sub(extent->length, std::memory_order_relaxed);
    allocator_.punched(*extent);  // punched or not, it is free
    if (!ok) co_return ok;
  }
  co_return Result<void>{};
}

uint64_t Space::used() const {
  const uint64_t free = allocator_.free() + punching_.load(std::memory_order_relaxed);
  return (allocator_.capacity() - std::min(free, allocator_.capacity())) * kBlockSize;
}

uint64_t Space::available() const {
  const uint64_t free = allocator_.free() + punching_.load(std::memory_order_relaxed) + pending_.load(std::memory_order_relaxed);
  const int64_t backing = backing_left_.load(std::memory_order_relaxed) - static_cast<int64_t>(reserve_ / 2 * kBlockSize);
  const uint64_t own = free > reserve_ ? (free - reserve_) * kBlockSize : 0;
  return std::min<uint64_t>(own, backing > 0 ? static_cast<uint64_t>(backing) / kBlockSize * kBlockSize : 0);
}

}  // namespace nacre::storage
