// SPDX-License-Identifier: Apache-2.0
// See RangeAllocator in journal.h.
#include <cassert>

#include "metadata/store/journal.h"

namespace nacre::mds {

RangeAllocator::RangeAllocator(Journal& journal, std::string name, uint64_t step) : journal_(journal), name_(std::move(name)), step_(step) {}

Result<std::unique_ptr<RangeAllocator>> RangeAllocator::open(Journal& journal, std::string name, uint64_t first, uint64_t step) {
  std::unique_ptr<RangeAllocator> out(new RangeAllocator(journal, std::move(name), step));
  View view(journal.store(), Tier::kFull);
  NACRE_TRY(auto record, view.get_record<schema::RangeRecordT>(Family::kRange, range_key(out->name_)));
  out->next_ = out->high_ = record ? record->high : first;
  return out;
}

std::optional<uint64_t> RangeAllocator::take() { return take(1); }

std::optional<uint64_t> RangeAllocator::take(uint64_t n) {
  assert(n <= step_);
  std::lock_guard lock(mutex_);
  if (high_ - next_ < n) return std::nullopt;
  uint64_t out = next_;
  next_ += n;
  return out;
}

bool RangeAllocator::low() const {
  std::lock_guard lock(mutex_);
  return high_ - next_ < step_ / 2 && !refilling_;
}

uint64_t RangeAllocator::next() const {
  std::lock_guard lock(mutex_);
  return next_;
}

void RangeAllocator::skip_past(uint64_t used) {
  std::lock_guard lock(mutex_);
  next_ = std::max(next_, used + 1);
  high_ = std::max(high_, next_);  // nothing is handed out of a range whose mark isn't stored: the next take() needs a refill
}

std::optional<uint64_t> RangeAllocator::begin_refill(Signal* wait) {
  std::lock_guard lock(mutex_);
  if (refilling_) {
    if (wait) waiting_.push_back(*wait);
    return std::nullopt;
  }
  refilling_ = true;
  return high_ + step_;
}

void RangeAllocator::end_refill(uint64_t high, bool ok) {
  std::vector<Signal> waiting;
  {
    std::lock_guard lock(mutex_);
    if (ok) high_ = std::max(high_, high);
    refilling_ = false;
    waiting.swap(waiting_);
  }
  for (auto& w : waiting) w.set();
}

Result<JournalNo> RangeAllocator::store_mark(uint64_t high) {
  schema::RangeRecordT record;
  record.high = high;
  Batch batch;
  batch.put_record(Family::kRange, range_key(name_), record);
  return journal_.commit(std::move(batch));
}

Task<Result<void>> RangeAllocator::refill() {
  Signal wait;
  auto high = begin_refill(&wait);
  if (!high) co_return co_await wait.wait();
  auto number = store_mark(*high);
  Result<void> done;
  if (number) done = co_await journal_.sync_to(*number);
  else done = std::unexpected(std::move(number).error());
  end_refill(*high, done.has_value());
  co_return done;
}

Result<void> RangeAllocator::refill_now() {
  auto high = begin_refill(nullptr);
  if (!high) return Err(Errc::kRetryLater, "another refill is under way");
  auto number = store_mark(*high);
  Result<void> done;
  if (number) done = journal_.sync_now();
  else done = std::unexpected(std::move(number).error());
  end_refill(*high, done.has_value());
  return done;
}

Result<void> RangeAllocator::give_back() {
  uint64_t next = 0;
  {
    std::lock_guard lock(mutex_);
    next = next_;
    high_ = next_;
  }
  auto number = store_mark(next);
  if (!number) return std::unexpected(std::move(number).error());
  return journal_.sync_now();
}

}  // namespace nacre::mds
