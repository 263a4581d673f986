// SPDX-License-Identifier: Apache-2.0
// `nacre df`: capacity and use per storage target and in sum, from the metadata server's map (never waits for a target).
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/units.h"
#include "common/wire/bits.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
std::string percent(uint64_t used, uint64_t total) { return total ? fmt::format("{}%", (used * 100 + total - 1) / total) : "-"; }

std::string state_of(const wire::OstEntryT& o) {
  if (o.state == wire::kOstInactive) return "inactive";
  if (!o.up) return "down";
  return o.state == wire::kOstDraining ? "draining" : "up";
}

Result<std::unique_ptr<Connection>> connection_for(const Df& o) {
  if (!o.path.empty() && in_mount(o.path)) return connect_mount(o.path);
  if (!o.path.empty() && o.common.cluster.empty()) return Err(Errc::kNotOurs, fmt::format("{} lies in no Nacre mount: give a path inside one, or --cluster", o.path));
  NACRE_TRY(auto cluster, load_named_cluster(o.common.cluster));
  return connect_mds(cluster);
}

void print_space(const Df& o, const wire::ClusterMapT& map) {
  Table table({"TARGET", o.human ? "SIZE" : "BYTES", "USED", "AVAILABLE", "USE%", "STATE", "HOST"}, {1, 2, 3, 4});
  uint64_t capacity = 0, used = 0, available = 0;
  for (const auto& t : map.osts) {
    capacity += t->capacity, used += t->used, available += t->available;
    table.row({fmt::format("ost{}", t->id), size_or_bytes(t->capacity, o.human), size_or_bytes(t->used, o.human), size_or_bytes(t->available, o.human), percent(t->used, t->capacity), state_of(*t), t->host});
  }
  table.row({"all", size_or_bytes(capacity, o.human), size_or_bytes(used, o.human), size_or_bytes(available, o.human), percent(used, capacity), "", ""});
  table.print();
}
}  // namespace

int df(const Df& o) {
  auto connection = connection_for(o);
  if (!connection) return complain(connection.error());
  auto map = (*connection)->call<rpc::Method::kMapGet>({});
  if (!map) return complain(map.error());
  wire::StatfsRequestT where;
  where.ino = 1;
  auto fs = (*connection)->call<rpc::Method::kStatfs>(where);
  if (!fs) return complain(fs.error());
  bool healthy = true;
  for (const auto& t : map->osts) healthy = healthy && state_of(*t) != "down";
  if (o.common.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& t : map->osts)
      list.push_back({{"target", fmt::format("ost{}", t->id)}, {"capacity", t->capacity}, {"used", t->used}, {"available", t->available}, {"objects", t->objects}, {"state", state_of(*t)}, {"host", t->host}, {"address", t->address}, {"pools", t->pools}});
    print_json({{"targets", list}, {"capacity", fs->blocks * kBlockSize}, {"available", fs->available * kBlockSize}, {"inodes_used", fs->files - fs->files_free}, {"inodes_free", fs->files_free}});
  } else if (o.inodes) {
    Table table({"WHAT", "USED", "OBJECTS"}, {1, 2});
    table.row({"inodes", std::to_string(fs->files - fs->files_free), "-"});
    for (const auto& t : map->osts) table.row({fmt::format("ost{}", t->id), "-", std::to_string(t->objects)});
    table.print();
  } else {
    print_space(o, *map);
  }
  return healthy ? kOk : kFound;
}

int ost_list(const OstArgs& o) {
  Df as_df;
  as_df.common = o.common;
  as_df.human = true;
  return df(as_df);
}
}  // namespace nacre::cli
