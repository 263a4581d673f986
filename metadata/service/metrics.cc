// SPDX-License-Identifier: Apache-2.0
// What /metrics of the metadata server shows. Called on the endpoint's thread.
#include "common/log/log.h"
#include "metadata/service/core.h"

namespace nacre::mds {
namespace {
using Series = metrics::Family;
using SeriesLabels = metrics::Labels;
using metrics::Type;

void add_targets(const Core& core, std::vector<Series>& out) {
  Series capacity{"nacre_capacity_bytes", "Capacity of a storage target.", Type::kGauge, {}}, used{"nacre_used_bytes", "Allocated on a storage target, as it last said.", Type::kGauge, {}},
      available{"nacre_available_bytes", "Left on a storage target, as it last said.", Type::kGauge, {}}, up{"nacre_target_up", "1 if the storage target's heartbeats come.", Type::kGauge, {}},
      owed{"nacre_owed_commands", "Commands that a storage target has still to be told.", Type::kGauge, {}};
  const auto counts = core.owed->counts();
  for (const auto& e : core.registry->map().osts) {
    const SeriesLabels labels{{"component", "ost"}, {"target", fmt::format("ost{}", e->id)}};
    auto add = [&labels](Series& f, double v) { f.values.push_back({labels, v, 0, {}}); };
    add(capacity, static_cast<double>(e->capacity));
    add(used, static_cast<double>(e->used));
    add(available, static_cast<double>(e->available));
    add(up, e->up ? 1 : 0);
    auto it = counts.find(OstId(e->id));
    add(owed, it == counts.end() ? 0 : static_cast<double>(it->second));
  }
  for (auto* f : {&capacity, &used, &available, &up, &owed}) out.push_back(std::move(*f));
}

void add_changelog(const Core& core, const SeriesLabels& labels, std::vector<Series>& out) {
  const uint64_t last = core.journal->changelog_last();
  out.push_back(metrics::counter("nacre_changelog_entries_total", "Number of the newest changelog entry.", labels, static_cast<double>(last)));
  auto readers = core.changelog->readers();
  if (!readers) return;
  Series behind{"nacre_changelog_reader_behind", "Entries that a changelog reader has not cleared.", Type::kGauge, {}};
  for (const auto& r : *readers) {
    SeriesLabels own = labels;
    own.emplace_back("reader", std::to_string(r.reader));
    behind.values.push_back({std::move(own), static_cast<double>(last - std::min(last, r.cleared)), 0, {}});
  }
  out.push_back(std::move(behind));
}
}  // namespace

std::vector<Series> Core::families() const {
  const SeriesLabels labels{{"component", "mds"}, {"target", "mds"}};
  std::vector<Series> out;
  auto gauge = [&](const char* name, const char* help, auto v) { out.push_back(metrics::gauge(name, help, labels, static_cast<double>(v))); };
  auto counter = [&](const char* name, const char* help, auto v) { out.push_back(metrics::counter(name, help, labels, static_cast<double>(v))); };
  operations.add_to(out, labels, rpc::method_name);
  gauge("nacre_uptime_seconds", "Since the server started.", static_cast<double>(clock.boot() - started) / kSecond);
  gauge("nacre_recovering", "1 while clients reclaim after a restart, or a restored database waits.", sessions->recovering() || restoration->active());
  gauge("nacre_connected_clients", "Sessions.", sessions->size());
  gauge("nacre_inodes", "Inodes of the filesystem.", std::max<int64_t>(journal->usage_total().inodes, 0));
  gauge("nacre_open_files", "Open handles.", opens.total());
  gauge("nacre_locks", "Locks held and waited for.", locks.total());
  gauge("nacre_orphans", "Unlinked inodes that are open or not yet destroyed.", orphans->size());
  gauge("nacre_requests_under_way", "Requests being worked on.", requests.count());
  gauge("nacre_metadata_available_bytes", "Free on the filesystem that holds the metadata.", room.load());
  counter("nacre_slow_requests_total", "Requests that took longer than mds.slow_request.", slow_requests.load());
  counter("nacre_parked_requests_total", "Requests that waited longer than mds.parked_request.", parked_requests.load());
  const DriverMetrics& m = driver->metrics();
  counter("nacre_driver_operations_total", "Metadata operations run.", m.operations.load());
  counter("nacre_commits_total", "Journal batches.", m.commits.load());
  counter("nacre_operation_restarts_total", "Operations begun anew for a lock out of order.", m.restarts.load());
  counter("nacre_operation_rehearsals_total", "Operations that first had to read from disk.", m.rehearsals.load());
  counter("nacre_operation_parks_total", "Operations that waited for something and began anew.", m.parks.load());
  counter("nacre_replayed_answers_total", "Repeats that got their first answer.", m.replays.load());
  add_targets(*this, out);
  add_changelog(*this, labels, out);
  return out;
}

void Core::open_metrics() {
  if (settings().mds_metrics_port == 0) return;
  auto opened = metrics::Endpoint::open(static_cast<uint16_t>(settings().mds_metrics_port), 1, [this] { return families(); });
  if (!opened) return log::warn("{}", opened.error().message());
  endpoint = std::move(*opened);
  log::info("metrics at http://127.0.0.1:{}/metrics", endpoint->port());
}

}  // namespace nacre::mds
