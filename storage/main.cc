// SPDX-License-Identifier: Apache-2.0
// nacre-oss: the server of one storage target. Exit status: 0 after a clean stop, 1 when it could not start or had to end,
// 2 for wrong usage. SIGTERM and SIGINT stop it cleanly; a second one ends it at once (the next start then recovers).
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <future>

#include "common/base/units.h"
#include "common/config/cluster.h"
#include "common/log/log.h"
#include "common/rpc/transport.h"
#include "storage/service/service.h"

namespace nacre {
namespace {
constexpr int kFailed = 1, kUsage = 2;

struct Arguments {
  std::string cluster, log;
  uint32_t ost = 0;
  bool format = false, dump = false;
};

int fail(const Error& e, const std::string& log_file = "") {
  if (!log_file.empty()) log::error("{}", e.message());
  fmt::print(stderr, "nacre-oss: {}\n", e.detail.empty() ? e.message() : e.detail);
  return kFailed;
}

log::Level level_of(const std::string& name) {
  return name == "debug" ? log::Level::kDebug : name == "warn" ? log::Level::kWarn : name == "error" ? log::Level::kError : log::Level::kInfo;
}

/// A thousand clients on every loop: more descriptors than the usual soft limit allows.
void raise_file_limit() {
  rlimit r{};
  if (::getrlimit(RLIMIT_NOFILE, &r) != 0) return;
  r.rlim_cur = r.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &r);
}

/// Runs a task on loop 0 and waits for it on this thread.
template <class T>
T wait_for(Runtime& runtime, Task<T> task) {
  std::promise<T> promise;
  auto body = [](std::promise<T>& p, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);  // the task, and what it holds, is gone before anybody hears of its end
    p.set_value(std::move(value));
  };
  runtime.loop(0).spawn(body(promise, std::move(task)));
  return promise.get_future().get();
}

[[noreturn]] void die(const Error& e) {
  // P1.12: after a failed sync nothing in memory can be trusted; the restart is the recovery.
  log::error("the storage target ends at once: {}", e.message());
  std::_Exit(kFailed);
}

int serve(const config::Cluster& cluster, const Arguments& a) {
  auto key = wire::read_key_file(cluster.key_file);
  if (!key) return fail(key.error(), a.log);
  raise_file_limit();
  sigset_t stop;
  sigemptyset(&stop);
  for (int s : {SIGTERM, SIGINT}) sigaddset(&stop, s);
  ::signal(SIGPIPE, SIG_IGN);
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);  // before any thread: only sigwait below sees them

  Runtime runtime({.loops = cluster.settings.rpc_loops, .name = "oss"});
  runtime.start();
  auto transport = rpc::tcp_transport(runtime, {.congestion = cluster.settings.rpc_congestion});
  auto service = wait_for(runtime, storage::Service::start(runtime, *transport, {.cluster = cluster, .ost = a.ost, .key = *key, .fatal = die}));
  if (!service) {
    const int code = fail(service.error(), a.log);
    runtime.stop();
    return code;
  }
  int signal = 0;
  ::sigwait(&stop, &signal);
  log::info("stopping on {}", signal == SIGINT ? "SIGINT" : "SIGTERM");
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  auto stopped = wait_for(runtime, (*service)->stop());
  runtime.stop();
  service->reset();
  return stopped ? 0 : kFailed;
}

int run(const Arguments& a) {
  auto file = config::find_cluster_file(a.cluster);
  if (!file) return fail(file.error());
  auto cluster = config::load_cluster(*file);
  if (!cluster) return fail(cluster.error());
  if (a.dump) return fmt::print("{}", config::dump_cluster(*cluster)), 0;
  if (a.format) {
    auto capacity = storage::format_target(*cluster, a.ost);
    if (!capacity) return fail(capacity.error());
    fmt::print("ost{}: formatted with {}\n", a.ost, format_size(*capacity));
    return 0;
  }
  log::open(fmt::format("nacre-oss/{}", a.ost), a.log, level_of(cluster->settings.log_level));
  return serve(*cluster, a);
}
}  // namespace
}  // namespace nacre

int main(int argc, char** argv) {
  CLI::App app{"Server of one storage target of a Nacre cluster."};
  nacre::Arguments a;
  app.set_version_flag("--version", std::string("nacre-oss ") + NACRE_VERSION);
  app.add_option("--cluster", a.cluster, "Cluster file or its directory (else NACRE_CLUSTER, else /etc/nacre/cluster.toml)");
  app.add_option("--ost", a.ost, "Number of the storage target in the cluster file")->required();
  app.add_option("--log", a.log, "File that log lines are appended to (else standard error)");
  app.add_flag("--format", a.format, "Make the target's data directory and exit; refused where there is one");
  app.add_flag("--dump-config", a.dump, "Print the cluster file as understood and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : nacre::kUsage;
  }
  return nacre::run(a);
}
