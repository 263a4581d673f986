// SPDX-License-Identifier: Apache-2.0
// `nacre ost add`: one more storage target on this machine for a cluster whose servers run here: the next free number, a block at
// the end of the cluster file, a formatted directory, a running server. The metadata server learns of it when it registers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/units.h"
#include "common/config/settings_table.h"
#include "common/io/durable.h"
#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
Result<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in) return Err(Errc::kIo, fmt::format("{} can't be read", path));
  return text;
}

namespace {
namespace fs = std::filesystem;

constexpr uint32_t kLastOst = 65'535;  ///< as the metadata server takes them

Result<uint16_t> free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof a;
  const bool good = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&a), n) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &n) == 0;
  if (fd >= 0) ::close(fd);
  if (!good) return Err(Errc::kUnavailable, "no free port on 127.0.0.1 could be found");
  return ntohs(a.sin_port);
}

/// A block for the new target. Its addresses are on loopback, as those of a single node are.
Result<std::string> block_of(const config::Cluster& c, const OstAdd& o, uint32_t id) {
  uint64_t size = 0;
  if (!o.size.empty()) {
    NACRE_TRY(size, parse_size(o.size));
    fmt::print(stderr, "size of the storage target: {}\n", format_size(size));
  } else {
    for (const auto& t : c.osts) size = std::max(size, t.size);
  }
  NACRE_TRY(uint16_t port, free_port());
  const std::string data = o.directory.empty() ? fmt::format("ost{}", id) : fs::absolute(o.directory).lexically_normal().string();
  std::string out = fmt::format("\n[[ost]]\nid = {}\nhost = {}\naddress = \"127.0.0.1:{}\"\ndata = {}\n", id, config::written_text(c.mds[0].host), port, config::written_text(data));
  if (size != 0) out += fmt::format("size = {}\n", config::written_size(size));
  return out;
}

Result<uint32_t> next_number(const config::Cluster& c, Connection& mds) {
  uint32_t next = 0;
  for (const auto& o : c.osts) next = std::max(next, o.id + 1);
  NACRE_TRY(auto map, mds.call<rpc::Method::kMapGet>({}));
  for (const auto& o : map.osts) next = std::max(next, o->id + 1);  // a number that was used once stays with its data
  if (next > kLastOst) return Err(Errc::kConfig, "all numbers of storage targets are used");
  return next;
}

Result<config::OstServer> add(const config::Cluster& c, const OstAdd& o) {
  if (c.mds.empty() || !c.mds[0].address.starts_with("127.0.0.1:"))
    return Err(Errc::kConfig, fmt::format("{} is not a cluster of one node: add an [[ost]] to it on all hosts, then run 'nacre cluster init --host NAME DIR' and 'nacre cluster start' on the target's host", c.file));
  NACRE_TRY(auto mds, connect_mds(c));
  NACRE_TRY(uint32_t id, next_number(c, *mds));
  NACRE_TRY(std::string block, block_of(c, o, id));
  NACRE_TRY(std::string before, read_text(c.file));
  NACRE_CHECK_OK(replace_file(c.file, before + block, 0644));
  auto made = [&]() -> Result<config::OstServer> {
    NACRE_TRY(config::Cluster now, config::load_cluster(c.file));
    for (const Server& s : all_servers(now)) {
      if (s.role != "ost" || s.ost != id) continue;
      std::error_code ec;
      fs::create_directories(s.data, ec);
      if (ec) return Err(from_errno(ec.value()), fmt::format("the directory {} can't be made: {}", s.data, ec.message()));
      NACRE_CHECK_OK(run_to_end(s, now, {"--format"}));
      NACRE_CHECK_OK(start_server(s, now));
    }
    for (const auto& t : now.osts)
      if (t.id == id) return t;
    return Err(Errc::kConfig, fmt::format("{} does not name ost{} after it was added", c.file, id));
  }();
  // A server that is started for it later would find nothing. One that runs already keeps its block.
  if (!made && made.error().code != Errc::kUnavailable) NACRE_CHECK_OK(replace_file(c.file, before, 0644));
  return made;
}
}  // namespace

int ost_add(const OstAdd& o) {
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto made = add(*cluster, o);
  if (!made) return complain(made.error());
  if (o.common.json) print_json({{"target", fmt::format("ost{}", made->id)}, {"address", made->address}, {"directory", made->data}, {"size", made->size}});
  else fmt::print("ost{} serves at {}, data in {}: new files use it\n", made->id, made->address, made->data);
  return kOk;
}

}  // namespace nacre::cli
