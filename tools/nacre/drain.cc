// SPDX-License-Identifier: Apache-2.0
// `nacre ost drain`: no new data goes to the target, and what lies there is moved to the others while the files are in use. This
// command is a client of its own: it needs the cluster's key and no mount. Ending it leaves the target draining and every file whole;
// run again, it goes on.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "client/core/filesystem.h"
#include "common/wire/bits.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
using namespace std::chrono_literals;

constexpr size_t kAtOnce = 4;                     // files being moved
constexpr uint32_t kPage = 1000;
constexpr Nanos kServerPatience = 90 * kSecond;   // with a server that doesn't answer, for one request
constexpr Nanos kConnectPatience = 30 * kSecond;
constexpr auto kEmptyWait = 120s;                 // for the last destructions: one round of the server, a second txg, a busy disk
constexpr int kMaxRounds = 1000;                  // over all files; each finds what came to the target during the one before
constexpr int kBusyRounds = 60;                   // without any progress, a second each: others are moving the files
constexpr size_t kShownFailures = 20;

std::atomic<bool> interrupted{false};

/// A session with the cluster, for the time of this command.
class Session {
 public:
  ~Session() {
    if (fs_) (void)run<bool>([](client::Filesystem& fs) -> Task<bool> {
      co_await fs.disconnect(10 * kSecond);
      co_return true;
    });
    fs_.reset();
    runtime_.stop(kSecond);
  }

  Result<void> open(const config::Cluster& cluster, const std::string& what) {
    NACRE_TRY(auto options, client::options_from_cluster(cluster));
    options.soft = kServerPatience;
    options.mount_point = what;
    options.atime = false;
    runtime_.start();
    NACRE_TRY(fs_, client::Filesystem::make(runtime_, *transport_, std::move(options)));
    const Nanos deadline = runtime_.clock().boot() + kConnectPatience;
    return run<Result<void>>([deadline](client::Filesystem& fs) { return fs.connect(deadline); });
  }

  /// Moves the data of all these inodes away from `avoid`; one result each.
  std::vector<Result<wire::MigrateReplyT>> move(std::vector<uint64_t> inos, std::vector<uint32_t> avoid) {
    auto cancel = std::make_shared<Cancel>();
    std::vector<std::future<Result<Bytes>>> pending;
    for (uint64_t ino : inos) {
      wire::MigrateRequestT request;
      request.ino = ino;
      request.avoid = avoid;
      client::Caller caller;
      caller.cancel = cancel;
      pending.push_back(start<Result<Bytes>>([body = encode(request), caller](client::Filesystem& fs) { return fs.call_method(static_cast<uint16_t>(rpc::Method::kMigrate), body, caller); }));
    }
    std::vector<Result<wire::MigrateReplyT>> out;
    for (auto& p : pending) {
      while (p.wait_for(100ms) != std::future_status::ready)
        if (interrupted) cancel->fire(Error(Errc::kIntr));
      auto body = p.get();
      if (body) out.push_back(decode<wire::MigrateReplyT>(*body));
      else out.push_back(std::unexpected(std::move(body).error()));
    }
    return out;
  }

 private:
  template <class T>
  static Task<void> carry(client::Filesystem& fs, std::function<Task<T>(client::Filesystem&)> make, std::shared_ptr<std::promise<T>> done) {
    auto task = make(fs);
    done->set_value(co_await std::move(task));
  }
  template <class T>
  std::future<T> start(std::function<Task<T>(client::Filesystem&)> make) {
    auto done = std::make_shared<std::promise<T>>();
    auto future = done->get_future();
    Loop& loop = runtime_.loop(0);
    loop.post([&loop, this, make, done] { loop.spawn(carry<T>(*fs_, make, done)); });
    return future;
  }
  template <class T>
  T run(std::function<Task<T>(client::Filesystem&)> make) { return start<T>(std::move(make)).get(); }

  Runtime runtime_{RuntimeOptions{.loops = 1, .pin = false, .workers = 1, .name = "nacre"}};
  std::unique_ptr<rpc::Transport> transport_ = rpc::tcp_transport(runtime_);
  std::unique_ptr<client::Filesystem> fs_;
};

struct Failure { uint64_t ino = 0; std::string path, why; bool busy = false; };

class Drain {
 public:
  Drain(Connection& mds, Session& session, uint32_t ost, bool quiet) : mds_(mds), session_(session), ost_(ost), progress_(!quiet && ::isatty(STDERR_FILENO)) {}

  Result<void> run() {
    wire::OstSetStateRequestT state;
    state.ost = ost_;
    state.state = wire::kOstDraining;
    NACRE_TRY(auto set, mds_.call<rpc::Method::kOstSetState>(state));
    (void)set;
    for (int round = 0, idle = 0; round < kMaxRounds; ++round) {
      const uint64_t before = moved;
      failures.clear();
      NACRE_CHECK_OK(round_over_files());
      if (moved != before) {
        idle = 0;
        continue;
      }
      const bool busy = std::any_of(failures.begin(), failures.end(), [](const Failure& f) { return f.busy; });
      if (!busy || ++idle > kBusyRounds) break;  // what is left can't be moved
      std::this_thread::sleep_for(1s);
    }
    if (failures.empty()) NACRE_CHECK_OK(wait_empty());
    if (progress_) fmt::print(stderr, "\r\033[K");
    return {};
  }

  uint64_t moved = 0, bytes = 0, left = 0;
  std::vector<Failure> failures;

