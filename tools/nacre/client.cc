// SPDX-License-Identifier: Apache-2.0
// `nacre client list|evict`: the sessions of the metadata server.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
constexpr size_t kMaxPages = 10'000;

Result<std::unique_ptr<Connection>> admin(const Common& common) {
  NACRE_TRY(auto cluster, load_named_cluster(common.cluster));
  return connect_mds(cluster);
}
}  // namespace

int client_list(const ClientArgs& o) {
  auto connection = admin(o.common);
  if (!connection) return complain(connection.error());
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"SESSION", "HOST", "MOUNT", "PID", "ADDRESS", "OPENS", "LOCKS", "SEEN", "OLDEST WAIT"}, {0, 3, 5, 6, 7});
  wire::ClientListRequestT request;
  for (size_t page = 0; page < kMaxPages; ++page) {
    auto reply = (*connection)->call<rpc::Method::kClientList>(request);
    if (!reply) return complain(reply.error());
    for (const auto& c : reply->clients) {
      list.push_back({{"session", c->session}, {"host", c->host}, {"mount", c->mount}, {"pid", c->pid}, {"address", c->address}, {"opens", c->opens}, {"locks", c->locks}, {"seen_seconds_ago", static_cast<double>(c->last_seen_ms) / 1000}, {"oldest_wait_seconds", c->oldest_wait_ms / 1000.0}, {"oldest_wait", c->oldest_wait}, {"read_only", c->read_only}});
      table.row({std::to_string(c->session), c->host, c->mount, std::to_string(c->pid), c->address, std::to_string(c->opens), std::to_string(c->locks), fmt::format("{:.1f} s ago", static_cast<double>(c->last_seen_ms) / 1000), c->oldest_wait.empty() ? "-" : fmt::format("{:.1f} s {}", c->oldest_wait_ms / 1000.0, c->oldest_wait)});
      request.after = c->session;
    }
    if (!reply->more || reply->clients.empty()) break;
  }
  if (o.common.json) print_json({{"clients", list}});
  else table.print();
  return kOk;
}

int client_evict(const ClientArgs& o) {
  auto connection = admin(o.common);
  if (!connection) return complain(connection.error());
  wire::ClientEvictRequestT request;
  request.session = o.session;
  auto reply = (*connection)->call<rpc::Method::kClientEvict>(request);
  if (!reply) return complain(Error(reply.error().code, fmt::format("session {}: {} ('nacre client list' shows the sessions)", o.session, reply.error().detail)));
  fmt::print("session {} evicted\n", o.session);
  return kOk;
}
}  // namespace nacre::cli
