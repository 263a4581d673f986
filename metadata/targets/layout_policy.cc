// SPDX-License-Identifier: Apache-2.0
// See layout_policy.h.
#include "metadata/targets/layout_policy.h"

#include <algorithm>

#include "common/base/units.h"
#include "common/layout/layout.h"

namespace nacre::mds {

schema::LayoutT default_layout(const config::Settings& settings) {
  schema::LayoutT out;
  auto component = [&](uint64_t start, uint64_t end, uint64_t count) {
    auto c = std::make_unique<schema::ComponentT>();
    c->start = start;
    c->end = end;
    c->stripe_size = static_cast<uint32_t>(round_up(settings.layout_stripe_size, kMinStripeSize));
    c->stripe_count = static_cast<uint16_t>(count);
    out.components.push_back(std::move(c));
  };
  const uint64_t small = round_up(settings.layout_small, kMinStripeSize);
  if (small != 0) component(0, small, 1);
  component(small, 0, settings.layout_wide_count);
  return out;
}

// ---------------------------------------------------------------- choice

static bool in_pool(const Candidate& c, const std::string& pool) {
  return pool.empty() || std::find(c.pools.begin(), c.pools.end(), pool) != c.pools.end();
}
static bool is_full(const Candidate& c) { return c.capacity == 0 || c.available < c.capacity / 100 * (100 - kFullPercent); }

/// Equal while free space is about even, else proportional to it.
static std::vector<double> weights(const std::vector<const Candidate*>& from) {
  uint64_t least = UINT64_MAX, most = 0;
  for (const Candidate* c : from) {
    least = std::min(least, c->available);
    most = std::max(most, c->available);
  }
  const bool even = most == 0 || least >= most / 100 * (100 - kEvenPercent);
  std::vector<double> out;
  for (const Candidate* c : from) out.push_back(even ? 1.0 : std::max(static_cast<double>(c->available) / static_cast<double>(most), 0.001));
  return out;
}

Result<std::vector<OstId>> OstChooser::choose(const std::vector<Candidate>& candidates, size_t count, const std::string& pool, int32_t first) {
  // Nobody is on record only before the targets of a new cluster have registered: who writes meanwhile waits, he isn't short of space.
  if (candidates.empty()) return Err(Errc::kRetryLater, "no storage target has registered with the metadata server yet: see that nacre-oss runs ('nacre cluster status')");
  // The best class that has anything: up with space, up, down. I/O to a target that is down waits for it.
  std::vector<const Candidate*> from, up, active;
  for (const Candidate& c : candidates) {
    if (!c.active || !in_pool(c, pool)) continue;
    active.push_back(&c);
    if (!c.up) continue;
    up.push_back(&c);
    if (!is_full(c)) from.push_back(&c);
  }
  if (from.empty()) from = up.empty() ? active : up;
  if (from.empty())
    return Err(Errc::kNoSpc, pool.empty() ? std::string("no storage target takes new files: see 'nacre ost list'")
                                          : fmt::format("no storage target of pool '{}' takes new files: see 'nacre ost list'", pool));
  if (count == 0 || count > from.size()) count = from.size();

  std::lock_guard guard(mutex_);
  const std::vector<double> weight = weights(from);
  double total = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    credit_[from[i]->id] += weight[i];
    total += weight[i];
  }
  std::vector<const Candidate*> order = from;
  std::sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) {
    const bool head_a = first >= 0 && a->id.v == static_cast<uint32_t>(first), head_b = first >= 0 && b->id.v == static_cast<uint32_t>(first);
    if (head_a != head_b) return head_a;
    const double ca = credit_[a->id], cb = credit_[b->id];
    return ca != cb ? ca > cb : a->id < b->id;
  });
  std::vector<OstId> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(order[i]->id);
    credit_[order[i]->id] -= total / static_cast<double>(count);
  }
  // Credit of targets that were away neither grows nor is kept for ever.
  std::erase_if(credit_, [&](const auto& c) { return std::none_of(from.begin(), from.end(), [&](const Candidate* x) { return x->id == c.first; }); });
  return out;
}

// ---------------------------------------------------------------- layouts

/// Stripes 0 … n-1 that a write to [begin, end) of the component may touch.
static uint64_t stripes_touched(const schema::ComponentT& c, uint64_t begin, uint64_t end) {
  const uint64_t count = c.osts.size();
  if (end <= begin) return 1;
  const uint64_t first = (begin - c.start) / c.stripe_size, last = (end - 1 - c.start) / c.stripe_size;
  if (last - first + 1 >= count || first % count > last % count) return count;
  return last % count + 1;
}

static Result<bool> prepare(schema::ComponentT& c, uint64_t begin, uint64_t end, const Choose& choose) {
  bool changed = false;
  if (!c.instantiated) {
    NACRE_TRY(auto osts, choose(c));
    c.osts.clear();
    for (OstId o : osts) c.osts.push_back(o.v);
    c.stripe_count = static_cast<uint16_t>(osts.size());
    c.stripes_used = std::min<uint16_t>(kFirstStripes, c.stripe_count);
    c.instantiated = true;
    changed = true;
  }
  const uint64_t needed = stripes_touched(c, begin, end);
  while (c.stripes_used < needed) {
    c.stripes_used = static_cast<uint16_t>(std::min<size_t>(size_t{c.stripes_used} * 2, c.osts.size()));
    changed = true;
  }
  return changed;
}

Result<bool> instantiate(schema::LayoutT& layout, uint64_t offset, uint64_t length, const Choose& choose) {
  if (offset > kMaxFileSize || length > kMaxFileSize - offset) return Err(Errc::kFBig);
  bool changed = false;
  uint64_t at = offset;
  const uint64_t end = offset + length;
  do {
    const size_t i = layout::component_at(layout, at);
    if (i == layout.components.size()) return Err(Errc::kFBig, "the file's layout ends before that offset");
    schema::ComponentT& c = *layout.components[i];
    if (c.stripe_size == 0 || (c.instantiated && (c.osts.empty() || c.stripes_used == 0))) return Err(Errc::kCorrupt, "the file's layout is damaged");
    const uint64_t stop = c.end == 0 ? end : std::min(end, c.end);
    NACRE_TRY(bool now, prepare(c, at, std::max(stop, at), choose));
    changed = changed || now;
    at = stop;
  } while (at < end);
  return changed;
}

uint64_t component_bits(const schema::LayoutT& layout) {
  uint64_t bits = 0;
  for (size_t i = 0; i < layout.components.size() && i < 64; ++i)
    if (layout.components[i] && layout.components[i]->instantiated) bits |= uint64_t{1} << i;
  return bits;
}

}  // namespace nacre::mds
