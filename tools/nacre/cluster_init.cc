// SPDX-License-Identifier: Apache-2.0
// `nacre cluster init`: makes a cluster: identity, key, cluster file, and formatted data directories. Never touches a directory
// that already holds a cluster. Ports are chosen free at init and kept in the file.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "common/base/rng.h"
#include "common/base/units.h"
#include "common/config/cluster.h"
#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
namespace fs = std::filesystem;

constexpr uint32_t kMaxOsts = 1000;

/// A loopback port that is free now. The socket stays open until all ports are chosen, so that none is given twice.
class PortPicker {
 public:
  ~PortPicker() { for (int fd : fds_) ::close(fd); }
  Result<uint16_t> pick() {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof a;
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&a), n) != 0 || ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) != 0) {
      if (fd >= 0) ::close(fd);
      return Err(Errc::kUnavailable, "no free port on 127.0.0.1 could be found");
    }
    fds_.push_back(fd);
    return ntohs(a.sin_port);
  }

 private:
  std::vector<int> fds_;
};

Result<void> write_file(const std::string& path, std::string_view text, mode_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return Err(from_errno(errno), fmt::format("{} can't be created", path));
  const bool good = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (!good) return Err(Errc::kIo, fmt::format("{} can't be written", path));
  return {};
}

Result<void> make_dirs(const std::string& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) return Err(from_errno(ec.value()), fmt::format("the directory {} can't be made", path));
  return {};
}

std::string new_key_text() {
  std::array<std::byte, wire::kKeySize> raw;
  system_rng().fill(raw);
  std::string hex;
  for (std::byte b : raw) hex += fmt::format("{:02x}", static_cast<unsigned>(b));
  return hex + "\n";
}

/// The cluster file of a single node: every address on loopback, data below `dir`.
Result<config::Cluster> single_node(const ClusterInit& o) {
  if (o.osts == 0 || o.osts > kMaxOsts) return Err(Errc::kConfig, fmt::format("--osts {} is out of range: 1 to {}", o.osts, kMaxOsts));
  uint64_t size = 0;
  if (!o.size.empty()) {
    NACRE_TRY(size, parse_size(o.size));
    fmt::print("size of each storage target: {}\n", format_size(size));
  }
  config::Cluster c;
  c.name = fs::path(o.dir).filename();
  PortPicker ports;
  NACRE_TRY(uint16_t mds_port, ports.pick());
  c.mds.push_back({"localhost", fmt::format("127.0.0.1:{}", mds_port), "mds"});
  for (uint32_t i = 0; i < o.osts; ++i) {
    NACRE_TRY(uint16_t port, ports.pick());
    c.osts.push_back({i, "localhost", fmt::format("127.0.0.1:{}", port), fmt::format("ost{}", i), {}, size});
  }
  return c;
}

/// Without --size the targets share what the backing filesystem has free.
Result<void> choose_sizes(config::Cluster& c, const std::string& dir) {
  size_t unsized = 0;
  for (const auto& o : c.osts) unsized += o.size == 0;
  std::error_code ec;
  const auto space = fs::space(dir, ec);
  if (ec) return Err(from_errno(ec.value()), fmt::format("free space of {} can't be read", dir));
  for (auto& o : c.osts)
    if (o.size == 0) o.size = round_down(space.available / unsized, MiB);
  return {};
}

/// Formats the data directories of one host's servers.
Result<void> prepare(const config::Cluster& c, const std::string& host) {
  NACRE_CHECK_OK(make_dirs(c.run_dir));
  for (const Server& s : servers_of(c, host)) {
    NACRE_CHECK_OK(make_dirs(s.data));
    NACRE_CHECK_OK(run_to_end(s, c, {"--format"}));
  }
  return {};
}

Result<void> init(const ClusterInit& o) {
  const std::string dir = fs::absolute(o.dir).lexically_normal();
  NACRE_CHECK_OK(make_dirs(dir));
  const std::string file = dir + "/cluster.toml";
  if (fs::exists(file) && !o.host.empty() && o.config.empty()) {  // the cluster exists: this prepares a further host of it
    NACRE_TRY(config::Cluster existing, config::load_cluster(file));
    return prepare(existing, o.host);
  }
  if (fs::exists(file)) return Err(Errc::kExist, fmt::format("{} already holds a cluster: start it with 'nacre cluster start {}', or choose another directory", dir, dir));

  config::Cluster c;
  if (o.config.empty()) {
    NACRE_TRY(c, single_node(o));
  } else {
    NACRE_TRY(c, config::load_cluster(o.config));
  }
  system_rng().fill(std::as_writable_bytes(std::span(c.id)));
  c.key_file = "key";
  c.run_dir = "run";
  NACRE_CHECK_OK(choose_sizes(c, dir));
  NACRE_CHECK_OK(write_file(dir + "/key", new_key_text(), 0400));
  NACRE_CHECK_OK(write_file(file, config::dump_cluster(c), 0644));
  NACRE_TRY(config::Cluster made, config::load_cluster(file));
  NACRE_CHECK_OK(prepare(made, o.host));
  fmt::print("made cluster '{}' in {}: 1 metadata server, {} storage target{} of {}\nnext: nacre cluster start {}\n", c.name, dir, c.osts.size(),
             c.osts.size() == 1 ? "" : "s", format_size(c.osts.empty() ? 0 : c.osts[0].size), dir);
  return {};
}
}  // namespace

int cluster_init(const ClusterInit& o) {
  auto done = init(o);
  return done ? kOk : complain(done.error());
}
}  // namespace nacre::cli
