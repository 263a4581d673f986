// SPDX-License-Identifier: Apache-2.0
// `nacre client status|abort`: the clients of this machine, asked beside their mounts (client/mount/control.h), so that they
// answer although no server does.
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "client/fuse/ioctl.h"
#include "client/mount/control.h"
#include "client/mount/point.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {

using json = nlohmann::ordered_json;
constexpr double kLongWaitSeconds = 30;
constexpr size_t kWaitingPrinted = 10;

Result<mount::MountLine> mount_at(const std::string& path) {
  const std::string point = mount::absolute_point(path);
  mount::MountLine found;
  bool any = false;
  for (auto& m : mount::nacre_mounts())
    if (m.point == point) {
      found = m;
      any = true;
    }
  if (!any) return Err(Errc::kNotOurs, fmt::format("no Nacre mount is on {}", point));
  return found;
}

/// Beside the mount; through it where the socket can't be reached, as from a container with a network of its own.
Result<std::string> ask_status(const mount::MountLine& m) {
  auto text = mount::ask_client(m.device, m.user, mount::ControlQuestion::kStatus);
  if (text || text.error().code != Errc::kDisconnected || mount::is_dead_mount(m.point)) return text;
  auto through = connect_mount(m.point);
  if (!through) return text;
  NACRE_TRY(Bytes answer, (*through)->call_raw(static_cast<rpc::Method>(fuse::kIoctlClientStatus), {}));
  return std::string(answer.begin(), answer.end());
}

/// A client's answer, and what is known without it. `text` is from another process: what is missing in it is shown as absent.
json status_of(const mount::MountLine& m) {
  json out = {{"mount_point", m.point}, {"source", m.source}};
  auto text = ask_status(m);
  json answer = text ? json::parse(*text, nullptr, false) : json();
  const bool ok = answer.is_object();
  out["state"] = !ok ? "dead" : answer.value("evicted", false) ? "evicted" : "serving";
  if (!ok) {
    out["error"] = text ? "the client's answer is no JSON" : text.error().detail;
    return out;
  }
  for (auto& [key, value] : answer.items())
    if (key != "version" && key != "mount_point" && key != "source") out[key] = value;
  return out;
}

bool is_well(const json& s) { return s["state"] == "serving" && s.value("oldest_wait_seconds", 0.0) < kLongWaitSeconds; }

void print_features(const json& s) {
  std::string active;
  std::vector<std::string> missing;
  for (const auto& f : s.value("features", json::array())) {
    if (f.value("active", false)) active += " " + f.value("name", "");
    else missing.push_back(fmt::format("{}: {} ({})", f.value("name", ""), f.value("without", ""), f.value("masked", false) ? "hidden by mask=" : f.value("offered", false) ? s.value("transport_note", "") : "needs " + f.value("needs", "")));
  }
  fmt::print("  features      {}\n", active.empty() ? "none" : active.substr(1));
  for (const auto& m : missing) fmt::print("  missing       {}\n", m);
}

void print_status(const json& s) {
  fmt::print("{}  {}  {}\n", s.value("mount_point", ""), s.value("source", ""), s.value("state", ""));
  if (s.contains("error")) return fmt::print("  {}\n", s.value("error", ""));
  fmt::print("  process       {}, version {}, session {}\n", s.value("pid", 0), s.value("software", ""), s.value("session", 0ull));
  fmt::print("  transport     {}, protocol {}, {} loops\n", s.value("transport", ""), s.value("protocol", ""), s.value("loops", 0));
  print_features(s);
  for (const auto& v : s.value("servers", json::array()))
    fmt::print("  server        {} at {}: {}{}\n", v.value("name", ""), v.value("address", ""), v.value("connected", false) ? "connected" : "not connected",
               v.value("retained_bytes", 0ull) ? fmt::format(", {} not yet stable there", size_or_bytes(v.value("retained_bytes", 0ull), true)) : "");
  const auto waiting = s.value("waiting", json::array());
  fmt::print("  waiting       {}\n", s.value("in_flight", 0ull));
  for (size_t i = 0; i < waiting.size() && i < kWaitingPrinted; ++i)
    fmt::print("    {:8.1f} s  {} on {}\n", waiting[i].value("seconds", 0.0), waiting[i].value("operation", ""), waiting[i].value("server", ""));
}

}  // namespace

int client_status(const ClientArgs& o) {
  std::vector<mount::MountLine> mounts;
  if (o.mount.empty()) {
    mounts = mount::nacre_mounts();
  } else {
    auto one = mount_at(o.mount);
    if (!one) return complain(kFound, one.error().detail);
    mounts.push_back(*one);
  }
  json list = json::array();
  bool well = true;
  for (const auto& m : mounts) {
    list.push_back(status_of(m));
    well = well && is_well(list.back());
  }
  if (o.common.json) print_json({{"mounts", list}});
  else if (list.empty()) fmt::print("nothing is mounted\n");
  else for (const auto& s : list) print_status(s);
  return well ? kOk : kFound;
}

int client_abort(const ClientArgs& o) {
  auto m = mount_at(o.mount);
  if (!m) return complain(kFound, m.error().detail);
  auto answer = mount::ask_client(m->device, m->user, mount::ControlQuestion::kAbort);
  if (!answer) return complain(kFound, fmt::format("{}: {}", m->point, answer.error().detail));
  fmt::print("{} operations of {} failed with EIO\n", *answer, m->point);
  return kOk;
}

}  // namespace nacre::cli
