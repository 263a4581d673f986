// SPDX-License-Identifier: Apache-2.0
// /metrics on loopback, as Prometheus reads it. Values are asked for when somebody reads, on the endpoint's own thread.
// Names: nacre_ in front, base units (_bytes, _seconds), _total for counters. Labels: component ("mds", "ost", "client"), target
// ("mds", "ost0", the mount point), operation, reader. Nothing by user or file: such series have no end.
#pragma once
#include <atomic>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/error.h"

namespace nacre::metrics {

enum class Type : uint8_t { kCounter, kGauge, kHistogram };
using Labels = std::vector<std::pair<std::string, std::string>>;

struct Value {
  Labels labels;
  double value = 0;                                  ///< of a histogram: the sum
  uint64_t count = 0;                                ///< histograms
  std::vector<std::pair<double, uint64_t>> buckets;  ///< histograms: upper bound, cumulative count
};
struct Family {
  std::string name, help;
  Type type = Type::kGauge;
  std::vector<Value> values;
};
using Collect = std::function<std::vector<Family>()>;

class Endpoint {
 public:
  virtual ~Endpoint() = default;                     ///< no call of `collect` is running afterwards
  virtual uint16_t port() const = 0;
  /// Listens on 127.0.0.1. port 0 = a free one; ports > 1: the first free one of so many. Errors: kOpNotSupp (built without
  /// prometheus-cpp), kInUse.
  static Result<std::unique_ptr<Endpoint>> open(uint16_t port, uint16_t ports, Collect collect);
};

/// How often and for how long each request of a server ran. Any thread; one cache line or two per method.
class Operations {
 public:
  static constexpr size_t kMethods = 128;
  static constexpr std::array<Nanos, 7> kBounds = {100 * kMicrosecond, kMillisecond, 10 * kMillisecond, 100 * kMillisecond, kSecond, 10 * kSecond, 100 * kSecond};
  void note(uint16_t method, Nanos took, bool failed);
  /// nacre_operation_seconds and nacre_operation_errors_total, for methods that were used. `name` of a method's number.
  void add_to(std::vector<Family>& out, const Labels& labels, const char* (*name)(uint16_t)) const;

 private:
  struct Row {
    std::atomic<uint64_t> count{0}, failed{0}, nanos{0};
    std::array<std::atomic<uint64_t>, kBounds.size()> within{};  ///< not cumulative
  };
  std::array<Row, kMethods> rows_{};
};

/// A family with one value.
Family gauge(std::string name, std::string help, Labels labels, double value);
Family counter(std::string name, std::string help, Labels labels, double value);

}  // namespace nacre::metrics
