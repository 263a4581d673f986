// SPDX-License-Identifier: Apache-2.0
// Reads a cluster file. The only source that includes toml++. Every complaint says file:line, key, what was found there and
// what is allowed. Pure but for the text it is given; thread-safe.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <set>

#include <fmt/format.h>

#include "common/base/units.h"
#include "common/config/cluster.h"
#include "common/config/settings_table.h"

namespace nacre::config {
namespace {
constexpr size_t kMaxFile = 1 << 20;    // a thousand targets take about 150 KiB
constexpr size_t kMaxOsts = 2000;       // as layout::kMaxStripes
constexpr uint32_t kMaxOstId = 65'535;
constexpr size_t kMaxPools = 16;        // of one target
constexpr size_t kMaxPoolName = 15;
constexpr size_t kMaxClusterName = 63;
constexpr uint64_t kMinOstSize = 16 * MiB;
constexpr size_t kMaxShown = 60;        // bytes of a wrong value that a message repeats
constexpr uint64_t kStripeUnit = 64 * KiB;

/// A table of the file with the name it goes by in messages, such as "ost" for the elements of [[ost]].
struct Section {
  std::string_view name;
  const toml::table* table;
};

std::string describe(const toml::node& node) {
  auto clip = [](std::string s) { return s.size() > kMaxShown ? s.substr(0, kMaxShown) + "…" : s; };
  if (auto v = node.value_exact<std::string>()) return clip(written_text(*v));
  if (auto v = node.value_exact<int64_t>()) return fmt::format("the number {}", *v);
  if (auto v = node.value_exact<bool>()) return *v ? "true" : "false";
  if (auto v = node.value_exact<double>()) return fmt::format("the fraction {}", *v);
  if (node.is_table()) return "a section";
  if (node.is_array()) return "a list";
  return "a date or time";
}

bool is_word(std::string_view s, size_t longest) {
  if (s.empty() || s.size() > longest) return false;
  return std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  std::unexpected<Error> at(uint32_t line, std::string text) const { return Err(Errc::kConfig, fmt::format("{}:{}: {}", file_, line, text)); }
  std::unexpected<Error> at(const toml::node& node, std::string text) const { return at(node.source().begin.line, std::move(text)); }
  std::unexpected<Error> wrong(Section s, std::string_view key, const toml::node& node, std::string_view allowed) const {
    return at(node, fmt::format("[{}] {} is {}; allowed: {}", s.name, key, describe(node), allowed));
  }

  Result<void> check_keys(Section s) const {
    const auto known = key_names(s.name);
    for (auto&& [key, node] : *s.table) {
      const std::string_view name = key.str();
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      std::string help;
      for (std::string_view other : section_names()) {
        const auto theirs = key_names(other);
        if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) help = fmt::format("it belongs to [{}]", other);
      }
      if (auto near = nearest(name.substr(0, kMaxShown), known); !near.empty() && (help.empty() || edit_distance(name.substr(0, kMaxShown), near) <= 2)) help = fmt::format("did you mean '{}'?", near);
      if (help.empty()) help = fmt::format("known there: {}", fmt::join(known, ", "));
      return at(key.source().begin.line, fmt::format("[{}] has no key '{}'; {}", s.name, name.substr(0, kMaxShown), help));
    }
    return {};
  }

  /// The section as a table; nothing if the file doesn't have it.
  Result<std::optional<Section>> section(const toml::table& root, std::string_view name) const {
    const toml::node* node = root.get(name);
    if (node == nullptr) return std::nullopt;
    if (!node->is_table()) {
      if (name == "mds" && node->is_array()) return at(*node, "[[mds]] lists metadata servers; this version has exactly one: write [mds]");
      return at(*node, fmt::format("'{}' is {}; write it as a section: [{}]", name, describe(*node), name));
    }
    Section s{name, node->as_table()};
    NACRE_CHECK_OK(check_keys(s));
    return s;
  }

  Result<std::string> text(Section s, std::string_view key, std::optional<std::string> fallback, std::string_view allowed = "a text in double quotes") const {
    const toml::node* node = s.table->get(key);
    if (node == nullptr && fallback) return *fallback;
    if (node == nullptr) return at(*s.table, fmt::format("[{}] lacks the key '{}'; allowed: {}", s.name, key, allowed));
    auto value = node->value_exact<std::string>();
    if (!value || value->find('\0') != std::string::npos || (value->empty() && fallback != "")) return wrong(s, key, *node, allowed);
    return *value;
  }

