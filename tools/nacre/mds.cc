// SPDX-License-Identifier: Apache-2.0
// `nacre mds status|backup|restore`: what the metadata server is doing, and copies of what it has.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {

constexpr Nanos kBackupPatience = 24 * 3600 * kSecond;  // copying to another filesystem takes as long as the disks need

Result<std::unique_ptr<Connection>> to_mds(const Common& common) {
  NACRE_TRY(auto cluster, load_named_cluster(common.cluster));
  return connect_mds(cluster);
}

std::string state_of(const wire::MdsStatusReplyT& s) {
  if (!s.recovering) return "serving";
  return fmt::format("recovering: {} sessions have reclaimed, {} are waited for, at most {:.0f} s left", s.reclaimed, s.waiting_for.size(), static_cast<double>(s.recovery_left_ms) / 1000);
}

void print_status_json(const wire::MdsStatusReplyT& s) {
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object(), owed = nlohmann::ordered_json::array();
  for (const auto& m : s.metrics) metrics[m->name] = m->value;
  for (const auto& o : s.owed_by_ost) owed.push_back({{"target", fmt::format("ost{}", o.ost())}, {"commands", o.commands()}});
  print_json({{"server_version", s.version}, {"pid", s.pid}, {"uptime_seconds", static_cast<double>(s.uptime_ms) / 1000}, {"recovering", s.recovering},
              {"recovery_seconds_left", static_cast<double>(s.recovery_left_ms) / 1000}, {"waiting_for", s.waiting_for}, {"sessions", s.sessions}, {"sessions_reclaimed", s.reclaimed},
              {"owed_commands", s.owed}, {"owed_by_target", owed}, {"orphans", s.orphans}, {"journal", s.journal}, {"journal_synced", s.synced}, {"inodes", s.inodes},
              {"map_version", s.map_version}, {"metrics", metrics}});
}

}  // namespace

int mds_status(const MdsArgs& o) {
  auto connection = to_mds(o.common);
  if (!connection) return complain(connection.error());
  wire::MdsStatusRequestT request;
  request.abort_recovery = o.abort_recovery;
  auto s = (*connection)->call<rpc::Method::kMdsStatus>(request);
  if (!s) return complain(s.error());
  if (o.common.json) {
    print_status_json(*s);
    return s->recovering ? kFound : kOk;
  }
  fmt::print("state             {}\n", state_of(*s));
  for (const auto& w : s->waiting_for) fmt::print("waiting for       {}\n", printable(w));
  fmt::print("version           {}\npid               {}\nuptime            {:.1f} s\nsessions          {}\nowed commands     {}\n", s->version, s->pid, static_cast<double>(s->uptime_ms) / 1000, s->sessions, s->owed);
  for (const auto& w : s->owed_by_ost) fmt::print("  to ost{:<10} {}\n", w.ost(), w.commands());
  fmt::print("orphans           {}\njournal           {} (synced up to {})\ninodes            {}\ncluster map       version {}\n", s->orphans, s->journal, s->synced, s->inodes, s->map_version);
  return s->recovering ? kFound : kOk;
}

int mds_backup(const MdsArgs& o) {
  if (o.directory.empty() || o.directory.front() != '/') return complain(kUsage, fmt::format("'{}' is no absolute path: the metadata server makes the backup, on its own host", o.directory));
  auto connection = to_mds(o.common);
  if (!connection) return complain(connection.error());
  (*connection)->be_patient(kBackupPatience);
  wire::MdsBackupRequestT request;
  request.directory = o.directory;
  auto reply = (*connection)->call<rpc::Method::kMdsBackup>(request);
  if (!reply) return complain(reply.error());
  if (o.common.json) print_json({{"directory", o.directory}, {"journal", reply->journal}, {"bytes", reply->bytes}});
  else fmt::print("{}: {} up to journal number {}\n", o.directory, size_or_bytes(reply->bytes, true), reply->journal);
  return kOk;
}

int mds_restore(const MdsArgs& o) {
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  const auto here = servers_of(*cluster, "");
  const auto mds = std::find_if(here.begin(), here.end(), [](const Server& s) { return s.role == "mds"; });
  if (mds == here.end()) return complain(kFound, fmt::format("the metadata server of {} runs on {}, not on this host: restore there", cluster->file, cluster->mds.empty() ? "no host" : cluster->mds[0].host));
  std::vector<std::string> argv = server_command(*mds, *cluster);
  argv.insert(argv.end(), {"--restore", std::filesystem::absolute(o.directory).lexically_normal()});
  std::vector<char*> args;
  for (auto& a : argv) args.push_back(a.data());
  args.push_back(nullptr);
  ::execvp(args[0], args.data());
  return complain(kFound, fmt::format("{} can't be run: {}", argv[0], std::strerror(errno)));
}

}  // namespace nacre::cli
