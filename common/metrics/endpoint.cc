// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/endpoint.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#ifdef NACRE_PROMETHEUS
#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#endif

namespace nacre::metrics {

#ifdef NACRE_PROMETHEUS
namespace {

prometheus::MetricType type_of(Type t) {
  switch (t) {
    case Type::kCounter: return prometheus::MetricType::Counter;
    case Type::kGauge: return prometheus::MetricType::Gauge;
    case Type::kHistogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric metric_of(Type type, const Value& v) {
  prometheus::ClientMetric m;
  for (const auto& [name, value] : v.labels) m.label.push_back({name, value});
  if (type == Type::kCounter) m.counter.value = v.value;
  if (type == Type::kGauge) m.gauge.value = v.value;
  if (type == Type::kHistogram) {
    m.histogram.sample_count = v.count;
    m.histogram.sample_sum = v.value;
    for (const auto& [bound, count] : v.buckets) m.histogram.bucket.push_back({count, bound});
  }
  return m;
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(nacre::metrics::Collect collect) : collect_(std::move(collect)) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> out;
    for (const Family& f : collect_()) {
      prometheus::MetricFamily family;
      family.name = f.name;
      family.help = f.help;
      family.type = type_of(f.type);
      for (const Value& v : f.values) family.metric.push_back(metric_of(f.type, v));
      out.push_back(std::move(family));
    }
    return out;
  }

 private:
  nacre::metrics::Collect collect_;
};

class PrometheusEndpoint final : public Endpoint {
 public:
  PrometheusEndpoint(uint16_t port, Collect collect) : exposer_(fmt::format("127.0.0.1:{}", port), 1), collector_(std::make_shared<Collector>(std::move(collect))) {
    exposer_.RegisterCollectable(collector_);
  }
  ~PrometheusEndpoint() override { exposer_.RemoveCollectable(collector_); }
  uint16_t port() const override {
    const auto ports = exposer_.GetListeningPorts();
    return ports.empty() ? 0 : static_cast<uint16_t>(ports.front());
  }

 private:
  prometheus::Exposer exposer_;
  std::shared_ptr<Collector> collector_;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::open(uint16_t port, uint16_t ports, Collect collect) {
  for (uint32_t p = port; p < uint32_t{port} + std::max<uint16_t>(ports, 1) && p <= UINT16_MAX; ++p) {
    try {
      return std::make_unique<PrometheusEndpoint>(static_cast<uint16_t>(p), collect);
    } catch (const std::exception&) {
      continue;  // taken: all that its exception says
    }
  }
  return Err(Errc::kInUse, ports > 1 ? fmt::format("no /metrics: none of the ports {} to {} of 127.0.0.1 is free", port, port + ports - 1) : fmt::format("no /metrics: port {} of 127.0.0.1 is not free", port));
}
#else
Result<std::unique_ptr<Endpoint>> Endpoint::open(uint16_t, uint16_t, Collect) {
  return Err(Errc::kOpNotSupp, "no /metrics: this build was made without prometheus-cpp");
}
#endif

void Operations::note(uint16_t method, Nanos took, bool failed) {
  Row& row = rows_[method < kMethods ? method : 0];
  row.count.fetch_add(1, std::memory_order_relaxed);
  row.nanos.fetch_add(static_cast<uint64_t>(std::max<Nanos>(took, 0)), std::memory_order_relaxed);
  if (failed) row.failed.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < kBounds.size(); ++i)
    if (took <= kBounds[i]) {
      row.within[i].fetch_add(1, std::memory_order_relaxed);
      return;
    }
}

void Operations::add_to(std::vector<Family>& out, const Labels& labels, const char* (*name)(uint16_t)) const {
  Family seconds{"nacre_operation_seconds", "Requests by how long they took.", Type::kHistogram, {}};
  Family errors{"nacre_operation_errors_total", "Requests that were answered with an error, such as a name that does not exist.", Type::kCounter, {}};
  for (uint16_t m = 0; m < kMethods; ++m) {
    const Row& row = rows_[m];
    Value v;
    v.labels = labels;
    v.labels.emplace_back("operation", name(m));
    v.count = row.count.load(std::memory_order_relaxed);
    if (v.count == 0) continue;
    Value e;
    e.labels = v.labels;
    e.value = static_cast<double>(row.failed.load(std::memory_order_relaxed));
    errors.values.push_back(std::move(e));
    v.value = static_cast<double>(row.nanos.load(std::memory_order_relaxed)) / kSecond;
    uint64_t below = 0;
    for (size_t i = 0; i < kBounds.size(); ++i) v.buckets.emplace_back(static_cast<double>(kBounds[i]) / kSecond, below += row.within[i].load(std::memory_order_relaxed));
    v.count = std::max(v.count, below);
    v.buckets.emplace_back(std::numeric_limits<double>::infinity(), v.count);
    seconds.values.push_back(std::move(v));
  }
  out.push_back(std::move(seconds));
  out.push_back(std::move(errors));
}

static Family single(Type type, std::string name, std::string help, Labels labels, double value) {
  Family f{std::move(name), std::move(help), type, {}};
  Value v;
  v.labels = std::move(labels);
  v.value = value;
  f.values.push_back(std::move(v));
  return f;
}

Family gauge(std::string name, std::string help, Labels labels, double value) { return single(Type::kGauge, std::move(name), std::move(help), std::move(labels), value); }
Family counter(std::string name, std::string help, Labels labels, double value) { return single(Type::kCounter, std::move(name), std::move(help), std::move(labels), value); }

}  // namespace nacre::metrics
