// SPDX-License-Identifier: Apache-2.0
// `nacre ost activate|deactivate`: an inactive target gets no new data, and I/O on it fails at once instead of waiting.
#include <charconv>

#include <fmt/format.h>

#include "common/wire/bits.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
Result<uint32_t> parse_target(const std::string& text) {
  std::string_view number = text;
  if (number.starts_with("ost")) number.remove_prefix(3);
  uint32_t id = 0;
  auto [end, ec] = std::from_chars(number.data(), number.data() + number.size(), id);
  if (ec != std::errc() || end != number.data() + number.size()) return Err(Errc::kConfig, fmt::format("'{}' is no storage target: write ost0 or 0 ('nacre ost list' shows them)", text));
  return id;
}

int ost_set_state(const OstArgs& o) {
  auto parsed = parse_target(o.target);
  if (!parsed) return complain(parsed.error());
  const uint32_t id = *parsed;
  auto cluster = load_named_cluster(o.common.cluster);
  if (!cluster) return complain(cluster.error());
  auto connection = connect_mds(*cluster);
  if (!connection) return complain(connection.error());
  wire::OstSetStateRequestT request;
  request.ost = id;
  request.state = o.activate ? wire::kOstActive : wire::kOstInactive;
  auto reply = (*connection)->call<rpc::Method::kOstSetState>(request);
  if (!reply) return complain(Error(reply.error().code, fmt::format("ost{}: {}", id, reply.error().detail)));
  fmt::print("ost{} is {}\n", id, o.activate ? "active" : "inactive");
  return kOk;
}
}  // namespace nacre::cli