  Result<uint64_t> number(Section s, std::string_view key, const toml::node& node, uint64_t min, uint64_t max, std::string_view allowed) const {
    auto value = node.value_exact<int64_t>();
    if (!value || *value < 0 || static_cast<uint64_t>(*value) < min || static_cast<uint64_t>(*value) > max) return wrong(s, key, node, allowed);
    return static_cast<uint64_t>(*value);
  }

  /// A size (parse = parse_size) or duration (parse_duration_ms): a number in the unit that is stored, or text with a unit.
  Result<uint64_t> quantity(Section s, std::string_view key, const toml::node& node, uint64_t min, uint64_t max, std::string_view allowed, Result<uint64_t> (*parse)(std::string_view)) const {
    auto words = node.value_exact<std::string>();
    if (!words) return number(s, key, node, min, max, allowed);
    // "30" could mean seconds or milliseconds, bytes or blocks: a text has to say.
    if (words->empty() || std::isdigit(static_cast<unsigned char>(words->back())) != 0 || words->back() == '.') return at(node, fmt::format("[{}] {} is {}, which has no unit; allowed: {}", s.name, key, describe(node), allowed));
    auto value = parse(*words);
    if (!value) return at(node, fmt::format("[{}] {}: {}; allowed: {}", s.name, key, value.error().detail, allowed));
    if (*value < min || *value > max) return wrong(s, key, node, allowed);
    return *value;
  }

  Result<std::string> address(Section s) const {
    static constexpr std::string_view kAllowed = "HOST:PORT, such as \"10.0.0.1:9001\"";
    NACRE_TRY(std::string value, text(s, "address", std::nullopt, kAllowed));
    const size_t colon = value.rfind(':');
    uint32_t port = 0;
    bool good = colon != std::string::npos && colon > 0 && colon <= 255;
    if (good) {
      auto [end, ec] = std::from_chars(value.data() + colon + 1, value.data() + value.size(), port);
      good = ec == std::errc() && end == value.data() + value.size() && port > 0 && port < 65'536 && value.find_first_of(" \t\n/") == std::string::npos;
    }
    if (!good) return wrong(s, "address", *s.table->get("address"), kAllowed);
    return value;
  }

  Result<std::vector<std::string>> pools(Section s) const {
    static constexpr std::string_view kAllowed = "a list of at most 16 names of 1-15 letters, digits, '-', '_' and '.', such as [\"ssd\"]";
    std::vector<std::string> out;
    const toml::node* node = s.table->get("pools");
    if (node == nullptr) return out;
    const toml::array* list = node->as_array();
    if (list == nullptr || list->size() > kMaxPools) return wrong(s, "pools", *node, kAllowed);
    for (const toml::node& element : *list) {
      auto name = element.value_exact<std::string>();
      if (!name || !is_word(*name, kMaxPoolName)) return wrong(s, "pools", element, kAllowed);
      if (std::find(out.begin(), out.end(), *name) != out.end()) return at(element, fmt::format("[{}] pools names '{}' twice", s.name, *name));
      out.push_back(*name);
    }
    return out;
  }

