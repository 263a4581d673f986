// SPDX-License-Identifier: Apache-2.0
// What /metrics of a storage target shows. Called on the endpoint's thread.
#include "common/log/log.h"
#include "storage/service/state.h"

namespace nacre::storage {
namespace {

std::vector<metrics::Family> families(const ServiceState& s) {
  const metrics::Labels labels{{"component", "ost"}, {"target", s.name()}};
  std::vector<metrics::Family> out;
  auto gauge = [&](const char* name, const char* help, auto v) { out.push_back(metrics::gauge(name, help, labels, static_cast<double>(v))); };
  auto counter = [&](std::string name, std::string help, auto v) { out.push_back(metrics::counter(std::move(name), std::move(help), labels, static_cast<double>(v))); };
  s.operations.add_to(out, labels, rpc::method_name);
  const Usage u = s.store->usage();
  const Status t = s.store->status();
  gauge("nacre_uptime_seconds", "Since the server started.", static_cast<double>(s.runtime.clock().boot() - s.started) / kSecond);
  gauge("nacre_serving", "1 if it is registered with the metadata server.", s.enrollment->serving());
  gauge("nacre_capacity_bytes", "Capacity of the storage target.", u.capacity);
  gauge("nacre_used_bytes", "Allocated on the storage target.", u.used);
  gauge("nacre_available_bytes", "Left on the storage target.", u.available);
  gauge("nacre_objects", "Objects of the storage target.", u.objects);
  gauge("nacre_requests_under_way", "Requests being worked on.", s.under_way.count());
  gauge("nacre_unstable_writes", "Writes that a power loss could still take.", t.last.v - std::min(t.last.v, t.stable.v));
  counter("nacre_txgs_total", "Number of the transaction group that is filling.", t.txg);
  counter("nacre_checksum_errors_total", "Blocks that did not match their checksum.", t.checksum_errors);
  counter("nacre_resends_applied_total", "Writes that a client sent again after a restart, and that were missing.", t.resends_applied);
#define NACRE_METRIC_ADD(name) counter("nacre_ost_" #name "_total", "Counter '" #name "' of OssStatus.", s.metrics.name.load(std::memory_order_relaxed));
  NACRE_OSS_METRICS(NACRE_METRIC_ADD)
#undef NACRE_METRIC_ADD
  return out;
}

}  // namespace

void open_metrics(const StatePtr& s) {
  const uint64_t base = s->options.cluster.settings.oss_metrics_port;
  if (base == 0) return;
  if (base + s->ost.id > UINT16_MAX) return log::warn("{}: no /metrics: oss.metrics_port {} plus its number is no port", s->name(), base);
  std::weak_ptr<ServiceState> weak = s;
  auto opened = metrics::Endpoint::open(static_cast<uint16_t>(base + s->ost.id), 1, [weak] {
    auto state = weak.lock();
    return state ? families(*state) : std::vector<metrics::Family>();
  });
  if (!opened) return log::warn("{}: {}", s->name(), opened.error().message());
  s->endpoint = std::move(*opened);
  log::info("{}: metrics at http://127.0.0.1:{}/metrics", s->name(), s->endpoint->port());
}

}  // namespace nacre::storage
