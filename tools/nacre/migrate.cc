// SPDX-License-Identifier: Apache-2.0
// `nacre migrate`: other objects for a file's data, through the mount; the file may be in use meanwhile.
#include <signal.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/layout_options.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
std::vector<std::string> targets_of(const schema::LayoutT& layout) {
  std::set<uint32_t> osts;
  for (const auto& c : layout.components)
    for (size_t s = 0; s < std::min<size_t>(c->stripes_used, c->osts.size()); ++s) osts.insert(c->osts[s]);
  std::vector<std::string> out;
  for (uint32_t o : osts) out.push_back(fmt::format("ost{}", o));
  return out;
}

Result<nlohmann::ordered_json> move_one(const std::string& path, const std::optional<schema::LayoutT>& layout, bool json) {
  NACRE_TRY(auto connection, connect_mount(path));
  wire::MigrateRequestT request;
  NACRE_TRY(request.ino, inode_of(path));
  if (layout) request.layout = std::make_unique<schema::LayoutT>(*layout);
  auto reply = connection->call<rpc::Method::kMigrate>(request);
  if (!reply) return Err(reply.error().code, fmt::format("{}: {}", path, reply.error().detail));
  const auto targets = reply->target ? targets_of(*reply->target) : std::vector<std::string>{};
  const uint64_t size = reply->attr ? reply->attr->size : 0;
  if (!json) {
    if (reply->token == 0) fmt::print("{}: no data to move\n", path);
    else fmt::print("{}: {} bytes are on {}\n", path, size, fmt::join(targets, " "));
  }
  return nlohmann::ordered_json{{"path", path}, {"ino", request.ino}, {"moved", reply->token != 0}, {"size", size}, {"generation", reply->target ? reply->target->generation : 0}, {"targets", targets}};
}
}  // namespace

int migrate(const Migrate& o) {
  std::optional<schema::LayoutT> layout;
  if (!o.components.empty()) {
    auto wish = layout_of(o.components);
    if (!wish) return complain(wish.error());
    layout = std::move(*wish);
  }
  int code = kOk;
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& path : o.paths) {
    auto moved = move_one(path, layout, o.common.json);
    if (moved) {
      files.push_back(*moved);
      continue;
    }
    code = std::max(code, complain(moved.error()));
    if (moved.error().code == Errc::kIntr) break;
  }
  if (o.common.json) print_json({{"files", files}});
  return code;
}

}  // namespace nacre::cli
