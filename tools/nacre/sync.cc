// SPDX-License-Identifier: Apache-2.0
// `nacre sync [PATH]`: makes durable what was written through the mount of PATH. sync(2) and syncfs(2) never reach a FUSE
// client, so this is the way to do it without an fsync of each file.
#include <fmt/format.h>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
int sync(const PathArgs& o) {
  std::vector<std::string> paths = o.paths;
  if (paths.empty()) paths.push_back(".");
  for (const auto& p : paths) {
    auto connection = connect_mount(p);
    if (!connection) return complain(connection.error());
    auto reply = (*connection)->call<rpc::Method::kSync>({});
    if (!reply) return complain(Error(reply.error().code, fmt::format("{}: {}", p, reply.error().detail)));
  }
  return kOk;
}
}  // namespace nacre::cli
