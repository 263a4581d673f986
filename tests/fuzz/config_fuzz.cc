// SPDX-License-Identifier: Apache-2.0
// Cluster files: any text gives a cluster or a sentence; what parses dumps to text that parses to the same.
#include <cstdlib>

#include "common/config/cluster.h"

using namespace nacre;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto c = config::parse_cluster(std::string_view(reinterpret_cast<const char*>(data), size), "/fuzz/cluster.toml");
  if (!c) {
    if (c.error().detail.empty()) std::abort();
    return 0;
  }
  const std::string text = config::dump_cluster(*c);
  auto again = config::parse_cluster(text, "/fuzz/cluster.toml");
  if (!again || config::dump_cluster(*again) != text) std::abort();
  return 0;
}
