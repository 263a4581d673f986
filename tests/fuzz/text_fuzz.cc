// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and ids as people write them: a value in range or a sentence.
#include <cstdlib>

#include "common/base/units.h"
#include "common/config/cluster.h"

using namespace nacre;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (auto n = parse_size(text)) {
    if (*n > static_cast<uint64_t>(INT64_MAX)) std::abort();
    if (!parse_size(std::to_string(*n)) || *parse_size(std::to_string(*n)) != *n) std::abort();
    (void)format_size(*n);
  } else if (n.error().detail.empty()) {
    std::abort();
  }
  if (auto d = parse_duration_ms(text); !d && d.error().detail.empty()) std::abort();
  if (auto id = config::parse_uuid(text)) {
    auto again = config::parse_uuid(config::format_uuid(*id));
    if (!again || *again != *id) std::abort();
  }
  return 0;
}
