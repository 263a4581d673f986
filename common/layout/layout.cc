// SPDX-License-Identifier: Apache-2.0
#include "common/layout/layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/units.h"

namespace nacre::layout {
namespace {
constexpr size_t kMaxPieces = 1u << 20;  ///< of one split: 64 GiB in stripes of 64 KiB
constexpr size_t kMaxPoolName = 63;

using schema::ComponentT;

uint64_t end_of(const ComponentT& c) { return c.end ? c.end : kMaxFileSize; }
uint64_t width(const ComponentT& c) { return c.osts.size(); }

/// What every function below relies on; layouts come from the network and from disk.
Result<void> check(const schema::LayoutT& layout) {
  if (layout.components.size() > kMaxComponents) return Err(Errc::kInval, fmt::format("a layout with {} components, the limit is {}", layout.components.size(), kMaxComponents));
  uint64_t at = 0;
  for (const auto& c : layout.components) {
    if (!c || c->start != at || end_of(*c) <= c->start || c->stripe_size == 0) return Err(Errc::kInval, "a malformed layout: its components don't follow each other");
    if (c->instantiated && (c->osts.empty() || c->osts.size() > kMaxStripes)) return Err(Errc::kInval, fmt::format("a malformed layout: an instantiated component on {} storage targets", c->osts.size()));
    at = end_of(*c);
  }
  return {};
}

/// Calls `fn(component index, first stripe number, last stripe number)` for each component that the range touches.
template <class F>
bool each_component(const schema::LayoutT& layout, uint64_t offset, uint64_t length, F fn) {
  const uint64_t end = length > kMaxFileSize - std::min(offset, kMaxFileSize) ? kMaxFileSize : offset + length;
  while (offset < end) {
    const size_t i = component_at(layout, offset);
    if (i == layout.components.size()) return false;
    const ComponentT& c = *layout.components[i];
    if (c.stripe_size == 0) return false;  // damaged
    const uint64_t stop = std::min(end, end_of(c));
    if (!fn(c, (offset - c.start) / c.stripe_size, (stop - 1 - c.start) / c.stripe_size)) return false;
    offset = stop;
  }
  return true;
}
}  // namespace

size_t component_at(const schema::LayoutT& layout, uint64_t offset) {
  for (size_t i = 0; i < layout.components.size(); ++i)
    if (layout.components[i] && offset >= layout.components[i]->start && offset < end_of(*layout.components[i])) return i;
  return layout.components.size();
}

Result<std::vector<Piece>> split(const schema::LayoutT& layout, uint64_t offset, uint64_t length, uint64_t max_piece) {
  NACRE_CHECK_OK(check(layout));
  if (max_piece == 0) return Err(Errc::kInval, "pieces of at most 0 bytes were asked for");
  if (length > kMaxFileSize || offset > kMaxFileSize - length) return Err(Errc::kInval, fmt::format("the range {}+{} ends beyond the largest file size", offset, length));
  std::vector<Piece> out;
  const uint64_t end = offset + length;
  while (offset < end) {
    const size_t i = component_at(layout, offset);
    if (i == layout.components.size()) return Err(Errc::kInval, fmt::format("a malformed layout: no component covers offset {}", offset));
    const ComponentT& c = *layout.components[i];
    const uint64_t stop = std::min(end, end_of(c));
    if (!c.instantiated) {
      offset = stop;
      continue;
    }
    const uint64_t number = (offset - c.start) / c.stripe_size, within = (offset - c.start) % c.stripe_size;
    Piece p;
    p.component = static_cast<uint16_t>(i);
    p.stripe = static_cast<uint16_t>(number % width(c));
    p.ost = OstId(c.osts[p.stripe]);
    p.object_offset = number / width(c) * c.stripe_size + within;
    p.file_offset = offset;
    // With one stripe the whole component is one run.
    uint64_t n = width(c) == 1 ? stop - offset : std::min<uint64_t>(stop - offset, c.stripe_size - within);
    if (n > max_piece) {
      // The cut lies between blocks where it can, so that no block is shared by two pieces of one request.
      const uint64_t cut = round_down(p.object_offset + max_piece, kBlockSize);
      n = cut > p.object_offset ? cut - p.object_offset : max_piece;
    }
    p.length = n;
    if (out.size() == kMaxPieces) return Err(Errc::kInval, fmt::format("a range of {} bytes falls into more than {} pieces", length, kMaxPieces));
    out.push_back(p);
    offset += n;
  }
  return out;
}

bool is_instantiated(const schema::LayoutT& layout, uint64_t offset, uint64_t length) {
  return each_component(layout, offset, length, [](const ComponentT& c, uint64_t first, uint64_t last) {
    if (!c.instantiated || c.osts.empty()) return false;
    const uint64_t count = width(c);
    const uint64_t highest = last - first >= count || first % count > last % count ? count - 1 : last % count;
    return highest < c.stripes_used;
  });
}

uint64_t object_end(const ComponentT& c, uint16_t stripe, uint64_t file_size) {
  const uint64_t count = width(c), cut = std::min(file_size, end_of(c));
  if (count == 0 || stripe >= count || c.stripe_size == 0 || cut <= c.start) return 0;
  const uint64_t full = (cut - c.start) / c.stripe_size, part = (cut - c.start) % c.stripe_size;
  const uint64_t rows = full / count * c.stripe_size;
  if (stripe < full % count) return rows + c.stripe_size;
  return stripe == full % count ? rows + part : rows;
}

uint64_t file_end(const ComponentT& c, uint16_t stripe, uint64_t object_size) {
  const uint64_t count = width(c);
  if (object_size == 0 || count == 0 || stripe >= count || c.stripe_size == 0) return 0;
  const uint64_t last = object_size - 1, limit = end_of(c);
  uint64_t end = 0;
  // An object larger than its component allows can only come from damage; the sum saturates instead of wrapping.
  if (__builtin_mul_overflow(last / c.stripe_size, count * c.stripe_size, &end) ||
      __builtin_add_overflow(end, c.start + uint64_t{stripe} * c.stripe_size + last % c.stripe_size + 1, &end))
    return limit;
  return std::min(end, limit);
}

ObjectRange object_range(const ComponentT& c, uint16_t stripe, uint64_t offset, uint64_t length) {
  const uint64_t end = length > kMaxFileSize - std::min(offset, kMaxFileSize) ? kMaxFileSize : offset + length;
  return {object_end(c, stripe, offset), object_end(c, stripe, end)};
}

std::vector<StripeRef> used_objects(const schema::LayoutT& layout, Ino ino) {
  std::vector<StripeRef> out;
  for (size_t i = 0; i < layout.components.size(); ++i) {
    const auto& c = layout.components[i];
    if (!c || !c->instantiated) continue;
    const size_t used = std::min<size_t>(c->stripes_used, c->osts.size());
    for (size_t s = 0; s < used; ++s)
      out.push_back({ObjectId{ino, Generation(layout.generation), static_cast<uint16_t>(i), static_cast<uint16_t>(s)}, OstId(c->osts[s])});
  }
  return out;
}

Result<void> validate(const schema::LayoutT& layout) {
  if (layout.components.size() > kMaxComponents) return Err(Errc::kInval, fmt::format("{} components: use at most {}", layout.components.size(), kMaxComponents));
  if (layout.replica_count != 1) return Err(Errc::kInval, fmt::format("{} replicas: this version keeps one copy, leave the count at 1", layout.replica_count));
  uint64_t at = 0;
  for (size_t i = 0; i < layout.components.size(); ++i) {
    const bool last = i + 1 == layout.components.size();
    if (!layout.components[i]) return Err(Errc::kInval, fmt::format("component {} is missing", i));
    const ComponentT& c = *layout.components[i];
    if (c.start != at) return Err(Errc::kInval, fmt::format("component {} starts at {}: it must start where the one before ends, at {}", i, c.start, at));
    if (last != (c.end == 0)) {
      if (last) return Err(Errc::kInval, fmt::format("the last component ends at {}: let it reach to the end of the file (-E -1)", c.end));
      return Err(Errc::kInval, fmt::format("component {} reaches to the end of the file: only the last one may", i));
    }
    if (!last && (c.end <= c.start || c.end % kMinStripeSize != 0 || c.end >= kMaxFileSize))
      return Err(Errc::kInval, fmt::format("component {} ends at {}: ends must ascend and be multiples of {} bytes", i, c.end, kMinStripeSize));
    if (c.stripe_size < kMinStripeSize || c.stripe_size % kMinStripeSize != 0)
      return Err(Errc::kInval, fmt::format("a stripe size of {} bytes: use a multiple of {} (64K)", c.stripe_size, kMinStripeSize));
    if (c.stripe_count > kMaxStripes) return Err(Errc::kInval, fmt::format("a stripe count of {}: use 1 to {}, or -1 for all storage targets", c.stripe_count, kMaxStripes));
    if (c.first_ost < -1) return Err(Errc::kInval, fmt::format("first storage target {}: use the number of one, or -1 for any", c.first_ost));
    if (c.pool.size() > kMaxPoolName) return Err(Errc::kInval, fmt::format("the pool name '{}' has more than {} bytes", c.pool, kMaxPoolName));
    at = c.end;
  }
  return {};
}

}  // namespace nacre::layout
