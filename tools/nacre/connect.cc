// SPDX-License-Identifier: Apache-2.0
#include "tools/nacre/connect.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include <fmt/format.h>

#include "client/fuse/ioctl.h"
#include "common/wire/bits.h"

namespace nacre::cli {
namespace {

constexpr Nanos kAdminTimeout = 30 * kSecond;
constexpr uint32_t kMaxAnswer = 64u << 20;  // pages of one ioctl answer: more than a full map or listing page can be

class ServerConnection final : public Connection {
 public:
  ~ServerConnection() override {
    if (peer_) runtime_.loop(0).post([p = peer_] { p->close(Errc::kShutdown); });
    peer_.reset();
    runtime_.stop(kSecond);
  }

  Result<void> open(const config::Cluster& cluster, const std::string& address, Nanos timeout) {
    timeout_ = timeout;
    NACRE_TRY(wire::Key key, wire::read_key_file(cluster.key_file));
    runtime_.start();
    rpc::ConnectOptions o;
    o.address = address;
    o.cluster_id = cluster.id;
    o.key = key;
    o.role = wire::kRoleAdmin;
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    o.host = host;
    o.deadline = runtime_.clock().boot() + timeout;
    auto peer = on_loop<rpc::PeerPtr>([this, o]() { return rpc::connect(*transport_, o, nullptr); });
    if (!peer) return Err(peer.error().code, fmt::format("the server at {} can't be reached: {}; see 'nacre cluster status {}'", address, peer.error().message(), cluster.file));
    peer_ = *peer;
    return {};
  }

  void be_patient(Nanos timeout) override { timeout_ = timeout; }

  Result<Bytes> call_raw(rpc::Method method, Bytes body) override {
    rpc::CallOptions o;
    o.deadline = runtime_.clock().boot() + timeout_;
    auto reply = on_loop<rpc::Reply>([this, method, body, o]() { return peer_->call(method, body, o); });
    if (!reply) return std::unexpected(reply.error());
    return std::move(reply->body);
  }

 private:
  template <class T>
  static Task<void> run(std::function<Task<Result<T>>()> make, std::shared_ptr<std::promise<Result<T>>> done) {
    auto task = make();
    done->set_value(co_await std::move(task));
  }
  template <class T>
  Result<T> on_loop(std::function<Task<Result<T>>()> make) {
    auto done = std::make_shared<std::promise<Result<T>>>();
    auto future = done->get_future();
    Loop& loop = runtime_.loop(0);
    loop.post([&loop, make, done] { loop.spawn(run<T>(make, done)); });
    return future.get();
  }

  Runtime runtime_{RuntimeOptions{.loops = 1, .pin = false, .workers = 1, .name = "nacre"}};
  std::unique_ptr<rpc::Transport> transport_ = rpc::tcp_transport(runtime_);
  rpc::PeerPtr peer_;
  Nanos timeout_ = kAdminTimeout;
};

class MountConnection final : public Connection {
 public:
  explicit MountConnection(int fd) : fd_(fd), call_(std::make_unique<fuse::IoctlCall>()) {}
  ~MountConnection() override { ::close(fd_); }

  Result<Bytes> call_raw(rpc::Method method, Bytes body) override {
    if (body.size() > fuse::kIoctlData) return Err(Errc::kTooBig, fmt::format("a request of {} bytes does not fit through the mount (at most {})", body.size(), fuse::kIoctlData));
    Bytes answer;
    do {
      *call_ = fuse::IoctlCall{};
      call_->method = static_cast<uint16_t>(method);
      call_->offset = static_cast<uint32_t>(answer.size());
      call_->size = static_cast<uint32_t>(body.size());
      std::copy(body.begin(), body.end(), call_->data);
      if (::ioctl(fd_, fuse::kIoctlRequest, call_.get()) != 0)
        return Err(from_errno(errno), fmt::format("the mount refused {}: {}", rpc::method_name(call_->method), std::strerror(errno)));
      if (call_->size > fuse::kIoctlData || call_->total > kMaxAnswer) return Err(Errc::kProtocol, "the mount answered with an impossible size");
      if (call_->status != 0) return Err(from_wire(call_->status), std::string(reinterpret_cast<const char*>(call_->data), call_->size));
      answer.insert(answer.end(), call_->data, call_->data + call_->size);
    } while (answer.size() < call_->total && call_->size > 0);
    return answer;
  }

 private:
  int fd_;
  std::unique_ptr<fuse::IoctlCall> call_;
};

/// The directory or plain file through which to ask about `path`: itself if it can be opened, else the directory it lies in.
int open_for_ioctl(const std::string& path) {
  struct stat st;
  const bool plain = ::lstat(path.c_str(), &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
  int fd = plain ? ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOATIME | O_CLOEXEC) : -1;
  if (fd < 0 && plain) fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) return fd;
  std::string parent = std::filesystem::path(path).parent_path();
  return ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/// Type of the mount with the device number of `path`, from /proc/self/mountinfo.
std::string filesystem_type(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return {};
  const std::string device = fmt::format("{}:{}", major(st.st_dev), minor(st.st_dev));
  std::ifstream f("/proc/self/mountinfo");
  for (std::string line; std::getline(f, line);) {
    std::istringstream in(line);
    std::string id, parent, dev, word;
    in >> id >> parent >> dev;
    if (dev != device) continue;
    while (in >> word && word != "-") {}
    in >> word;
    return word;
  }
  return {};
}
}  // namespace

Result<config::Cluster> load_named_cluster(const std::string& named) {
  NACRE_TRY(std::string file, config::find_cluster_file(named));
  return config::load_cluster(file);
}

Result<std::unique_ptr<Connection>> connect_server(const config::Cluster& cluster, const std::string& address, Nanos timeout) {
  auto c = std::make_unique<ServerConnection>();
  NACRE_CHECK_OK(c->open(cluster, address, timeout));
  return c;
}

Result<std::unique_ptr<Connection>> connect_mds(const config::Cluster& cluster) {
  if (cluster.mds.empty()) return Err(Errc::kConfig, fmt::format("{} names no metadata server", cluster.file));
  return connect_server(cluster, cluster.mds[0].address, kAdminTimeout);
}

bool in_mount(const std::string& path) {
  std::string p = path;
  struct stat st;
  while (::lstat(p.c_str(), &st) != 0) {
    const std::string parent = std::filesystem::path(p).parent_path();
    if (parent.empty() || parent == p) {
      p = ".";
      break;
    }
    p = parent;
  }
  return filesystem_type(p) == "fuse.nacre";
}

Result<std::unique_ptr<Connection>> connect_mount(const std::string& path) {
  if (!in_mount(path)) return Err(Errc::kNotOurs, fmt::format("{} lies in no Nacre mount", path));
  const int fd = open_for_ioctl(path);
  if (fd < 0) return Err(from_errno(errno), fmt::format("{} can't be opened: {}", path, std::strerror(errno)));
  return std::make_unique<MountConnection>(fd);
}

Result<uint64_t> inode_of(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return Err(from_errno(errno), fmt::format("{}: {}", path, std::strerror(errno)));
  return static_cast<uint64_t>(st.st_ino);
}

}  // namespace nacre::cli
