// SPDX-License-Identifier: Apache-2.0
// mount.nacre: connects, mounts, and serves the mount until it is unmounted. Exit codes as mount(8): 0 mounted, 1 wrong usage,
// 2 this machine's fault, 32 not mounted. Unless told otherwise a supervisor stays above it (supervisor.h). In the process that
// serves the main thread waits for the end; a second one for signals and questions (ending.h); the rest are the loops'.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>

#include "client/core/filesystem.h"
#include "client/fuse/front.h"
#include "client/mount/daemon.h"
#include "client/mount/ending.h"
#include "client/mount/metrics.h"
#include "client/mount/options.h"
#include "client/mount/point.h"
#include "client/mount/supervisor.h"
#include "common/base/rng.h"
#include "common/config/cluster.h"
#include "common/log/log.h"

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace nacre::mount {
namespace {

constexpr int kUsage = 1, kSystem = 2, kFailed = 32;
constexpr Nanos kConnectTimeout = 30 * kSecond;   // then the mount fails: an fstab entry must not stop a boot for ever
constexpr Nanos kReadyTimeout = 30 * kSecond;
constexpr Nanos kStopGrace = 10 * kSecond;
constexpr Nanos kUnmountLimit = 20 * kSecond, kSignalLimit = 4 * kSecond;  // to make data stable; after a signal somebody waits
constexpr Nanos kSignalGrace = 2 * kSecond;
constexpr uint16_t kMetricsPorts = 16;   // mounts of one host that can have /metrics

struct Setup {
  Arguments args;
  std::string point;
  config::Cluster cluster;
  client::MountOptions options;
  std::string log_file;
  std::array<uint8_t, 16> uuid{};        // of the client, the same for all that a supervisor starts: the server ends the dead one's session
};

log::Level level_of(const std::string& s) { return s == "debug" ? log::Level::kDebug : s == "warn" ? log::Level::kWarn : s == "error" ? log::Level::kError : log::Level::kInfo; }

/// `again`: after the death of an earlier client, whose mount stays until this one can serve.
Result<void> set_up(Setup& s, bool again) {
  if (!again) {
    NACRE_TRY(s.point, prepare_point(s.args.mount_point));
  }
  NACRE_TRY(std::string file, config::find_cluster_file(s.args.cluster));
  NACRE_TRY(s.cluster, config::load_cluster(file));
  if (!s.args.key_file.empty()) s.cluster.key_file = s.args.key_file;
  NACRE_TRY(s.options, client::options_from_cluster(s.cluster));
  if (!s.args.hosts.empty()) {
    const std::string port = port_of(s.options.mds.front());
    s.options.mds.clear();
    for (const auto& h : s.args.hosts) s.options.mds.push_back(with_port(h, port));
  }
  s.options.subdir = s.args.subdir;
  s.options.read_only = s.args.read_only;
  s.options.soft = static_cast<Nanos>(s.args.soft_seconds) * kSecond;
  s.options.atime = s.args.atime;
  s.options.mount_point = s.point;
  s.options.client_uuid = s.uuid;
  s.log_file = !s.args.log_file.empty() ? s.args.log_file : s.args.foreground ? "" : default_log(s.cluster.run_dir, s.point);
  if (!s.log_file.empty()) {  // the logger would only say it where nobody looks
    const int fd = ::open(s.log_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Err(from_errno(errno), fmt::format("the log file {} can't be written: {}", s.log_file, std::strerror(errno)));
    ::close(fd);
  }
  return {};
}

/// The kernel may write back through us to get memory, so we must not wait for that very memory; and who kills us to get some gets
/// a node full of hanging processes.
void protect_process() {
  (void)::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
  if (FILE* f = std::fopen("/proc/self/oom_score_adj", "we")) {
    std::fputs("-1000", f);
    std::fclose(f);
  }
}

/// Runs a coroutine on the first loop and waits for it.
template <class T>
T on_loop(Runtime& runtime, std::function<Task<T>()> make) {
  auto done = std::make_shared<std::promise<T>>();  // shared: the loop may still be inside set_value when the wait is over
  auto future = done->get_future();
  auto run = [](std::function<Task<T>()> m, std::shared_ptr<std::promise<T>> p) -> Task<void> {
    auto task = m();
    if constexpr (std::is_void_v<T>) {
      co_await std::move(task);
      p->set_value();
    } else {
      p->set_value(co_await std::move(task));
    }
  };
  runtime.loop(0).spawn(run(std::move(make), done));
  return future.get();
}

/// Missing features once: those that change what programs can do to whoever mounts, all to the log.
void say_what_is_missing(const fuse::Report& r, bool verbose) {
  for (const auto& f : r.features) {
    if (f.active) continue;
    const std::string why = f.masked ? "hidden by mask=" : f.offered ? r.transport_note : fmt::format("this kernel does not offer it, it needs {}", f.needs);
    const std::string text = fmt::format("without {}: {} ({})", f.name, f.without, why);
    log::info("{}", text);
    const bool felt = f.name != "uring" && f.name != "epoch" && f.name != "statx";
    if (verbose || (felt && !f.masked)) std::fprintf(stderr, "mount.nacre: note: %s\n", text.c_str());
  }
}

/// Connects to the servers. After the death of an earlier client it waits for them as long as it takes.
std::unique_ptr<client::Filesystem> connect(Setup& s, Runtime& runtime, rpc::Transport& transport, Daemon& daemon, bool again) {
  auto made = client::Filesystem::make(runtime, transport, s.options);
  if (!made) daemon.failed(made.error().message(), kUsage);
  client::Filesystem& fs = **made;
  const Nanos deadline = again ? kForever : runtime.clock().boot() + kConnectTimeout;
  auto connected = on_loop<Result<void>>(runtime, [&]() { return fs.connect(deadline); });
  if (!connected) daemon.failed(fmt::format("{} can't be mounted: {}", s.args.source, connected.error().message()), kFailed);
  return std::move(*made);
}

Result<std::unique_ptr<fuse::Front>> mount(Setup& s, Runtime& runtime, client::Filesystem& fs, std::shared_ptr<fuse::Notifier> notifier, fuse::FrontOptions fo) {
  fo.source = s.args.source;
  fo.mount_point = s.point;
  fo.kernel_options = s.args.kernel_options;
  fo.readdirplus = s.args.readdirplus;
  if (s.args.ring_depth != 0) fo.ring_depth = s.args.ring_depth;
  auto front = fuse::Front::mount(runtime, fs, std::move(notifier), std::move(fo));
  if (front) {
    if (auto r = (*front)->wait_ready(kReadyTimeout); !r) {
      (*front)->abort();
      return std::unexpected(r.error());
    }
  }
  return front;
}

std::unique_ptr<metrics::Endpoint> open_metrics(const Setup& s, fuse::Front& front, const client::Filesystem& fs) {
  const uint64_t port = s.cluster.settings.client_metrics_port;
  if (port == 0) return nullptr;
  auto opened = metrics::Endpoint::open(static_cast<uint16_t>(port), kMetricsPorts, [&front, &fs, point = s.point] { return client_families(front, fs, point); });
  if (!opened) {
    log::warn("{}", opened.error().message());
    return nullptr;
  }
  front.set_metrics_port((*opened)->port());
  log::info("metrics at http://127.0.0.1:{}/metrics", (*opened)->port());
  return std::move(*opened);
}

int serve(Setup& s, Daemon& daemon, bool again) {
  RuntimeOptions ro;
  ro.loops = s.cluster.settings.rpc_loops;
  ro.name = "nacre";
  Runtime runtime(ro);
  runtime.start();
  rpc::TcpOptions tcp;
  tcp.congestion = s.cluster.settings.rpc_congestion;
  auto transport = rpc::tcp_transport(runtime, tcp);
  auto notifier = std::make_shared<fuse::Notifier>();
  s.options.hooks.size_grew = [notifier](Ino ino, uint64_t size) { notifier->size_grew(ino.v, size); };
  s.options.hooks.session_lost = [notifier] { (void)notifier->drop_names(); };  // older kernels keep no names
  fuse::FrontOptions fo;
  if (auto m = fo.compat.mask(s.args.mask); !m) daemon.failed(m.error().message(), kUsage);
  auto fs = connect(s, runtime, *transport, daemon, again);
  if (again) {
    if (!is_dead_mount(s.point)) {
      log::info("{} has been unmounted meanwhile", s.point);
      on_loop<void>(runtime, [&]() { return fs->disconnect(kSignalLimit); });
      daemon.end(0);
    }
    if (auto p = prepare_point(s.point); !p) daemon.failed(p.error().message(), kFailed);
  }
  auto front = mount(s, runtime, *fs, notifier, std::move(fo));
  if (!front) {
    on_loop<void>(runtime, [&]() { return fs->disconnect(kSignalLimit); });
    daemon.failed(front.error().message(), kFailed);
  }
  const fuse::Report report = (*front)->report();
  log::info("{} is mounted on {} by process {}, over {}, {} loops", s.args.source, s.point, ::getpid(), report.transport, report.loops);
  say_what_is_missing(report, s.args.verbose);
  MountLine line;
  (void)top_mount(s.point, line);
  std::string why;
  bool asked = false;
  {
    Ending ending(**front, *fs, line.device);
    auto endpoint = open_metrics(s, **front, *fs);
    daemon.ready();
    why = (*front)->wait_ended();
    asked = ending.asked();
  }
  log::info("{} is unmounted{}{}", s.point, why.empty() ? "" : ": ", why);
  on_loop<void>(runtime, [&]() { return fs->disconnect(asked ? kSignalLimit : kUnmountLimit); });
  (*front)->close();
  runtime.stop(asked ? kSignalGrace : kStopGrace);
  front->reset();
  fs.reset();
  return why.empty() ? 0 : kSystem;
}

/// In the process that serves.
int begin(Setup& s, Daemon& daemon, bool again) {
  if (again)
    if (auto r = set_up(s, true); !r) daemon.failed(r.error().message(), kFailed);
  const sigset_t set = Ending::signals();
  (void)::pthread_sigmask(SIG_BLOCK, &set, nullptr);  // before any thread: only one hears signals
  log::open("mount.nacre", s.log_file, s.args.verbose ? log::Level::kDebug : level_of(s.cluster.settings.log_level));
  if (!s.log_file.empty()) daemon.log_too();
  protect_process();
  return serve(s, daemon, again);
}

int run(int argc, char** argv) {
  Daemon daemon;
  auto args = parse_arguments({argv + 1, argv + argc}, ::geteuid() == 0);
  if (!args) daemon.failed(args.error().detail, kUsage);
  if (args->help) {
    std::fputs(manual().c_str(), stdout);
    return 0;
  }
  Setup s;
  s.args = std::move(*args);
  system_rng().fill(std::as_writable_bytes(std::span(s.uuid)));
  if (auto r = set_up(s, false); !r) daemon.failed(r.error().message(), kFailed);
  if (!s.args.foreground) daemon.detach(kSystem);
  (void)::signal(SIGPIPE, SIG_IGN);
  if (!s.args.supervise) return begin(s, daemon, false);
  log::open("mount.nacre", s.log_file, level_of(s.cluster.settings.log_level));
  Supervisor supervisor(daemon, s.point, s.args.foreground);
  return supervisor.run([&s](Daemon& child, bool again) { return begin(s, child, again); });
}

}  // namespace
}  // namespace nacre::mount

int main(int argc, char** argv) { return nacre::mount::run(argc, argv); }
