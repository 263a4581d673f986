// SPDX-License-Identifier: Apache-2.0
// Every subcommand: its options as parsed by main.cc and the function that runs it. A function prints its result to stdout
// and returns the exit code of cli.md: 0 all is well, 1 found something or failed, 2 wrong usage, 3 cluster not reachable.
// Errors go to stderr as one sentence: what happened, to which object, what to do.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nacre::cli {

inline constexpr int kOk = 0, kFound = 1, kUsage = 2, kUnreachable = 3;

struct Common {
  bool json = false;
  std::string cluster;  ///< --cluster: file or directory; empty = NACRE_CLUSTER or /etc/nacre/cluster.toml
};

struct ClusterInit { Common common; std::string dir; uint32_t osts = 4; std::string config, size, host; bool force = false; };
struct ClusterRun { Common common; std::string target; std::string host; bool follow = false; };
int cluster_init(const ClusterInit&);
int cluster_start(const ClusterRun&);
int cluster_stop(const ClusterRun&);
int cluster_status(const ClusterRun&);

struct Mount { Common common; std::string source, mountpoint; std::vector<std::string> options; bool foreground = false, lazy = false, force = false; };
int mount(const Mount&);
int umount(const Mount&);

struct Df { Common common; std::string path; bool human = false, inodes = false; };
int df(const Df&);

/// One component as collected from -E END -c N -S SIZE -i OST -p POOL; a bare set has one without `end`.
struct StripeComponent { std::string end, size, pool; std::optional<int> count, first_ost; };
struct Stripe { Common common; std::vector<StripeComponent> components; std::vector<std::string> paths; bool reset = false, directory_only = false; };
int stripe_set(const Stripe&);
int stripe_get(const Stripe&);

struct PathArgs { Common common; std::vector<std::string> paths; };
int stat(const PathArgs&);
int stat_blocks(const PathArgs&);
struct Migrate { Common common; std::vector<StripeComponent> components; std::vector<std::string> paths; };
int migrate(const Migrate&);
int fid(const PathArgs&);
struct InoArgs { Common common; std::string ino, path; };
int path(const InoArgs&);
int sync(const PathArgs&);

struct OstArgs { Common common; std::string target; bool activate = false; };
int ost_list(const OstArgs&);
int ost_set_state(const OstArgs&);
int ost_drain(const OstArgs&);
struct PoolArgs {
  enum class Verb : uint8_t { kCreate, kAdd, kRemove };
  Common common;
  Verb verb = Verb::kCreate;
  std::string pool;
  std::vector<std::string> targets;
};
int pool_list(const PoolArgs&);
int pool_change(const PoolArgs&);
struct OstAdd { Common common; std::string directory, size; };
int ost_add(const OstAdd&);
struct ClientArgs { Common common; uint64_t session = 0; std::string mount; };
int client_list(const ClientArgs&);
int client_evict(const ClientArgs&);
int client_status(const ClientArgs&);
int client_abort(const ClientArgs&);
struct FsckArgs { Common common; std::string path, rate; bool repair = false, scrub_only = false; };
int fsck(const FsckArgs&);
struct MdsArgs { Common common; std::string directory; bool abort_recovery = false; };
int mds_status(const MdsArgs&);
int mds_backup(const MdsArgs&);
int mds_restore(const MdsArgs&);
struct ChangelogArgs { Common common; std::string reader, name; uint64_t sequence = 0, after = 0, limit = 0; };
int changelog_register(const ChangelogArgs&);
int changelog_read(const ChangelogArgs&);
int changelog_clear(const ChangelogArgs&);
int changelog_list(const ChangelogArgs&);
int changelog_deregister(const ChangelogArgs&);

}  // namespace nacre::cli
