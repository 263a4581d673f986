// SPDX-License-Identifier: Apache-2.0
// `nacre path INO` and `nacre fid PATH`: from an inode number to its names and back.
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
Result<uint64_t> parse_ino(const std::string& text) {
  uint64_t ino = 0;
  const bool hex = text.starts_with("0x");
  auto [end, ec] = std::from_chars(text.data() + (hex ? 2 : 0), text.data() + text.size(), ino, hex ? 16 : 10);
  if (ec != std::errc() || end != text.data() + text.size() || ino == 0) return Err(Errc::kConfig, fmt::format("'{}' is no inode number: take it from 'nacre fid PATH' or 'ls -i'", text));
  return ino;
}
}  // namespace

int path(const InoArgs& o) {
  auto ino = parse_ino(o.ino);
  if (!ino) return complain(ino.error());
  Result<std::unique_ptr<Connection>> connection = Err(Errc::kIo);
  if (!o.path.empty() || in_mount(".")) {
    connection = connect_mount(o.path.empty() ? "." : o.path);
  } else {
    auto cluster = load_named_cluster(o.common.cluster);
    if (!cluster) return complain(cluster.error());
    connection = connect_mds(*cluster);
  }
  if (!connection) return complain(connection.error());
  wire::PathOfRequestT request;
  request.ino = *ino;
  auto reply = (*connection)->call<rpc::Method::kPathOf>(request);
  if (!reply) return complain(Error(reply.error().code, fmt::format("inode {}: {}", *ino, reply.error().detail)));
  if (o.common.json) print_json({{"ino", *ino}, {"paths", reply->paths}, {"fileset", reply->fileset}});
  else
    for (const auto& p : reply->paths) fmt::print("{}\n", printable(p));
  return kOk;
}

int fid(const PathArgs& o) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& p : o.paths) {
    if (!in_mount(p)) return complain(Error(Errc::kNotOurs, fmt::format("{} lies in no Nacre mount", p)));
    auto ino = inode_of(p);
    if (!ino) return complain(ino.error());
    if (o.common.json) files.push_back({{"path", p}, {"ino", *ino}});
    else fmt::print("{}\n", *ino);
  }
  if (o.common.json) print_json({{"files", files}});
  return kOk;
}
}  // namespace nacre::cli
