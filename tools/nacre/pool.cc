// SPDX-License-Identifier: Apache-2.0
// `nacre pool list|create|add|remove`: named sets of storage targets. They stand in the cluster file, as `pools` of each [[ost]]; a
// target tells the metadata server when it registers, so the ones that run on this host are started anew, one after the other.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "common/config/settings_table.h"
#include "common/io/durable.h"
#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
constexpr size_t kMaxPools = 16;  ///< of one target, as the metadata server takes them

std::string trimmed(const std::string& s) {
  const size_t a = s.find_first_not_of(" \t");
  return a == std::string::npos ? "" : s.substr(a, s.find_last_not_of(" \t\r") - a + 1);
}

/// "key" of "key = value", empty for other lines.
std::string key_of(const std::string& line) {
  const std::string t = trimmed(line);
  const size_t eq = t.find('=');
  return t.empty() || t[0] == '#' || t[0] == '[' || eq == std::string::npos ? "" : trimmed(t.substr(0, eq));
}

std::string line_of(const std::vector<std::string>& pools) {
  std::string out = "pools = [";
  for (size_t i = 0; i < pools.size(); ++i) out += (i ? ", " : "") + config::written_text(pools[i]);
  return out + "]";
}

/// The text with the `pools` of some targets replaced; everything else stays as it is.
std::string with_pools(const std::string& text, const std::map<uint32_t, std::vector<std::string>>& wanted) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trimmed(lines[i]) != "[[ost]]") continue;
    std::optional<size_t> id_line, pools_line;
    size_t end = i + 1;
    for (; end < lines.size() && !trimmed(lines[end]).starts_with("["); ++end) {
      if (key_of(lines[end]) == "id") id_line = end;
      if (key_of(lines[end]) == "pools") pools_line = end;
    }
    if (!id_line) continue;
    const std::string number = trimmed(lines[*id_line].substr(lines[*id_line].find('=') + 1));
    auto it = wanted.find(static_cast<uint32_t>(std::strtoul(number.c_str(), nullptr, 10)));
    if (it == wanted.end()) continue;
    if (pools_line) lines[*pools_line] = line_of(it->second);
    else lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(*id_line) + 1, line_of(it->second));
  }
  std::string out;
  for (const auto& l : lines) out += l + "\n";
  return out;
}

Result<std::map<uint32_t, std::vector<std::string>>> wish(const config::Cluster& c, const PoolArgs& o) {
  if (o.pool.empty() || o.pool.size() > 255) return Err(Errc::kConfig, "a pool's name has 1 to 255 bytes");
  const bool known = std::any_of(c.osts.begin(), c.osts.end(), [&](const auto& t) { return std::find(t.pools.begin(), t.pools.end(), o.pool) != t.pools.end(); });
  if (o.verb == PoolArgs::Verb::kCreate && known) return Err(Errc::kConfig, fmt::format("the pool '{}' exists already: 'nacre pool add' puts more targets into it", o.pool));
  if (o.verb != PoolArgs::Verb::kCreate && !known) return Err(Errc::kConfig, fmt::format("there is no pool '{}': 'nacre pool list' shows them", o.pool));
  std::map<uint32_t, std::vector<std::string>> out;
  for (const auto& name : o.targets) {
    NACRE_TRY(uint32_t id, parse_target(name));
    auto at = std::find_if(c.osts.begin(), c.osts.end(), [&](const auto& t) { return t.id == id; });
    if (at == c.osts.end()) return Err(Errc::kConfig, fmt::format("{} names no ost{}", c.file, id));
    std::vector<std::string> pools = at->pools;
    std::erase(pools, o.pool);
    if (o.verb != PoolArgs::Verb::kRemove) pools.push_back(o.pool);
    if (pools.size() > kMaxPools) return Err(Errc::kConfig, fmt::format("ost{} is in {} pools, the limit", id, kMaxPools));
    if (pools != at->pools) out[id] = std::move(pools);
  }
  return out;
}

Result<void> change(const config::Cluster& c, const PoolArgs& o) {
  NACRE_TRY(auto wanted, wish(c, o));
  NACRE_TRY(std::string before, read_text(c.file));
  const std::string after = with_pools(before, wanted);
  NACRE_TRY(config::Cluster parsed, config::parse_cluster(after, c.file));
  for (const auto& t : parsed.osts)
    if (auto it = wanted.find(t.id); it != wanted.end() && t.pools != it->second) return Err(Errc::kConfig, fmt::format("the [[ost]] {} in {} is written in a way this command doesn't understand: set its pools by hand", t.id, c.file));
  NACRE_CHECK_OK(replace_file(c.file, after, 0644));
  NACRE_TRY(config::Cluster now, config::load_cluster(c.file));
  std::set<uint32_t> here;
  for (const Server& s : servers_of(now, "")) {
    if (s.role != "ost" || !wanted.contains(s.ost)) continue;
    here.insert(s.ost);
    NACRE_CHECK_OK(stop_server(s));
    NACRE_CHECK_OK(start_server(s, now));
  }
  for (const auto& [id, pools] : wanted)
    if (!here.contains(id)) fmt::print(stderr, "ost{} runs on another host: change the cluster file there too and start it anew\n", id);
  return {};
}
}  // namespace

int pool_list(const PoolArgs& o) {
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto connection = connect_mds(*cluster);
  if (!connection) return complain(connection.error());
  auto map = (*connection)->call<rpc::Method::kMapGet>({});
  if (!map) return complain(map.error());
  std::map<std::string, std::vector<std::string>> pools;
  for (const auto& t : map->osts)
    for (const auto& p : t->pools) pools[p].push_back(fmt::format("ost{}", t->id));
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"POOL", "TARGETS"}, {});
  for (const auto& [name, targets] : pools) {
    list.push_back({{"pool", name}, {"targets", targets}});
    table.row({printable(name), fmt::format("{}", fmt::join(targets, " "))});
  }
  if (o.common.json) print_json({{"pools", list}});
  else table.print();
  return kOk;
}

int pool_change(const PoolArgs& o) {
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto done = change(*cluster, o);
  return done ? kOk : complain(done.error());
}

}  // namespace nacre::cli
