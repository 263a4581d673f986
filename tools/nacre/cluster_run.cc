// SPDX-License-Identifier: Apache-2.0
// `nacre cluster start|stop|status`: the processes of the servers of one host. A pid file holds the pid and the process's start
// time, so that a pid that was given to somebody else is never signalled. `start` starts only what is down; a process that was
// killed a moment ago may still be there but answers no more, so `start` returns when each server has answered.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kStartTimeout = 60s;   // RocksDB recovery of a busy server's journal
constexpr auto kStopTimeout = 60s;    // a clean stop syncs and writes the allocator
constexpr auto kPoll = 20ms;
constexpr size_t kTailLines = 5;

struct Process {
  pid_t pid = 0;
  uint64_t start = 0;
  char state = '?';
  bool frozen() const { return state == 'T' || state == 't'; }  ///< by SIGSTOP or a debugger: it is up, and goes on some time
};

/// Its main thread may end before the others, which then still hold files, locks and ports.
bool has_threads(pid_t pid) {
  std::error_code ec;
  fs::directory_iterator tasks(fmt::format("/proc/{}/task", pid), ec);
  return !ec && std::distance(fs::begin(tasks), fs::end(tasks)) > 1;
}

/// Start time (clock ticks since boot) and state from /proc/PID/stat; nothing for a process that is gone or waits to be reaped.
std::optional<Process> process(pid_t pid) {
  std::ifstream f(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(f)), {});
  const size_t paren = text.rfind(')');
  if (paren == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(paren + 2));
  Process p{pid};
  std::string skip;
  rest >> p.state;
  for (int i = 4; i <= 21; ++i) rest >> skip;
  rest >> p.start;
  if (!rest || ((p.state == 'Z' || p.state == 'X') && !has_threads(pid))) return std::nullopt;
  return p;
}

std::optional<Process> running(const Server& s) {
  std::ifstream f(s.pid_file);
  pid_t pid = 0;
  uint64_t start = 0;
  if (!(f >> pid >> start) || pid <= 0) return std::nullopt;
  auto p = process(pid);
  if (!p || p->start != start) return std::nullopt;
  return p;
}

std::string tail(const std::string& path) {
  std::ifstream f(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(f, line);) {
    lines.push_back(line);
    if (lines.size() > kTailLines) lines.erase(lines.begin());
  }
  std::string out;
  for (const auto& l : lines) out += "\n  " + l;
  return out;
}

/// Starts argv in a session of its own with its output in `log`. Returns its pid.
Result<pid_t> launch(const std::vector<std::string>& argv, const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (out < 0) return Err(from_errno(errno), fmt::format("the log file {} can't be opened", log));
  std::vector<char*> args;
  for (const auto& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(out);
    return Err(from_errno(errno), "no process could be started");
  }
  if (pid == 0) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 0);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::close_range(3, ~0u, 0);
    ::execvp(args[0], args.data());
    ::_exit(127);
  }
  ::close(out);
  return pid;
}

enum class Stage { kSilent, kListens, kServes };

/// What the server says to a status request. A storage target serves once the metadata server has answered it.
Stage ask(const Server& s, const config::Cluster& c) {
  auto connection = connect_server(c, s.address, 1 * kSecond);
  if (!connection) return Stage::kSilent;
  if (s.role == "mds") return (*connection)->call<rpc::Method::kMdsStatus>({}) ? Stage::kServes : Stage::kSilent;
  auto status = (*connection)->call<rpc::Method::kOssStatus>({});
  return !status ? Stage::kSilent : status->serving ? Stage::kServes : Stage::kListens;
}

bool serves(const Server& s, const config::Cluster& c) { return ask(s, c) == Stage::kServes; }

Result<void> start_one(const Server& s, const config::Cluster& c) {
  std::error_code ec;
  fs::create_directories(c.run_dir, ec);
  NACRE_TRY(pid_t pid, launch(server_command(s, c), s.log_file));
  auto p = process(pid);
  if (p) {
    std::ofstream f(s.pid_file, std::ios::trunc);
    f << pid << ' ' << p->start << '\n';
    if (!f.flush()) return Err(Errc::kIo, fmt::format("the pid file {} can't be written", s.pid_file));
  }
  return {};
}

struct Starting {
  Server server;
  bool launched = false;  ///< by this command; else it was found running, and may have been about to end
};

/// Waits until the server has come to `stage`. One that was found running and ends meanwhile is started.
Result<void> wait_ready(Starting& w, const config::Cluster& c, Stage stage) {
  const Server& s = w.server;
  const auto until = std::chrono::steady_clock::now() + kStartTimeout;
  while (ask(s, c) < stage) {
    ::waitpid(-1, nullptr, WNOHANG);
    auto p = running(s);
    if (p && p->frozen()) return {};
    if (!p && w.launched) return Err(Errc::kUnavailable, fmt::format("{} ended right after its start; the end of {} says:{}", s.target, s.log_file, tail(s.log_file)));
    if (!p) {
      NACRE_CHECK_OK(start_one(s, c));
      w.launched = true;
    }
    if (std::chrono::steady_clock::now() > until) return Err(Errc::kUnavailable, fmt::format("{} does not answer at {}; see {}", s.target, s.address, s.log_file));
    std::this_thread::sleep_for(kPoll);
  }
  return {};
}

