// SPDX-License-Identifier: Apache-2.0
#include "common/runtime/watch.h"

#include <algorithm>

#include "common/runtime/loop.h"

namespace nacre {

Watch::Entry::Entry(Watch& watch, Nanos since) : watch_(watch), shard_(Loop::current() ? Loop::current()->index() % watch.shards_.size() : 0), since_(since) {
  auto& s = watch_.shards_[shard_];
  std::lock_guard lock(s.mutex);
  next_ = s.head;
  if (s.head) s.head->prev_ = this;
  s.head = this;
  ++s.count;
}

Watch::Entry::~Entry() { leave(); }

void Watch::Entry::leave() {
  if (!listed_) return;
  auto& s = watch_.shards_[shard_];
  std::lock_guard lock(s.mutex);
  listed_ = false;
  if (prev_) prev_->next_ = next_;
  else s.head = next_;
  if (next_) next_->prev_ = prev_;
  --s.count;
}

std::vector<Watch::Row> Watch::collect(Nanos now, Nanos least, size_t most, const std::function<bool(Entry&)>& wanted) const {
  std::vector<Row> out;
  for (auto& s : shards_) {
    std::lock_guard lock(s.mutex);
    for (auto* e = s.head; e; e = e->next_)
      if (now - e->since_ >= least && wanted(*e)) out.push_back({now - e->since_, e->describe()});
  }
  std::stable_sort(out.begin(), out.end(), [](const Row& a, const Row& b) { return a.age > b.age; });
  if (out.size() > most) out.resize(most);
  return out;
}

std::vector<Watch::Row> Watch::list(Nanos now, Nanos least, size_t most) const {
  return collect(now, least, most, [](Entry&) { return true; });
}

std::vector<Watch::Row> Watch::news(Nanos now, Nanos least, Nanos again, size_t most) {
  return collect(now, least, most, [&](Entry& e) {
    if (e.told_ != 0 && now - e.told_ < again) return false;
    e.told_ = std::max<Nanos>(now, 1);
    return true;
  });
}

size_t Watch::count() const {
  size_t n = 0;
  for (auto& s : shards_) {
    std::lock_guard lock(s.mutex);
    n += s.count;
  }
  return n;
}

}  // namespace nacre
