// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/rng.h"

namespace nacre::test {
namespace {
namespace fs = std::filesystem;

std::string program(const std::string& name) {
  if (const char* dir = std::getenv("NACRE_BIN")) return std::string(dir) + "/" + name;
  return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin" / name).string();
}

/// Ports that are free now; all sockets stay open until the last one is chosen, so that none comes twice.
Result<std::vector<uint16_t>> free_ports(size_t count) {
  std::vector<int> fds;
  std::vector<uint16_t> ports;
  for (size_t i = 0; i < count; ++i) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof a;
    bool good = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&a), n) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0;
    if (fd >= 0) fds.push_back(fd);
    if (good) ports.push_back(ntohs(a.sin_port));
  }
  for (int fd : fds) ::close(fd);
  if (ports.size() != count) return Err(Errc::kUnavailable, "no free ports on 127.0.0.1");
  return ports;
}

Result<void> write_file(const std::string& path, const std::string& text, mode_t mode) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return Err(from_errno(errno), path);
  bool good = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!good) return Err(Errc::kIo, path);
  return {};
}

std::string read_text(const std::string& path) {
  std::ifstream f(path);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}
}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::make(ClusterOptions options) {
  std::unique_ptr<Cluster> c(new Cluster);
  std::string pattern = (fs::temp_directory_path() / "nacre-cluster.XXXXXX").string();
  if (!::mkdtemp(pattern.data())) return Err(from_errno(errno), pattern);
  c->dir_ = pattern;
  c->file_ = pattern + "/cluster.toml";
  auto& config = c->config_;
  config.file = c->file_;
  config.name = "test";
  system_rng().fill(std::as_writable_bytes(std::span(config.id)));
  config.key_file = pattern + "/key";
  config.run_dir = pattern + "/run";
  fs::create_directory(config.run_dir);
  std::array<uint8_t, wire::kKeySize> key;
  system_rng().fill(std::as_writable_bytes(std::span(key)));
  std::string hex;
  for (uint8_t b : key) hex += fmt::format("{:02x}", b);
  NACRE_CHECK_OK(write_file(config.key_file, hex + "\n", 0400));
  NACRE_TRY(auto ports, free_ports(options.osts + 1));
  config.mds.push_back({"localhost", fmt::format("127.0.0.1:{}", ports[0]), pattern + "/mds"});
  for (uint32_t i = 0; i < options.osts; ++i) {
    config::OstServer o;
    o.id = i;
    o.host = "localhost";
    o.address = fmt::format("127.0.0.1:{}", ports[i + 1]);
    o.data = fmt::format("{}/ost{}", pattern, i);
    o.size = options.ost_size;
    config.osts.push_back(o);
  }
  config.settings.rpc_loops = 1;
  config.settings.lease_keepalive = 500;
  config.settings.mds_block_cache = 16 * MiB;
  config.settings.oss_block_cache = 16 * MiB;
  if (options.settings) options.settings(config.settings);
  NACRE_CHECK_OK(write_file(c->file_, config::dump_cluster(config), 0644));
  NACRE_TRY(config, config::load_cluster(c->file_));
  for (auto& server : c->servers()) {
    auto argv = c->command(server);
    argv.push_back("--format");
    NACRE_TRY(pid_t pid, c->launch(argv, c->config_.run_dir + "/" + server + ".format"));
    if (int status = wait_for(pid); !WIFEXITED(status) || WEXITSTATUS(status) != 0)
      return Err(Errc::kIo, fmt::format("{} can't be formatted: {}", server, read_text(c->config_.run_dir + "/" + server + ".format")));
  }
  return c;
}

Cluster::~Cluster() {
  for (auto& server : servers()) kill9(server);
  if (!dir_.empty() && !std::getenv("NACRE_KEEP")) {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
}

std::vector<std::string> Cluster::servers() const {
  std::vector<std::string> out{"mds"};
  for (auto& o : config_.osts) out.push_back(fmt::format("ost{}", o.id));
  return out;
}

std::vector<std::string> Cluster::command(const std::string& server) const {
  if (server == "mds") return {program("nacre-mds"), "--cluster", file_};
  return {program("nacre-oss"), "--cluster", file_, "--ost", server.substr(3)};
}

Result<pid_t> Cluster::launch(std::vector<std::string> argv, const std::string& log) const {
  std::vector<char*> raw;
  for (auto& a : argv) raw.push_back(a.data());
  raw.push_back(nullptr);
  int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Err(from_errno(errno), log);
  pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(fd, 1);
    ::dup2(fd, 2);
    ::execv(raw[0], raw.data());
    ::_exit(127);
  }
  ::close(fd);
  if (pid < 0) return Err(from_errno(errno), "fork");
  return pid;
}

Result<void> Cluster::start(const std::string& server) {
  if (running(server)) return {};
  NACRE_TRY(pid_t pid, launch(command(server), config_.run_dir + "/" + server + ".log"));
  pids_[server] = pid;
  return {};
}

Result<void> Cluster::start_all() {
  for (auto& server : servers()) NACRE_CHECK_OK(start(server));
  return {};
}

bool Cluster::running(const std::string& server) {
  auto it = pids_.find(server);
  if (it == pids_.end()) return false;
  int status = 0;
  if (::waitpid(it->second, &status, WNOHANG) == 0) return true;
  pids_.erase(it);
  return false;
}

Result<void> Cluster::stop(const std::string& server) {
  auto it = pids_.find(server);
  if (it == pids_.end()) return {};
  ::kill(it->second, SIGTERM);
  int status = wait_for(it->second);
  pids_.erase(it);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return Err(Errc::kIo, fmt::format("{} ended with status {:#x}: {}", server, status, log(server)));
  return {};
}

void Cluster::kill9(const std::string& server) {
  auto it = pids_.find(server);
  if (it == pids_.end()) return;
  ::kill(it->second, SIGKILL);
  (void)wait_for(it->second);
  pids_.erase(it);
}

void Cluster::pause(const std::string& server) {
  if (auto it = pids_.find(server); it != pids_.end()) ::kill(it->second, SIGSTOP);
}
void Cluster::resume(const std::string& server) {
  if (auto it = pids_.find(server); it != pids_.end()) ::kill(it->second, SIGCONT);
}

std::string Cluster::log(const std::string& server) const { return read_text(config_.run_dir + "/" + server + ".log"); }

}  // namespace nacre::test