Result<void> stop_one(const Server& s) {
  auto p = running(s);
  if (!p) {
    ::unlink(s.pid_file.c_str());
    return {};
  }
  ::kill(p->pid, SIGTERM);
  ::kill(p->pid, SIGCONT);  // a frozen process can't end otherwise
  const auto until = std::chrono::steady_clock::now() + kStopTimeout;
  while (running(s)) {
    if (std::chrono::steady_clock::now() > until) return Err(Errc::kTimedOut, fmt::format("{} (pid {}) did not stop within 60 s; see {}, or end it with kill -9 {}", s.target, p->pid, s.log_file, p->pid));
    std::this_thread::sleep_for(kPoll);
  }
  ::unlink(s.pid_file.c_str());
  return {};
}

Result<config::Cluster> cluster_of(const ClusterRun& o) { return load_named_cluster(o.target.empty() ? o.common.cluster : o.target); }
}  // namespace

std::vector<Server> all_servers(const config::Cluster& c) {
  std::vector<Server> out;
  for (const auto& m : c.mds) out.push_back({"mds", "mds", 0, m.host, m.address, m.data, c.run_dir + "/mds.pid", c.run_dir + "/mds.log"});
  for (const auto& o : c.osts) {
    const std::string name = fmt::format("ost{}", o.id);
    out.push_back({"ost", name, o.id, o.host, o.address, o.data, c.run_dir + "/" + name + ".pid", c.run_dir + "/" + name + ".log"});
  }
  return out;
}

std::vector<Server> servers_of(const config::Cluster& c, const std::string& host) {
  char own[256] = {};
  ::gethostname(own, sizeof own - 1);
  std::vector<Server> out;
  for (Server& s : all_servers(c))
    if (host.empty() ? (s.host == "localhost" || s.host == own) : s.host == host) out.push_back(std::move(s));
  return out;
}

std::string sibling_program(const std::string& name) {
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  if (!ec && fs::exists(self.parent_path() / name)) return self.parent_path() / name;
  return name;
}

std::vector<std::string> server_command(const Server& s, const config::Cluster& c) {
  if (s.role == "mds") return {sibling_program("nacre-mds"), "--cluster", c.file};
  return {sibling_program("nacre-oss"), "--cluster", c.file, "--ost", std::to_string(s.ost)};
}

Result<void> run_to_end(const Server& s, const config::Cluster& c, std::vector<std::string> extra) {
  std::vector<std::string> argv = server_command(s, c);
  argv.insert(argv.end(), extra.begin(), extra.end());
  const std::string log = s.log_file + ".format";
  NACRE_TRY(pid_t pid, launch(argv, log));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Err(Errc::kIo, fmt::format("{} could not be prepared in {}:{}", s.target, s.data, tail(log)));
  ::unlink(log.c_str());
  return {};
}

Result<void> stop_server(const Server& s) { return stop_one(s); }

Result<void> start_server(const Server& s, const config::Cluster& c) {
  Starting one{s, false};
  return wait_ready(one, c, Stage::kServes);
}

int cluster_start(const ClusterRun& o) {
  auto c = cluster_of(o);
  if (!c) return complain(c.error());
  const auto mine = servers_of(*c, o.host);
  if (mine.empty()) return complain(kUsage, fmt::format("{} names no server on host '{}': give one of its hosts with --host", c->file, o.host));
  std::vector<Starting> waited;
  for (const Server& s : mine) {
    const bool down = !running(s);
    if (down)
      if (auto r = start_one(s, *c); !r) return complain(r.error());
    waited.push_back({s, down});
  }
  // A storage target serves once the metadata server has answered it, which may run on another host that is started later.
  const bool has_mds = std::any_of(mine.begin(), mine.end(), [](const Server& s) { return s.role == "mds"; });
  const Stage stage = has_mds || serves(all_servers(*c).front(), *c) ? Stage::kServes : Stage::kListens;
  for (Starting& w : waited)
    if (auto r = wait_ready(w, *c, stage); !r) return complain(kUnreachable, r.error().detail);
  const auto started = std::count_if(waited.begin(), waited.end(), [](const Starting& w) { return w.launched; });
  fmt::print("{} of {} servers started, {} were running\n", started, mine.size(), mine.size() - static_cast<size_t>(started));
  return kOk;
}

int cluster_stop(const ClusterRun& o) {
  auto c = cluster_of(o);
  if (!c) return complain(c.error());
  int code = kOk;
  auto mine = servers_of(*c, o.host);
  // Targets first: they report their last state to the metadata server.
  std::reverse(mine.begin(), mine.end());
  for (const Server& s : mine)
    if (auto r = stop_one(s); !r) code = complain(kFound, r.error().detail);
  if (code == kOk) fmt::print("{} servers stopped\n", mine.size());
  return code;
}

int cluster_status(const ClusterRun& o) {
  auto c = cluster_of(o);
  if (!c) return complain(c.error());
  bool all_up = true, mds_up = false;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  Table table({"ROLE", "TARGET", "PID", "ADDRESS", "HOST", "STATE"}, {2});
  for (const Server& s : o.host.empty() ? all_servers(*c) : servers_of(*c, o.host)) {
    auto p = running(s);
    std::string state = !p ? "down" : p->frozen() ? "stopped" : serves(s, *c) ? "up" : "starting";
    all_up = all_up && state == "up";
    mds_up = mds_up || (s.role == "mds" && state == "up");
    list.push_back({{"role", s.role}, {"target", s.target}, {"pid", p ? p->pid : 0}, {"address", s.address}, {"host", s.host}, {"directory", s.data}, {"state", state}, {"log", s.log_file}});
    table.row({s.role, s.target, p ? std::to_string(p->pid) : "-", s.address, s.host, state});
  }
  if (o.common.json) print_json({{"cluster", c->file}, {"name", c->name}, {"id", config::format_uuid(c->id)}, {"servers", list}});
  else table.print();
  return all_up ? kOk : mds_up ? kFound : kUnreachable;
}
}  // namespace nacre::cli
