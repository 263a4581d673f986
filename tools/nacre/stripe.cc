// SPDX-License-Identifier: Apache-2.0
// `nacre stripe set|get`: layouts with lfs's letters (lfs-setstripe(1)). On a directory: the default of what is created in it.
// On a name that does not exist: an empty file with that layout.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/units.h"
#include "common/layout/layout.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/layout_options.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
/// "4M", or "-1"/"eof" for the end of the file (0 in a layout).
Result<uint64_t> parse_end(const std::string& text) {
  if (text.empty() || text == "-1" || text == "eof" || text == "EOF") return uint64_t{0};
  return parse_size(text);
}

}  // namespace

Result<schema::LayoutT> layout_of(const std::vector<StripeComponent>& components) {
  schema::LayoutT layout;
  uint64_t start = 0;
  for (const StripeComponent& c : components) {
    auto out = std::make_unique<schema::ComponentT>();
    out->start = start;
    NACRE_TRY(out->end, parse_end(c.end));
    out->stripe_size = 1 * MiB;
    if (!c.size.empty()) {
      NACRE_TRY(uint64_t size, parse_size(c.size));
      if (size % kMinStripeSize != 0 || size == 0 || size > UINT32_MAX) return Err(Errc::kConfig, fmt::format("the stripe size {} is no multiple of 64 KiB: use for example {}", c.size, format_size(std::max<uint64_t>(kMinStripeSize, round_up(size, kMinStripeSize)))));
      out->stripe_size = static_cast<uint32_t>(size);
    }
    const int count = c.count.value_or(1);
    if (count < -1 || count > static_cast<int>(layout::kMaxStripes)) return Err(Errc::kConfig, fmt::format("the stripe count {} is out of range: 1 to {}, or -1 for all targets", count, layout::kMaxStripes));
    out->stripe_count = static_cast<uint16_t>(count == -1 ? 0 : std::max(count, 1));
    out->pool = c.pool;
    out->first_ost = c.first_ost.value_or(-1);
    start = out->end;
    layout.components.push_back(std::move(out));
  }
  if (auto good = layout::validate(layout); !good) return Err(Errc::kConfig, good.error().detail);
  return layout;
}

namespace {
/// Creates an empty file for a layout if nothing is there yet. lfs does the same.
Result<void> ensure_exists(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) == 0) return {};
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return Err(from_errno(errno), fmt::format("{} can't be created", path));
  ::close(fd);
  return {};
}

Result<void> set_one(const std::string& path, const Stripe& o) {
  schema::LayoutT layout;
  if (!o.reset) {
    NACRE_TRY(layout, layout_of(o.components));
  }
  const bool made = ::access(path.c_str(), F_OK) != 0;
  NACRE_CHECK_OK(ensure_exists(path));
  NACRE_TRY(auto connection, connect_mount(path));
  wire::LayoutSetRequestT request;
  NACRE_TRY(request.ino, inode_of(path));
  request.layout = std::make_unique<schema::LayoutT>(std::move(layout));
  auto reply = connection->call<rpc::Method::kLayoutSet>(request);
  if (!reply && made) ::unlink(path.c_str());
  if (!reply) return Err(reply.error().code, fmt::format("{}: {}", path, reply.error().detail.empty() ? std::string(text_of(reply.error().code)) : reply.error().detail));
  return {};
}

nlohmann::ordered_json to_json(const schema::ComponentT& c) {
  nlohmann::ordered_json objects = nlohmann::ordered_json::array();
  for (size_t s = 0; s < c.osts.size(); ++s) objects.push_back({{"stripe", s}, {"ost", c.osts[s]}, {"target", fmt::format("ost{}", c.osts[s])}, {"used", s < c.stripes_used}});
  return {{"start", c.start}, {"end", c.end == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(c.end)}, {"stripe_size", c.stripe_size}, {"stripe_count", c.stripe_count}, {"pool", c.pool}, {"instantiated", c.instantiated}, {"objects", objects}};
}

void print_text(const std::string& path, const wire::LayoutGetReplyT& reply) {
  const auto& layout = *reply.layout;
  fmt::print("{}\n", path);
  fmt::print("  generation: {}{}\n", layout.generation, reply.inherited ? "  (inherited default)" : "");
  for (size_t i = 0; i < layout.components.size(); ++i) {
    const auto& c = *layout.components[i];
    fmt::print("  component {}: [{}, {})  stripe_count: {}  stripe_size: {}  {}{}\n", i, c.start == 0 ? "0" : format_size(c.start), c.end == 0 ? "end" : format_size(c.end), c.stripe_count == 0 ? "all" : std::to_string(c.stripe_count), format_size(c.stripe_size), c.instantiated ? "instantiated" : "not yet instantiated", c.pool.empty() ? "" : "  pool: " + c.pool);
    for (size_t s = 0; s < c.osts.size(); ++s) fmt::print("    stripe {}: ost{}\n", s, c.osts[s]);
  }
}
}  // namespace

int stripe_set(const Stripe& o) {
  for (const auto& path : o.paths)
    if (auto r = set_one(path, o); !r) return complain(r.error());
  return kOk;
}

int stripe_get(const Stripe& o) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const auto& path : o.paths) {
    auto connection = connect_mount(path);
    if (!connection) return complain(connection.error());
    wire::LayoutGetRequestT request;
    auto ino = inode_of(path);
    if (!ino) return complain(ino.error());
    request.ino = *ino;
    auto reply = (*connection)->call<rpc::Method::kLayoutGet>(request);
    if (!reply) return complain(Error(reply.error().code, fmt::format("{}: {}", path, reply.error().detail)));
    if (!reply->layout) return complain(Error(Errc::kProtocol, fmt::format("the layout of {} is missing in the server's answer", path)));
    nlohmann::ordered_json components = nlohmann::ordered_json::array();
    for (const auto& c : reply->layout->components) components.push_back(to_json(*c));
    files.push_back({{"path", path}, {"ino", *ino}, {"generation", reply->layout->generation}, {"inherited", reply->inherited}, {"components", components}});
    if (!o.common.json) print_text(path, *reply);
  }
  if (o.common.json) print_json({{"files", files}});
  return kOk;
}
}  // namespace nacre::cli
