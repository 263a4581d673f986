// SPDX-License-Identifier: Apache-2.0
#include "common/layout/layout.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "common/base/rng.h"
#include "common/base/units.h"

namespace nacre::layout {
namespace {

using schema::ComponentT;
using schema::LayoutT;

void add(LayoutT& l, uint64_t start, uint64_t end, uint32_t stripe_size, std::vector<uint32_t> osts, bool instantiated = true) {
  auto c = std::make_unique<ComponentT>();
  c->start = start, c->end = end, c->stripe_size = stripe_size, c->osts = std::move(osts);
  c->stripe_count = static_cast<uint16_t>(c->osts.size());
  c->instantiated = instantiated;
  c->stripes_used = c->stripe_count;
  l.components.push_back(std::move(c));
}

/// Where byte `at` of the file lies, worked out one byte at a time from the definition.
struct Place { size_t component; uint16_t stripe; uint64_t object_offset; };
Place model(const LayoutT& l, uint64_t at) {
  size_t i = 0;
  while (l.components[i]->end != 0 && at >= l.components[i]->end) ++i;
  const ComponentT& c = *l.components[i];
  uint64_t rel = at - c.start, row = 0;
  const uint64_t row_bytes = uint64_t{c.stripe_size} * std::max<size_t>(1, c.osts.size());
  while (rel >= row_bytes) rel -= row_bytes, ++row;
  uint16_t stripe = 0;
  while (rel >= c.stripe_size) rel -= c.stripe_size, ++stripe;
  return {i, stripe, row * c.stripe_size + rel};
}

LayoutT random_layout(Rng& rng) {
  LayoutT l;
  const size_t n = 1 + rng.below(4);
  uint64_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t end = i + 1 == n ? 0 : at + kMinStripeSize * (1 + rng.below(6));
    std::vector<uint32_t> osts(1 + rng.below(5));
    for (auto& o : osts) o = static_cast<uint32_t>(rng.below(50));
    add(l, at, end, static_cast<uint32_t>(kMinStripeSize * (1 + rng.below(3))), osts, rng.below(5) != 0);
    at = end;
  }
  return l;
}

TEST(Layout, SplitAgreesWithTheByteModel) {
  SeededRng rng(20240611);
  for (int round = 0; round < 400; ++round) {
    const LayoutT l = random_layout(rng);
    ASSERT_TRUE(validate(l));
    const uint64_t offset = rng.below(24 * kMinStripeSize), length = rng.below(12 * kMinStripeSize);
    const uint64_t max_piece = rng.below(2) ? kMaxIo : 1 + rng.below(100'000);
    auto pieces = split(l, offset, length, max_piece);
    ASSERT_TRUE(pieces) << pieces.error().message();
    uint64_t at = offset;
    auto skip_holes = [&](uint64_t to) {
      for (; at < to; at += 509) ASSERT_FALSE(l.components[model(l, at).component]->instantiated) << "byte " << at << " is missing";
      at = to;
    };
    for (const Piece& p : *pieces) {
      ASSERT_GT(p.length, 0u);
      ASSERT_LE(p.length, max_piece);
      ASSERT_GE(p.file_offset, at);
      skip_holes(p.file_offset);
      for (uint64_t i = 0; i < p.length; i += i + 509 < p.length ? 509 : std::max<uint64_t>(1, p.length - 1 - i)) {
        const Place m = model(l, at + i);
        ASSERT_EQ(p.component, m.component);
        ASSERT_EQ(p.stripe, m.stripe);
        ASSERT_EQ(p.object_offset + i, m.object_offset);
        ASSERT_EQ(p.ost.v, l.components[m.component]->osts[m.stripe]);
      }
      at += p.length;
    }
    skip_holes(offset + length);
    EXPECT_EQ(at, offset + length);
  }
}

TEST(Layout, SizesAgreeWithTheByteModel) {
  SeededRng rng(7);
  for (int round = 0; round < 100; ++round) {
    const LayoutT l = random_layout(rng);
    const uint64_t size = rng.below(24 * kMinStripeSize);
    std::map<std::pair<size_t, uint16_t>, std::pair<uint64_t, uint64_t>> ends;  // object size, file end
    // The last byte of each stripe run decides; runs are multiples of 64 KiB, so their ends and the file's end are enough.
    auto visit = [&](uint64_t at) {
      const Place m = model(l, at);
      auto& e = ends[{m.component, m.stripe}];
      e.first = std::max(e.first, m.object_offset + 1);
      e.second = std::max(e.second, at + 1);
    };
    for (uint64_t at = kMinStripeSize - 1; at < size; at += kMinStripeSize) visit(at);
    if (size) visit(size - 1);
    for (size_t i = 0; i < l.components.size(); ++i)
      for (uint16_t s = 0; s < l.components[i]->osts.size(); ++s) {
        auto it = ends.find({i, s});
        const uint64_t object = it == ends.end() ? 0 : it->second.first, end = it == ends.end() ? 0 : it->second.second;
        EXPECT_EQ(object_end(*l.components[i], s, size), object);
        EXPECT_EQ(file_end(*l.components[i], s, object), end);
      }
  }
}

TEST(Layout, ObjectRangesCoverExactlyThePieces) {
  SeededRng rng(99);
  for (int round = 0; round < 200; ++round) {
    LayoutT l = random_layout(rng);
    for (auto& c : l.components) c->instantiated = true;
    const uint64_t offset = rng.below(20 * kMinStripeSize), length = 1 + rng.below(10 * kMinStripeSize);
    std::map<std::pair<uint16_t, uint16_t>, std::pair<uint64_t, uint64_t>> seen;  // lowest offset, total
    const auto pieces = split(l, offset, length, kMaxIo);
    ASSERT_TRUE(pieces);
    for (const Piece& p : *pieces) {
      auto [it, fresh] = seen.try_emplace({p.component, p.stripe}, p.object_offset, 0);
      it->second.first = std::min(it->second.first, p.object_offset);
      it->second.second += p.length;
    }
    for (uint16_t i = 0; i < l.components.size(); ++i)
      for (uint16_t s = 0; s < l.components[i]->osts.size(); ++s) {
        const ObjectRange r = object_range(*l.components[i], s, offset, length);
        auto it = seen.find({i, s});
        ASSERT_EQ(r.end - r.begin, it == seen.end() ? 0 : it->second.second);
        if (it != seen.end()) {
          EXPECT_EQ(r.begin, it->second.first);
        }
      }
  }
}

TEST(Layout, CutsLieBetweenBlocks) {
  LayoutT l;
  add(l, 0, 0, 1 << 20, {3});
  auto pieces = split(l, 100, 3 << 20, kMaxIo);
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 4u);
  for (size_t i = 1; i < pieces->size(); ++i) EXPECT_EQ((*pieces)[i].object_offset % kBlockSize, 0u);
}

TEST(Layout, OneStripeGivesOneRun) {
  LayoutT l;
  add(l, 0, 0, 1 << 16, {3});
  auto pieces = split(l, 0, 1 << 20, kMaxIo);
  ASSERT_TRUE(pieces);
  ASSERT_EQ(pieces->size(), 1u);
}

TEST(Layout, InstantiatedLooksAtStripesUsed) {
  LayoutT l;
  add(l, 0, 4 * kMinStripeSize, kMinStripeSize, {0});
  add(l, 4 * kMinStripeSize, 0, kMinStripeSize, {1, 2, 3, 4});
  l.components[1]->stripes_used = 2;
  EXPECT_TRUE(is_instantiated(l, 0, 4 * kMinStripeSize));
  EXPECT_TRUE(is_instantiated(l, 0, 6 * kMinStripeSize));
  EXPECT_FALSE(is_instantiated(l, 0, 6 * kMinStripeSize + 1));
  EXPECT_TRUE(is_instantiated(l, 8 * kMinStripeSize, 2 * kMinStripeSize));
  EXPECT_FALSE(is_instantiated(l, 7 * kMinStripeSize, 2 * kMinStripeSize));
  EXPECT_TRUE(is_instantiated(l, 7 * kMinStripeSize, 0));
  l.components[1]->instantiated = false;
  EXPECT_FALSE(is_instantiated(l, 4 * kMinStripeSize, 1));
  EXPECT_EQ(used_objects(l, Ino(5)).size(), 1u);
  l.components[1]->instantiated = true;
  const auto used = used_objects(l, Ino(5));
  ASSERT_EQ(used.size(), 3u);
  EXPECT_EQ(used[2].object, (ObjectId{Ino(5), Generation(1), 1, 1}));
  EXPECT_EQ(used[2].ost, OstId(2));
}

TEST(Layout, BadInputIsRefusedNotBelieved) {
  LayoutT l;
  add(l, 0, 0, 1 << 20, {1, 2});
  EXPECT_FALSE(split(l, kMaxFileSize - 10, 11, kMaxIo));
  EXPECT_FALSE(split(l, UINT64_MAX, UINT64_MAX, kMaxIo));
  EXPECT_FALSE(split(l, 0, 1, 0));
  EXPECT_TRUE(split(l, 0, 0, kMaxIo)->empty());
  l.components[0]->stripe_size = 0;
  EXPECT_FALSE(split(l, 0, 1, kMaxIo));
  l.components[0]->stripe_size = 1 << 20;
  l.components[0]->osts.clear();
  EXPECT_FALSE(split(l, 0, 1, kMaxIo));
  EXPECT_EQ(file_end(*l.components[0], 0, 5), 0u);
  l.components[0] = nullptr;
  EXPECT_FALSE(split(l, 0, 1, kMaxIo));
  EXPECT_FALSE(split(LayoutT{}, 0, 1, kMaxIo));
  EXPECT_EQ(component_at(LayoutT{}, 0), 0u);

  LayoutT wide;
  add(wide, 0, 0, 0xffff0000, {1, 2, 3});
  EXPECT_EQ(file_end(*wide.components[0], 2, UINT64_MAX), kMaxFileSize);
}

TEST(Layout, ADamagedComponentIsNotInstantiated) {
  LayoutT l;
  add(l, 0, 0, 0, {1});
  EXPECT_FALSE(is_instantiated(l, 0, 1)) << "stripes of 0 bytes";
}

TEST(Layout, ValidateSaysWhatToDo) {
  auto refused = [](auto change, const char* word) {
    LayoutT l;
    add(l, 0, 4 << 20, 1 << 20, {});
    add(l, 4 << 20, 0, 1 << 20, {});
    change(l);
    auto r = validate(l);
    ASSERT_FALSE(r) << word;
    EXPECT_EQ(r.error().code, Errc::kInval);
    EXPECT_NE(r.error().detail.find(word), std::string::npos) << r.error().detail;
  };
  refused([](LayoutT& l) { l.components[0]->stripe_size = 100'000; }, "multiple of 65536");
  refused([](LayoutT& l) { l.components[0]->stripe_size = 0; }, "multiple of 65536");
  refused([](LayoutT& l) { l.components[0]->start = 4096; }, "must start");
  refused([](LayoutT& l) { l.components[0]->end = 0; }, "only the last");
  refused([](LayoutT& l) { l.components[1]->end = 8 << 20; }, "-E -1");
  refused([](LayoutT& l) { l.components[0]->end = (4 << 20) + 1; }, "multiples");
  refused([](LayoutT& l) { l.components[1]->start = 8 << 20; }, "must start");
  refused([](LayoutT& l) { l.components[1]->stripe_count = 2001; }, "stripe count");
  refused([](LayoutT& l) { l.components[1]->first_ost = -2; }, "-1 for any");
  refused([](LayoutT& l) { l.replica_count = 2; }, "one copy");
  refused([](LayoutT& l) { while (l.components.size() < 33) l.components.push_back(std::make_unique<ComponentT>()); }, "at most 32");
  refused([](LayoutT& l) { l.components[0]->pool.assign(64, 'p'); }, "pool name");
  EXPECT_TRUE(validate(LayoutT{}));
}

}  // namespace
}  // namespace nacre::layout
