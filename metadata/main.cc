// SPDX-License-Identifier: Apache-2.0
// nacre-mds: the metadata server's program. `--format` makes the directory and ends, `--restore` puts a backup there; without
// either a directory that is missing or empty is an error and never formatted by itself: it may be a disk that is not mounted,
// and an empty namespace over full storage targets would be worse than no server.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "common/log/log.h"
#include "common/rpc/transport.h"
#include "metadata/service/server.h"
#include "metadata/store/backup.h"

namespace {
using namespace nacre;

constexpr int kFailed = 1, kUsage = 2;
constexpr Nanos kStopGrace = 10 * kSecond;

int complain(const Error& e) {
  log::error("{}", e.detail.empty() ? std::string(text_of(e.code)) : e.detail);
  return kFailed;
}

log::Level level_of(const std::string& name) {
  if (name == "debug") return log::Level::kDebug;
  if (name == "warn") return log::Level::kWarn;
  if (name == "error") return log::Level::kError;
  return log::Level::kInfo;
}

std::string own_host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

int format(const config::Cluster& cluster) {
  mds::Store::Options options;
  options.path = cluster.mds.front().data;
  options.cluster_id = cluster.id;
  if (auto done = mds::Store::format(options); !done) return complain(done.error());
  log::info("formatted {} as the metadata directory of cluster {}", options.path, config::format_uuid(cluster.id));
  return 0;
}

int restore(const config::Cluster& cluster, const std::string& directory) {
  mds::Store::Options options;
  options.path = cluster.mds.front().data;
  options.cluster_id = cluster.id;
  auto done = mds::restore_backup(options, directory);
  if (!done) return complain(done.error());
  fmt::print("the backup in {} is now the metadata in {}\n", directory, options.path);
  if (!done->kept.empty()) fmt::print("what was there before is kept in {}\n", done->kept);
  fmt::print("start the cluster: it serves as soon as all storage targets have said which numbers they have seen ('nacre mds status'); then run nacre fsck\n");
  return 0;
}

/// The journal can't be written or synced: what was acknowledged stays, nothing more is. The next start recovers.
[[noreturn]] void die(const Error& why) {
  log::error("the metadata journal failed, the server ends: {}", why.message());
  ::_exit(kFailed);
}

int serve(const config::Cluster& cluster, const wire::Key& key, const sigset_t& signals) {
  RuntimeOptions ro;
  ro.loops = cluster.settings.rpc_loops;
  ro.name = "mds";
  Runtime runtime(ro);
  rpc::TcpOptions to;
  to.congestion = cluster.settings.rpc_congestion;
  auto transport = rpc::tcp_transport(runtime, to);
  runtime.start();
  mds::CoreOptions options;
  options.cluster = cluster;
  options.key = key;
  options.data = cluster.mds.front().data;
  options.host = own_host();
  options.fatal = [](Error e) { die(e); };
  auto server = mds::MetadataServer::start(runtime, *transport, options, cluster.mds.front().address);
  if (!server) {
    runtime.stop();
    return complain(server.error());
  }
  log::info("serving cluster {} at {}, {} loops, incarnation {}", cluster.name, (*server)->address(), runtime.size(), (*server)->core().store->incarnation());
  int signal = 0;
  ::sigwait(&signals, &signal);
  log::info("signal {}: stopping", signal);
  (*server)->stop();
  runtime.stop(kStopGrace);
  if (auto closed = (*server)->close_clean(); !closed) return complain(closed.error());
  log::info("stopped");
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  std::string named, log_path, from;
  bool make = false;
  CLI::App app("Nacre's metadata server: namespace, locks, sessions, the map of the storage targets.", "nacre-mds");
  app.add_option("--cluster", named, "the cluster file, or the directory that holds it")->required();
  app.add_option("--log", log_path, "log file; standard error otherwise");
  app.add_flag("--format", make, "make an empty metadata directory and end; refuses one that holds anything");
  app.add_option("--restore", from, "put the backup in this directory in the place of the metadata, and end; what was there is kept ('nacre mds restore')");
  app.set_version_flag("--version", NACRE_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  log::open("nacre-mds", log_path, log::Level::kInfo);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread: all inherit it, sigwait takes them
  ::signal(SIGPIPE, SIG_IGN);

  auto file = config::find_cluster_file(named);
  if (!file) return complain(file.error());
  auto cluster = config::load_cluster(*file);
  if (!cluster) return complain(cluster.error());
  log::set_level(level_of(cluster->settings.log_level));
  if (cluster->mds.size() != 1) return complain(Error(Errc::kConfig, fmt::format("{} names {} metadata servers: this version runs with exactly one", *file, cluster->mds.size())));
  auto key = wire::read_key_file(cluster->key_file);
  if (!key) return complain(key.error());
  if (make) return format(*cluster);
  if (!from.empty()) return restore(*cluster, from);
  return serve(*cluster, *key, signals);
}
