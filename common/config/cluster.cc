// SPDX-License-Identifier: Apache-2.0
// Finding, loading and writing cluster files. Reading their text is parse.cc.
#include "common/config/cluster.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "common/config/settings_table.h"

namespace nacre::config {
namespace {
namespace fs = std::filesystem;
constexpr const char* kDefaultFile = "/etc/nacre/cluster.toml";
constexpr const char* kEnvironment = "NACRE_CLUSTER";

std::string below(const fs::path& dir, const std::string& path) {
  return fs::path(path).is_absolute() ? fs::path(path).lexically_normal().string() : (dir / path).lexically_normal().string();
}

void dump_servers(std::string& out, const Cluster& c) {
  for (const MdsServer& m : c.mds) out += fmt::format("\n[mds]\nhost = {}\naddress = {}\ndata = {}\n", written_text(m.host), written_text(m.address), written_text(m.data));
}

void dump_settings(std::string& out, std::string_view section, const Settings& settings) {
  const Settings defaults;
  for (const SettingRow& row : setting_rows()) {
    if (row.section != section) continue;
    const std::string value = written(row, settings);
    const bool changed = value != written(row, defaults);
    out += fmt::format("{}{} = {}  # {}\n", changed ? "" : "# ", row.name, value, row.sentence);
  }
}

void dump_osts(std::string& out, const Cluster& c) {
  for (const OstServer& o : c.osts) {
    out += fmt::format("\n[[ost]]\nid = {}\nhost = {}\naddress = {}\ndata = {}\n", o.id, written_text(o.host), written_text(o.address), written_text(o.data));
    if (!o.pools.empty()) {
      out += "pools = [";
      for (size_t i = 0; i < o.pools.size(); ++i) out += (i ? ", " : "") + written_text(o.pools[i]);
      out += "]\n";
    }
    if (o.size != 0) out += fmt::format("size = {}\n", written_size(o.size));
  }
}
}  // namespace

Result<std::string> find_cluster_file(const std::string& named) {
  std::string path = named;
  std::string how = "named";
  if (path.empty()) {
    const char* env = std::getenv(kEnvironment);
    path = env != nullptr && *env != '\0' ? env : kDefaultFile;
    how = env != nullptr && *env != '\0' ? "named by NACRE_CLUSTER" : "used when neither --cluster nor NACRE_CLUSTER names one";
  }
  std::error_code ec;
  if (fs::is_directory(path, ec)) path = (fs::path(path) / "cluster.toml").string();
  if (!fs::exists(path, ec)) return Err(Errc::kConfig, fmt::format("{}, the cluster file {}, does not exist: make a cluster with 'nacre cluster init', or name its directory with --cluster", path, how));
  return fs::absolute(path).lexically_normal().string();
}

Result<Cluster> load_cluster(const std::string& file) {
  const fs::path path = fs::absolute(file).lexically_normal();
  std::ifstream in(path, std::ios::binary);
  std::error_code ec;
  if (!in || fs::is_directory(path, ec)) return Err(Errc::kConfig, fmt::format("the cluster file {} can't be read: {}", path.string(), fs::is_directory(path, ec) ? "it is a directory" : std::strerror(errno)));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (in.bad()) return Err(Errc::kConfig, fmt::format("reading the cluster file {} failed", path.string()));
  NACRE_TRY(Cluster c, parse_cluster(text, path.string()));
  const fs::path dir = path.parent_path();
  c.key_file = below(dir, c.key_file);
  c.run_dir = below(dir, c.run_dir);
  for (MdsServer& m : c.mds) m.data = below(dir, m.data);
  for (OstServer& o : c.osts) o.data = below(dir, o.data);
  return c;
}

std::string dump_cluster(const Cluster& c) {
  std::string out = "# Cluster file of Nacre. docs/configuration.md explains every key; commented settings show their defaults.\n\n[cluster]\n";
  out += fmt::format("name = {}\n", written_text(c.name));
  if (c.id != std::array<uint8_t, 16>{}) out += fmt::format("id = \"{}\"\n", format_uuid(c.id));
  out += fmt::format("key = {}\nrun = {}\n", written_text(c.key_file), written_text(c.run_dir));
  dump_servers(out, c);
  dump_settings(out, "mds", c.settings);
  dump_osts(out, c);
  for (std::string_view section : section_names()) {
    if (section == "cluster" || section == "mds" || section == "ost") continue;
    out += fmt::format("\n[{}]\n", section);
    dump_settings(out, section, c.settings);
  }
  return out;
}

std::string format_uuid(std::span<const uint8_t> id) {
  std::string out;
  for (size_t i = 0; i < id.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", id[i]);
  }
  return out;
}

Result<std::array<uint8_t, 16>> parse_uuid(std::string_view text) {
  auto wrong = [&] { return Err(Errc::kInval, fmt::format("'{}' is no UUID: write 32 hex digits as 8-4-4-4-12", text.substr(0, 64))); };
  std::array<uint8_t, 16> out{};
  if (text.size() != 36) return wrong();
  size_t digit = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (c != '-') return wrong();
      continue;
    }
    const int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (v < 0) return wrong();
    out[digit / 2] = static_cast<uint8_t>(out[digit / 2] << 4 | v);
    ++digit;
  }
  return out;
}
}  // namespace nacre::config
