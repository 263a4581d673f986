// SPDX-License-Identifier: Apache-2.0
// `nacre fsck` and `nacre scrub`: asks the metadata server page after page, online, and tells what it finds. A server that restarts
// meanwhile is waited for and the page asked again; a target that can't be reached is itself told, the others are checked all the same.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/units.h"
#include "common/wire/bits.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/connect.h"
#include "tools/nacre/output.h"

namespace nacre::cli {
namespace {
constexpr uint64_t kRowsPerPage = 4'000;
constexpr uint64_t kBytesPerPage = 16 * MiB;
constexpr Nanos kPageTime = 10 * 60 * kSecond;        ///< a directory with very many names is one page
constexpr Nanos kServerWait = 120 * kSecond;          ///< for a server that restarts
constexpr Nanos kTargetWait = 10 * kSecond;          ///< for a target that comes back
constexpr Nanos kRetryPause = 500 * kMillisecond;
constexpr Nanos kProgressEvery = 200 * kMillisecond;
constexpr int kMountPolls = 40;                       ///< of 50 ms: a mount whose client hangs must not hang this
enum class Phase : uint8_t { kInodes = 1, kNames = 2, kStrays = 3, kChecksums = 4, kUsage = 5 };

// ---- mounts

struct MountLine { std::string point, source; };

/// Octal escapes of mountinfo.
std::string unescaped(std::string_view in) {
  std::string out;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] == '\\' && i + 3 < in.size()) {
      out += static_cast<char>((in[i + 1] - '0') * 64 + (in[i + 2] - '0') * 8 + (in[i + 3] - '0'));
      i += 3;
    } else {
      out += in[i];
    }
  }
  return out;
}

std::vector<MountLine> nacre_mounts() {
  std::vector<MountLine> out;
  std::ifstream f("/proc/self/mountinfo");
  for (std::string line; std::getline(f, line);) {
    std::istringstream in(line);
    std::string word, point, type, source;
    for (int i = 0; i < 5; ++i) in >> point;  // the fifth field
    while (in >> word && word != "-") {}
    in >> type >> source;
    if (type == "fuse.nacre") out.push_back({unescaped(point), unescaped(source)});
  }
  return out;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ec;
  return std::filesystem::equivalent(a, b, ec) && !ec;
}

/// By its source, without touching the mount: a client that hangs must not hang the check.
bool is_of(const MountLine& mount, const config::Cluster& cluster) {
  if (mount.source.starts_with('/')) return same_file(mount.source, cluster.file) || same_file(mount.source, std::filesystem::path(cluster.file).parent_path());
  const std::string hosts = mount.source.substr(0, mount.source.rfind(":/"));
  return std::ranges::any_of(cluster.mds, [&](const auto& m) { return hosts.find(m.address.substr(0, m.address.rfind(':'))) != hosts.npos || hosts.find(m.host) != hosts.npos; });
}