 private:
  const std::string& file_;
};

/// A target without `host` runs where its address says; every way to write this machine is "localhost".
std::string host_of_address(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with("127.") || host == "[::1]" || host == "localhost" ? "localhost" : host;
}

Result<void> read_cluster(const Reader& r, const toml::table& root, Cluster& c) {
  static const toml::table kNone;
  NACRE_TRY(auto found, r.section(root, "cluster"));
  Section s = found ? *found : Section{"cluster", &kNone};
  static constexpr std::string_view kName = "1-63 letters, digits, '-', '_' and '.'";
  NACRE_TRY(c.name, r.text(s, "name", "nacre", kName));
  if (!is_word(c.name, kMaxClusterName)) return r.wrong(s, "name", *s.table->get("name"), kName);
  if (const toml::node* node = s.table->get("id")) {
    auto id = node->value_exact<std::string>();
    auto uuid = id ? parse_uuid(*id) : Err(Errc::kConfig);
    if (!uuid) return r.wrong(s, "id", *node, "a UUID, such as \"6f1c0b52-7d0a-4d3e-9a57-0c1f2e3d4b5a\"");
    c.id = *uuid;
  }
  NACRE_TRY(c.key_file, r.text(s, "key", "key", "the path of a file"));
  NACRE_TRY(c.run_dir, r.text(s, "run", "run", "the path of a directory"));
  return {};
}

Result<void> read_mds(const Reader& r, const toml::table& root, Cluster& c) {
  NACRE_TRY(auto s, r.section(root, "mds"));
  if (!s) return r.at(1, "the section [mds] is missing; write [mds] with address = \"HOST:PORT\" and data = \"DIRECTORY\"");
  MdsServer m;
  NACRE_TRY(m.address, r.address(*s));
  NACRE_TRY(m.host, r.text(*s, "host", host_of_address(m.address), "the name of a machine"));
  NACRE_TRY(m.data, r.text(*s, "data", std::nullopt, "the path of a directory"));
  c.mds.push_back(std::move(m));
  return {};
}

Result<OstServer> read_ost(const Reader& r, Section s) {
  OstServer o;
  static constexpr std::string_view kId = "a whole number from 0 to 65535";
  const toml::node* id = s.table->get("id");
  if (id == nullptr) return r.at(*s.table, fmt::format("an [[ost]] lacks the key 'id'; allowed: {}", kId));
  NACRE_TRY(uint64_t number, r.number(s, "id", *id, 0, kMaxOstId, kId));
  o.id = static_cast<uint32_t>(number);
  NACRE_TRY(o.address, r.address(s));
  NACRE_TRY(o.host, r.text(s, "host", host_of_address(o.address), "the name of a machine"));
  NACRE_TRY(o.data, r.text(s, "data", std::nullopt, "the path of a directory"));
  NACRE_TRY(o.pools, r.pools(s));
  if (const toml::node* size = s.table->get("size")) {
    static constexpr std::string_view kSize = "a size from 16MiB to 1PiB, such as \"10TiB\", or 0 for the free space of the backing filesystem";
    NACRE_TRY(o.size, r.quantity(s, "size", *size, 0, 1024 * TiB, kSize, parse_size));
    if (o.size != 0 && o.size < kMinOstSize) return r.wrong(s, "size", *size, kSize);
  }
  return o;
}

Result<void> read_osts(const Reader& r, const toml::table& root, Cluster& c) {
  const toml::node* node = root.get("ost");
  if (node == nullptr) return {};
  const toml::array* list = node->as_array();
  if (list == nullptr) return r.at(*node, "[ost] has to be a list: write [[ost]] before each storage target");
  if (list->size() > kMaxOsts) return r.at(*node, fmt::format("{} storage targets are listed; at most {} are allowed", list->size(), kMaxOsts));
  std::set<uint32_t> ids;
  std::set<std::string> addresses{c.mds[0].address};
  std::set<std::pair<std::string, std::string>> places{{c.mds[0].host, c.mds[0].data}};
  for (const toml::node& element : *list) {
    if (!element.is_table()) return r.at(element, fmt::format("'ost' lists {}; write [[ost]] before each storage target", describe(element)));
    Section s{"ost", element.as_table()};
    NACRE_CHECK_OK(r.check_keys(s));
    NACRE_TRY(OstServer o, read_ost(r, s));
    if (!ids.insert(o.id).second) return r.at(element, fmt::format("storage target {} is listed twice; give each [[ost]] an id of its own", o.id));
    if (!addresses.insert(o.address).second) return r.at(element, fmt::format("storage target {} has the address {}, which another server has too; give each its own port", o.id, o.address));
    if (!places.insert({o.host, o.data}).second) return r.at(element, fmt::format("storage target {} has its data in {}, where another server on {} has its own; give each its own directory", o.id, o.data, o.host));
    c.osts.push_back(std::move(o));
  }
  return {};
}

Result<void> read_setting(const Reader& r, Section s, const SettingRow& row, const toml::node& node, Settings& out) {
  const std::string what = allowed(row);
  if (auto* flag = std::get_if<bool Settings::*>(&row.field)) {
    auto value = node.value_exact<bool>();
    if (!value) return r.wrong(s, row.name, node, what);
    out.*(*flag) = *value;
    return {};
  }
  if (auto* words = std::get_if<std::string Settings::*>(&row.field)) {
    auto value = node.value_exact<std::string>();
    const bool listed = row.words.empty() || (value && std::find(row.words.begin(), row.words.end(), *value) != row.words.end());
    if (!value || !listed || value->find('\0') != std::string::npos) return r.wrong(s, row.name, node, what);
    out.*(*words) = *value;
    return {};
  }
  auto number = std::get<uint64_t Settings::*>(row.field);
  if (row.kind == Kind::kCount) {
    NACRE_TRY(out.*number, r.number(s, row.name, node, row.min, row.max, what));
  } else {
    NACRE_TRY(out.*number, r.quantity(s, row.name, node, row.min, row.max, what, row.kind == Kind::kSize ? parse_size : parse_duration_ms));
  }
  return {};
}

Result<void> read_settings(const Reader& r, const toml::table& root, Settings& out) {
  for (std::string_view name : section_names()) {
    if (name == "cluster" || name == "ost") continue;
    NACRE_TRY(auto s, r.section(root, name));
    if (!s) continue;
    for (auto&& [key, node] : *s->table)
      if (const SettingRow* row = find_setting(name, key.str())) NACRE_CHECK_OK(read_setting(r, *s, *row, node, out));
  }
  return {};
}

/// Line of a setting for a rule that binds two of them.
std::unexpected<Error> rule(const Reader& r, const toml::table& root, std::string_view section, std::string_view key, std::string text) {
  const toml::node* node = root[section][key].node();
  return node != nullptr ? r.at(*node, std::move(text)) : r.at(1, std::move(text));
}

Result<void> check_rules(const Reader& r, const toml::table& root, const Settings& s) {
  if (2 * s.lease_keepalive > s.lease_term)
    return rule(r, root, "lease", root["lease"]["keepalive"] ? "keepalive" : "term", fmt::format("[lease] keepalive ({} ms) has to be at most half of [lease] term ({} ms), or one lost message would end a session", s.lease_keepalive, s.lease_term));
  if (3 * s.oss_heartbeat > s.mds_ost_timeout)
    return rule(r, root, root["oss"]["heartbeat"] ? "oss" : "mds", root["oss"]["heartbeat"] ? "heartbeat" : "ost_timeout", fmt::format("[oss] heartbeat ({} ms) has to be at most a third of [mds] ost_timeout ({} ms), or healthy targets would count as down", s.oss_heartbeat, s.mds_ost_timeout));
  if (s.layout_stripe_size % kStripeUnit != 0) return rule(r, root, "layout", "stripe_size", fmt::format("[layout] stripe_size ({} bytes) has to be a multiple of 64 KiB", s.layout_stripe_size));
  if (s.layout_small % kStripeUnit != 0) return rule(r, root, "layout", "small", fmt::format("[layout] small ({} bytes) has to be a multiple of 64 KiB", s.layout_small));
  return {};
}
}  // namespace

