// SPDX-License-Identifier: Apache-2.0
// Counters of one storage target, shown by OssStatus. One row each; any thread may count.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "common/schema/codec.h"

namespace nacre::storage {

struct Metrics {
#define NACRE_OSS_METRICS(row)                                                                         \
  row(reads) row(read_bytes) row(writes) row(write_bytes) row(commits) row(seeks) row(stats)           \
  row(commands) row(fences) row(errors) row(checksum_refusals) row(capability_refusals)                \
  row(capabilities_verified) row(fenced_refusals) row(repeated_writes) row(stale_epochs) row(slow_requests) row(parked_requests) row(registrations) \
  row(scrubbed_bytes)
#define NACRE_METRIC_FIELD(name) std::atomic<uint64_t> name{0};
  NACRE_OSS_METRICS(NACRE_METRIC_FIELD)
#undef NACRE_METRIC_FIELD

  std::vector<std::unique_ptr<wire::MetricT>> list() const {
    std::vector<std::unique_ptr<wire::MetricT>> out;
    auto add = [&out](const char* name, uint64_t value) {
      auto m = std::make_unique<wire::MetricT>();
      m->name = name;
      m->value = value;
      out.push_back(std::move(m));
    };
#define NACRE_METRIC_ADD(name) add(#name, name.load(std::memory_order_relaxed));
    NACRE_OSS_METRICS(NACRE_METRIC_ADD)
#undef NACRE_METRIC_ADD
    return out;
  }
};

inline void count(std::atomic<uint64_t>& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace nacre::storage
