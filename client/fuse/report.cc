// SPDX-License-Identifier: Apache-2.0
// What `nacre client status` shows: the front's report and the core's status as one JSON object.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "client/fuse/front.h"
#include "client/fuse/ops.h"

namespace nacre::fuse {

Report Front::report() const {
  Report r;
  const Compat& c = options_.compat;
  r.transport = c.has(Feature::kUring) ? "io_uring" : "/dev/fuse";
  r.protocol_minor = c.minor();
  r.max_io = c.max_write();
  r.loops = runtime_.size();
  r.features.assign(c.states().begin(), c.states().end());
  r.requests = requests_.load(std::memory_order_relaxed);
  r.forgets = forgets_.load(std::memory_order_relaxed);
  r.interrupts = interrupts_.load(std::memory_order_relaxed);
  r.cancelled = cancelled_.load(std::memory_order_relaxed);
  for (const auto& q : running_) r.running += q->count();
  {
    std::lock_guard lock(open_mutex_);
    for (const OpenFile* f : open_) ++(f->directory ? r.open_directories : r.open_files);
  }
  std::lock_guard lock(mutex_);
  r.transport_note = transport_note_;
  r.devices = devices_;
  return r;
}

std::string Front::status_json() const {
  using json = nlohmann::ordered_json;
  const Report r = report();
  const client::ClientStatus s = fs_.status();
  json features = json::array();
  for (const auto& f : r.features)
    features.push_back({{"name", f.name}, {"active", f.active}, {"offered", f.offered}, {"masked", f.masked}, {"what", f.what}, {"without", f.without}, {"needs", f.needs}});
  json servers = json::array();
  for (const auto& v : s.servers)
    servers.push_back({{"name", v.name}, {"address", v.address}, {"connected", v.connected}, {"retained_bytes", v.retained}, {"checksum_errors", v.checksum_errors}, {"resent", v.resent}});
  json waiting = json::array();
  for (const auto& w : s.waiting) waiting.push_back({{"operation", w.operation}, {"server", w.server}, {"seconds", static_cast<double>(w.age) / kSecond}});
  const json out = {{"version", 1},
                    {"pid", ::getpid()},
                    {"source", options_.source},
                    {"mount_point", options_.mount_point},
                    {"software", NACRE_VERSION},
                    {"transport", r.transport},
                    {"transport_note", r.transport_note},
                    {"protocol", fmt::format("7.{}", r.protocol_minor)},
                    {"max_io", r.max_io},
                    {"loops", r.loops},
                    {"devices", r.devices},
                    {"requests", r.requests},
                    {"forgets", r.forgets},
                    {"interrupts", r.interrupts},
                    {"cancelled", r.cancelled},
                    {"running", r.running},
                    {"open_files", r.open_files},
                    {"open_directories", r.open_directories},
                    {"features", std::move(features)},
                    {"session", s.session},
                    {"evicted", s.evicted},
                    {"map_version", s.map_version},
                    {"open_handles", s.open_handles},
                    {"held_locks", s.held_locks},
                    {"in_flight", s.in_flight},
                    {"oldest_wait_seconds", static_cast<double>(s.oldest_wait) / kSecond},
                    {"oldest_wait", s.oldest_wait_text},
                    {"waiting", std::move(waiting)},
                    {"metrics_port", metrics_port_.load()},
                    {"read_bytes", s.read_bytes},
                    {"written_bytes", s.written_bytes},
                    {"retries", s.retries},
                    {"servers", std::move(servers)}};
  return out.dump();
}

}  // namespace nacre::fuse