/// Whether the mount shows the whole namespace: its root is inode 1. Asked in a child that may be left behind.
bool shows_root(const std::string& point) {
  const pid_t child = ::fork();
  if (child == 0) {
    struct stat st;
    ::_exit(::stat(point.c_str(), &st) == 0 && st.st_ino == 1 ? 0 : 1);
  }
  int status = 1;
  for (int i = 0; child > 0 && i < kMountPolls; ++i) {
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ::usleep(50'000);
  }
  if (child > 0) ::kill(child, SIGKILL);
  return false;
}

/// The mount that `path` lies in: the longest mount point that is a prefix of it.
std::optional<MountLine> mount_around(const std::string& path) {
  std::error_code ec;
  const std::string full = std::filesystem::weakly_canonical(path, ec);
  std::optional<MountLine> out;
  for (const MountLine& m : nacre_mounts())
    if ((full == m.point || full.starts_with(m.point + "/")) && (!out || m.point.size() >= out->point.size())) out = m;
  return out;
}

// ---- telling

struct Totals { uint64_t left = 0, repaired = 0; };

class Report {
 public:
  Report(bool json, std::string mount) : json_(json), mount_(std::move(mount)), bar_(::isatty(STDERR_FILENO) == 1) {}

  void problem(const wire::FsckProblemT& p) {
    (p.repaired ? totals_.repaired : totals_.left) += 1;
    clear();
    if (json_) list_.push_back(to_json(p));
    else fmt::print("{}\n", to_line(p));
    std::fflush(stdout);
  }
  void unchecked(const std::string& target, const std::string& why) {
    ++totals_.left;
    clear();
    if (json_) list_.push_back({{"kind", "target-unchecked"}, {"target", target}, {"detail", why}, {"repairable", false}, {"repaired", false}});
    else fmt::print("target-unchecked {}: {}\n", target, why);
    std::fflush(stdout);
  }
  /// `total` 0: not known.
  void progress(const std::string& what, uint64_t done, uint64_t total, bool bytes) {
    const Nanos now = system_clock().boot();
    if (!bar_ || now - shown_ < kProgressEvery) return;
    shown_ = now;
    const std::string amount = bytes ? format_size(done) : std::to_string(done);
    const std::string share = total > done ? fmt::format(" of {}, {} %", bytes ? format_size(total) : std::to_string(total), done * 100 / total) : "";
    fmt::print(stderr, "\r\033[K{}: {}{}", what, amount, share);
    std::fflush(stderr);
    drawn_ = true;
  }
  void waiting(const std::string& why) {
    if (!bar_) return;
    fmt::print(stderr, "\r\033[K{}; trying again", why);
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (std::exchange(drawn_, false)) fmt::print(stderr, "\r\033[K");
  }
  int finish(const nlohmann::ordered_json& checked) {
    clear();
    if (json_) {
      print_json({{"problems", list_}, {"problems_left", totals_.left}, {"repaired", totals_.repaired}, {"checked", checked}});
    } else {
      if (totals_.repaired > 0) fmt::print("{} repaired\n", totals_.repaired);
      fmt::print("{} problems\n", totals_.left);
    }
    return totals_.left == 0 ? kOk : kFound;
  }

 private:
  std::string place(const wire::FsckProblemT& p) const {
    if (p.path.empty()) return "";
    const std::string_view path = as_text(p.path);
    return path.starts_with('/') ? mount_ + std::string(path) : std::string(path);
  }
  static bool has_numbers(const wire::FsckProblemT& p) {
    static constexpr std::array<std::string_view, 8> kinds = {"link-count", "directory-entries", "directory-subdirs", "allocated", "size", "data-lost", "usage-bytes", "usage-inodes"};
    return std::ranges::find(kinds, std::string_view(p.kind)) != kinds.end();
  }
  std::string to_line(const wire::FsckProblemT& p) const {
    std::string out = p.kind;
    const std::string path = place(p);
    if (!path.empty()) out += " " + printable(path);
    if (p.ino != 0) out += path.empty() ? fmt::format(" inode {}", p.ino) : fmt::format(" (inode {})", p.ino);
    if (p.object) out += fmt::format(", object {} on ost{}", to_id(*p.object), p.ost);
    if (p.kind == "checksum" || (p.kind == "data-lost" && p.length > 0)) out += fmt::format(", {} bytes at offset {}", p.length, p.offset);
    out += ": " + p.detail;
    if (has_numbers(p)) out += fmt::format(" (is {}, should be {})", p.found, p.expected);
    if (p.repaired) out += "; repaired";
    else if (p.repairable) out += "; 'nacre fsck --repair' repairs it";
    return out;
  }
  nlohmann::ordered_json to_json(const wire::FsckProblemT& p) const {
    nlohmann::ordered_json j = {{"kind", p.kind}, {"detail", p.detail}, {"repairable", p.repairable}, {"repaired", p.repaired}};
    if (p.ino != 0) j["ino"] = p.ino;
    if (!p.path.empty()) j["path"] = std::string(as_text(p.path));
    if (!p.path.empty() && !mount_.empty()) j["mounted_path"] = place(p);
    if (p.object) j["object"] = fmt::format("{}", to_id(*p.object)), j["target"] = fmt::format("ost{}", p.ost);
    if (p.length != 0) j["offset"] = p.offset, j["length"] = p.length;
    if (has_numbers(p)) j["found"] = p.found, j["expected"] = p.expected;
    return j;
  }

  const bool json_;
  const std::string mount_;
  const bool bar_;
  bool drawn_ = false;
  Nanos shown_ = 0;
  Totals totals_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

// ---- asking

bool is_lost(Errc code) { return code == Errc::kUnavailable || code == Errc::kDisconnected || code == Errc::kDeadline || code == Errc::kTimedOut || code == Errc::kShutdown; }
bool is_later(Errc code) { return code == Errc::kRecovering || code == Errc::kRetryLater || code == Errc::kBusy; }

class Check {
 public:
  Check(const FsckArgs& o, config::Cluster cluster, std::string mount, uint64_t rate) : o_(o), cluster_(std::move(cluster)), rate_(rate), report_(o.common.json, std::move(mount)) {}

  int run() {
    auto connection = connect_mds(cluster_);
    if (!connection) return complain(connection.error());
    connection_ = std::move(*connection);
    connection_->be_patient(kPageTime);
    auto map = map_with_targets();
    if (!map) return end(map.error());
    if (!o_.scrub_only)
      for (Phase phase : {Phase::kNames, Phase::kInodes, Phase::kUsage})
        if (auto done = all_pages(phase, 0, 0); !done) return end(done.error());
    for (const auto& t : map->osts) {
      auto done = target(*t);
      if (!done && is_lost(done.error().code)) return end(done.error());
      if (!done) report_.unchecked(fmt::format("ost{}", t->id), fmt::format("it can't be checked to the end: {}", done.error().message()));
    }
    return report_.finish({{"names", rows_[Phase::kNames]}, {"inodes", rows_[Phase::kInodes]}, {"objects", rows_[Phase::kStrays]}, {"bytes_verified", bytes_}});
  }

 private:
  int end(const Error& e) {
    report_.clear();
    return complain(e);
  }
  /// The cluster map; targets that are just starting, or whose server just did, get the time to come back.
  Result<wire::ClusterMapT> map_with_targets() {
    const Nanos give_up = system_clock().boot() + kTargetWait;
    for (;;) {
      NACRE_TRY(auto map, call<rpc::Method::kMapGet>({}));
      const auto away = std::ranges::find_if(map.osts, [](const auto& t) { return !t->up && t->state != wire::kOstInactive; });
      if (away == map.osts.end() || system_clock().boot() > give_up) return map;
      report_.waiting(fmt::format("ost{} is down", (*away)->id));
      std::this_thread::sleep_for(std::chrono::nanoseconds(kRetryPause));
    }
  }
  Result<void> target(const wire::OstEntryT& t) {
    const std::string name = fmt::format("ost{}", t.id);
    const std::string_view rest = o_.scrub_only ? "its data" : "its objects and the sizes of files on it";
    if (t.state == wire::kOstInactive) return report_.unchecked(name, fmt::format("it is inactive, so {} could not be checked: activate it ('nacre ost activate {}') and check again", rest, name)), Result<void>();
    if (!t.up) return report_.unchecked(name, fmt::format("it is down, so {} could not be checked: start it ('nacre cluster start') and check again", rest)), Result<void>();
    if (!o_.scrub_only) NACRE_CHECK_OK(all_pages(Phase::kStrays, t.id, 0));
    return all_pages(Phase::kChecksums, t.id, t.used);
  }

  Result<void> all_pages(Phase phase, uint32_t ost, uint64_t total) {
    static const std::map<Phase, std::string> kTexts = {{Phase::kInodes, "inodes"}, {Phase::kNames, "names"}, {Phase::kUsage, "usage counters"}, {Phase::kStrays, "objects of"}, {Phase::kChecksums, "checksums of"}};
    const std::string what = phase == Phase::kStrays || phase == Phase::kChecksums ? fmt::format("{} ost{}", kTexts.at(phase), ost) : kTexts.at(phase);
    const bool bytes = phase == Phase::kChecksums;
    wire::FsckRequestT q;
    q.phase = static_cast<uint8_t>(phase);
    q.ost = ost;
    q.repair = o_.repair;
    q.budget = bytes ? std::clamp<uint64_t>(rate_ == 0 ? kBytesPerPage : rate_ / 2, MiB, kBytesPerPage) : kRowsPerPage;
    uint64_t done = 0;
    for (bool ended = false; !ended;) {
      const Nanos began = system_clock().boot();
      NACRE_TRY(auto page, call<rpc::Method::kFsck>(q));
      for (const auto& p : page.problems) report_.problem(*p);
      done += bytes ? page.bytes : page.checked;
      rows_[phase] += page.checked;
      bytes_ += page.bytes;
      report_.progress(what, done, bytes ? total : page.total, bytes);
      ended = page.end;
      q.cursor = std::move(page.cursor);
      if (bytes && rate_ > 0) pace(page.bytes, began);
    }
    return {};
  }
  /// Waits as long as `bytes` may take.
  void pace(uint64_t bytes, Nanos began) {
    const auto may = static_cast<Nanos>(static_cast<double>(bytes) / static_cast<double>(rate_) * static_cast<double>(kSecond));
    const Nanos left = began + may - system_clock().boot();
    if (left > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }

  /// Repeats until it is answered: pages can be asked again.
  template <rpc::Method M>
  Result<typename rpc::MethodTraits<M>::Reply> call(const typename rpc::MethodTraits<M>::Request& q) {
    const Nanos give_up = system_clock().boot() + kServerWait;
    for (;;) {
      Result<typename rpc::MethodTraits<M>::Reply> reply = Err(Errc::kDisconnected);
      if (!connection_) reconnect();
      if (connection_) reply = connection_->call<M>(q);
      if (reply || (!is_lost(reply.error().code) && !is_later(reply.error().code)) || system_clock().boot() > give_up) return reply;
      if (is_lost(reply.error().code)) connection_.reset();
      report_.waiting(reply.error().message());
      std::this_thread::sleep_for(std::chrono::nanoseconds(kRetryPause));
    }
  }
  void reconnect() {
    auto again = connect_mds(cluster_);
    if (!again) return;
    connection_ = std::move(*again);
    connection_->be_patient(kPageTime);
  }

  const FsckArgs& o_;
  const config::Cluster cluster_;
  const uint64_t rate_;
  Report report_;
  std::unique_ptr<Connection> connection_;
  std::map<Phase, uint64_t> rows_;
  uint64_t bytes_ = 0;
};

}  // namespace

int fsck(const FsckArgs& o) {
  uint64_t rate = 0;
  if (!o.rate.empty()) {
    auto parsed = parse_size(o.rate);
    if (!parsed || *parsed == 0) return complain(kUsage, fmt::format("'{}' is no rate: write bytes per second, like 100M", o.rate));
    rate = *parsed;
  }
  std::optional<MountLine> mount;
  if (!o.path.empty()) {
    mount = mount_around(o.path);
    if (!mount) return complain(Error(Errc::kNotOurs, fmt::format("{} lies in no Nacre mount", o.path)));
  }
  const bool from_mount = o.common.cluster.empty() && mount && mount->source.starts_with('/');
  auto cluster = load_named_cluster(from_mount ? mount->source : o.common.cluster);
  if (!cluster) return complain(cluster.error());
  std::string prefix;
  if (mount) {
    if (!shows_root(mount->point)) return complain(kUsage, fmt::format("{} does not answer or shows only a part of the filesystem: paths can't be told below it", mount->point));
    prefix = mount->point;
  } else {
    for (const MountLine& m : nacre_mounts())
      if (prefix.empty() && is_of(m, *cluster) && shows_root(m.point)) prefix = m.point;
  }
  return Check(o, std::move(*cluster), prefix == "/" ? "" : prefix, rate).run();
}
}  // namespace nacre::cli
