// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/store_rows.h"

#include <cstdlib>

#include "metadata/store/rocks.h"

namespace nacre::mds::fuzz {

Rows rows_of(const Store& store) {
  Rows out;
  View view(store, Tier::kFull);
  for (size_t i = 0; i < kFamilies; ++i) {
    const auto family = static_cast<Family>(i);
    auto done = view.scan(family, "", "", [&](std::string_view key, std::string_view value) {
      if (family != Family::kMeta || key != kSuperKey) out.emplace(std::pair(family, std::string(key)), value);
      return true;
    });
    if (!done) std::abort();
  }
  return out;
}

void put_back(Store& store, const Rows& rows) {
  const Rows now = rows_of(store);
  RawBatch batch = store.rocks().begin(64 << 10);
  for (const auto& [key, value] : now)
    if (!rows.contains(key)) batch.del(key.first, key.second);
  for (const auto& [key, value] : rows)
    if (auto it = now.find(key); it == now.end() || it->second != value) batch.put(key.first, key.second, value);
  if (!store.rocks().write(batch).ok()) std::abort();
}

}  // namespace nacre::mds::fuzz
