// SPDX-License-Identifier: Apache-2.0
// `nacre mds status`: what the metadata server is doing.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
int mds_status(const OstArgs& o) {
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto connection = connect_mds(*cluster);
  if (!connection) return complain(connection.error());
  auto s = (*connection)->call<rpc::Method::kMdsStatus>({});
  if (!s) return complain(s.error());
  if (o.common.json) {
    nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
    for (const auto& m : s->metrics) metrics[m->name] = m->value;
    print_json({{"server_version", s->version}, {"pid", s->pid}, {"uptime_seconds", static_cast<double>(s->uptime_ms) / 1000}, {"recovering", s->recovering}, {"sessions", s->sessions}, {"sessions_reclaimed", s->reclaimed}, {"owed_commands", s->owed}, {"orphans", s->orphans}, {"journal", s->journal}, {"journal_synced", s->synced}, {"inodes", s->inodes}, {"map_version", s->map_version}, {"metrics", metrics}});
  } else {
    fmt::print("state             {}\nversion           {}\npid               {}\nuptime            {:.1f} s\nsessions          {}\nowed commands     {}\norphans           {}\njournal           {} (synced up to {})\ninodes            {}\ncluster map       version {}\n", s->recovering ? fmt::format("recovering: {} of {} sessions have reclaimed", s->reclaimed, s->sessions) : "serving", s->version, s->pid, static_cast<double>(s->uptime_ms) / 1000, s->sessions, s->owed, s->orphans, s->journal, s->synced, s->inodes, s->map_version);
  }
  return s->recovering ? kFound : kOk;
}
}  // namespace nacre::cli