 private:
  Result<void> round_over_files() {
    NACRE_TRY(auto avoid, unusable());
    wire::OstFilesRequestT request;
    request.ost = ost_;
    request.limit = kPage;
    for (;;) {
      NACRE_TRY(auto page, mds_.call<rpc::Method::kOstFiles>(request));
      left = page.objects;
      for (size_t at = 0; at < page.inos.size(); at += kAtOnce) {
        const std::vector<uint64_t> some(page.inos.begin() + static_cast<std::ptrdiff_t>(at), page.inos.begin() + static_cast<std::ptrdiff_t>(std::min(at + kAtOnce, page.inos.size())));
        NACRE_CHECK_OK(note(some, session_.move(some, avoid)));
      }
      if (page.end || page.inos.empty()) return {};
      request.after = page.inos.back();
    }
  }

  Result<void> note(const std::vector<uint64_t>& inos, const std::vector<Result<wire::MigrateReplyT>>& results) {
    for (size_t i = 0; i < results.size(); ++i) {
      const auto& r = results[i];
      if (interrupted) return Err(Errc::kIntr, fmt::format("interrupted; ost{} stays draining: run the command again to go on, or 'nacre ost activate ost{}'", ost_, ost_));
      if (r && r->token == 0) continue;  // it lies elsewhere
      if (r) {
        ++moved;
        bytes += r->attr ? r->attr->size : 0;
      } else if (r.error().code != Errc::kStale && r.error().code != Errc::kNoEnt) {  // else it was removed in the meantime
        failures.push_back({inos[i], path_of(inos[i]), r.error().message(), r.error().code == Errc::kBusy});
      }
    }
    if (progress_) fmt::print(stderr, "\r\033[Kost{}: {} files moved, {} objects left", ost_, moved, left);
    return {};
  }

  /// This target, and all others that take nothing.
  Result<std::vector<uint32_t>> unusable() {
    NACRE_TRY(auto map, mds_.call<rpc::Method::kMapGet>({}));
    std::vector<uint32_t> out;
    for (const auto& o : map.osts)
      if (o->id == ost_ || o->state != wire::kOstActive) out.push_back(o->id);
    return out;
  }

  std::string path_of(uint64_t ino) {
    wire::PathOfRequestT request;
    request.ino = ino;
    request.cred = std::make_unique<wire::CredT>();
    request.cred->groups_known = true;
    auto reply = mds_.call<rpc::Method::kPathOf>(request);
    return reply && !reply->paths.empty() ? reply->paths.front() : fmt::format("inode {} (no name)", ino);
  }

  Result<void> wait_empty() {
    wire::OstFilesRequestT request;
    request.ost = ost_;
    request.after = UINT64_MAX - 1;  // no file: only the count of objects
    request.limit = 1;
    const auto until = std::chrono::steady_clock::now() + kEmptyWait;
    for (;;) {
      NACRE_TRY(auto page, mds_.call<rpc::Method::kOstFiles>(request));
      left = page.objects;
      if (left == 0 || interrupted || std::chrono::steady_clock::now() > until) return {};
      if (progress_) fmt::print(stderr, "\r\033[Kost{}: {} files moved, {} objects left to destroy", ost_, moved, left);
      std::this_thread::sleep_for(100ms);
    }
  }

  Connection& mds_;
  Session& session_;
  const uint32_t ost_;
  const bool progress_;
};

int report(const OstArgs& o, uint32_t ost, const Drain& drain) {
  const bool empty = drain.failures.empty() && drain.left == 0;
  if (o.common.json) {
    nlohmann::ordered_json failed = nlohmann::ordered_json::array();
    for (const auto& f : drain.failures) failed.push_back({{"ino", f.ino}, {"path", f.path}, {"error", f.why}});
    print_json({{"target", fmt::format("ost{}", ost)}, {"files_moved", drain.moved}, {"bytes_moved", drain.bytes}, {"objects_left", drain.left}, {"failed", failed}});
    return empty ? kOk : kFound;
  }
  fmt::print("ost{}: {} files moved ({} bytes)\n", ost, drain.moved, drain.bytes);
  if (empty) {
    fmt::print("ost{} is empty and takes no new data; 'nacre ost activate ost{}' brings it back\n", ost, ost);
    return kOk;
  }
  for (size_t i = 0; i < std::min(drain.failures.size(), kShownFailures); ++i) fmt::print(stderr, "nacre: {}: {}\n", printable(drain.failures[i].path), drain.failures[i].why);
  if (drain.failures.size() > kShownFailures) fmt::print(stderr, "nacre: and {} more (--json lists all)\n", drain.failures.size() - kShownFailures);
  if (!drain.failures.empty()) return complain(kFound, fmt::format("{} files are still on ost{}: mend what is said above and run the command again", drain.failures.size(), ost));
  return complain(kFound, fmt::format("ost{} holds {} objects of no file: 'nacre fsck' tells what they are", ost, drain.left));
}
}  // namespace

int ost_drain(const OstArgs& o) {
  auto id = parse_target(o.target);
  if (!id) return complain(id.error());
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto connection = connect_mds(*cluster);
  if (!connection) return complain(connection.error());
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  Session session;
  if (auto opened = session.open(*cluster, fmt::format("nacre ost drain ost{}", *id)); !opened) return complain(opened.error());
  Drain drain(**connection, session, *id, o.common.json);
  if (auto done = drain.run(); !done) return complain(Error(done.error().code, fmt::format("ost{}: {}", *id, done.error().detail.empty() ? done.error().message() : done.error().detail)));
  return report(o, *id, drain);
}

}  // namespace nacre::cli