Result<Cluster> parse_cluster(std::string_view text, const std::string& file_name) {
  const Reader r(file_name);
  if (text.size() > kMaxFile) return Err(Errc::kConfig, fmt::format("{} has {} bytes; a cluster file has at most {}", file_name, text.size(), kMaxFile));
  toml::parse_result parsed = toml::parse(text, std::string_view(file_name));
  if (!parsed) return r.at(parsed.error().source().begin.line, fmt::format("this is no TOML: {}", parsed.error().description()));
  const toml::table& root = parsed.table();
  const auto sections = section_names();
  for (auto&& [key, node] : root) {
    if (std::find(sections.begin(), sections.end(), key.str()) != sections.end()) continue;
    const std::string name(key.str().substr(0, kMaxShown));
    const auto near = nearest(name, sections);
    const std::string help = near.empty() ? fmt::format("known: {}", fmt::join(sections, ", ")) : fmt::format("did you mean [{}]?", near);
    return r.at(key.source().begin.line, fmt::format("a cluster file has no section '{}'; {}", name, help));
  }
  Cluster c;
  c.file = file_name;
  NACRE_CHECK_OK(read_cluster(r, root, c));
  NACRE_CHECK_OK(read_mds(r, root, c));
  NACRE_CHECK_OK(read_osts(r, root, c));
  NACRE_CHECK_OK(read_settings(r, root, c.settings));
  NACRE_CHECK_OK(check_rules(r, root, c.settings));
  return c;
}
}  // namespace nacre::config
