// SPDX-License-Identifier: Apache-2.0
#include "client/mount/metrics.h"

namespace nacre::mount {

using metrics::Family;
using metrics::Labels;
using metrics::Type;

static void add_servers(const client::ClientStatus& s, const Labels& labels, std::vector<Family>& out) {
  Family connected{"nacre_client_connected", "1 if the client has a connection to the server; to a storage target only once it was needed.", Type::kGauge, {}};
  Family retained{"nacre_client_unstable_bytes", "Written data kept until the server has made it stable.", Type::kGauge, {}};
  Family checksums{"nacre_client_checksum_errors_total", "Blocks that did not match their checksum.", Type::kCounter, {}};
  Family resent{"nacre_client_resent_writes_total", "Writes sent again after the server restarted.", Type::kCounter, {}};
  for (const auto& v : s.servers) {
    Labels own = labels;
    own.emplace_back("server", v.name);
    connected.values.push_back({own, v.connected ? 1.0 : 0.0, 0, {}});
    retained.values.push_back({own, static_cast<double>(v.retained), 0, {}});
    checksums.values.push_back({own, static_cast<double>(v.checksum_errors), 0, {}});
    resent.values.push_back({own, static_cast<double>(v.resent), 0, {}});
  }
  for (auto* f : {&connected, &retained, &checksums, &resent}) out.push_back(std::move(*f));
}

std::vector<Family> client_families(const fuse::Front& front, const client::Filesystem& fs, const std::string& mount_point) {
  const Labels labels{{"component", "client"}, {"target", mount_point}};
  const client::ClientStatus s = fs.status();
  const fuse::Report r = front.report();
  std::vector<Family> out;
  auto gauge = [&](const char* name, const char* help, auto v) { out.push_back(metrics::gauge(name, help, labels, static_cast<double>(v))); };
  auto counter = [&](const char* name, const char* help, auto v) { out.push_back(metrics::counter(name, help, labels, static_cast<double>(v))); };
  counter("nacre_client_requests_total", "Requests of the kernel.", r.requests);
  counter("nacre_client_read_bytes_total", "Bytes read.", s.read_bytes);
  counter("nacre_client_write_bytes_total", "Bytes written.", s.written_bytes);
  counter("nacre_client_retries_total", "Requests sent again because a server did not answer.", s.retries);
  counter("nacre_client_cancelled_total", "Requests ended by a signal or an abort.", r.cancelled);
  gauge("nacre_client_requests_under_way", "Requests of the kernel being worked on.", r.running);
  gauge("nacre_client_waiting_operations", "Operations that wait for a server.", s.in_flight);
  gauge("nacre_client_oldest_wait_seconds", "How long the longest waiting one has waited.", static_cast<double>(s.oldest_wait) / kSecond);
  gauge("nacre_client_open_handles", "Open files.", s.open_handles);
  gauge("nacre_client_held_locks", "Locks held.", s.held_locks);
  gauge("nacre_client_evicted", "1 if the metadata server has evicted an earlier session of the mount.", s.evicted);
  add_servers(s, labels, out);
  return out;
}

}  // namespace nacre::mount
