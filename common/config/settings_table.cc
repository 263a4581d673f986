// SPDX-License-Identifier: Apache-2.0
#include "common/config/settings_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/units.h"

namespace nacre::config {
namespace {
constexpr std::string_view kSections[] = {"cluster", "mds", "ost", "lease", "oss", "client", "layout", "rpc", "log"};

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t bar = text.find('|');
    out.push_back(text.substr(0, bar));
    text = bar == std::string_view::npos ? std::string_view() : text.substr(bar + 1);
  }
  return out;
}

// Which Kind a row's type and unit make.
constexpr Kind kind_u64(std::string_view unit) { return unit == "bytes" ? Kind::kSize : Kind::kCount; }
constexpr Kind kind_ms(std::string_view) { return Kind::kDuration; }
constexpr Kind kind_text(std::string_view) { return Kind::kText; }
constexpr Kind kind_flag(std::string_view) { return Kind::kFlag; }

std::vector<SettingRow> make_rows() {
  std::vector<SettingRow> rows;
#define NACRE_SETTING(section, name, type, def, unit, min, max, live, doc)                                                           \
  rows.push_back({#section, #name, kind_##type(unit), &Settings::section##_##name,                                                  \
                  kind_##type(unit) == Kind::kText ? split_words(unit) : std::vector<std::string_view>{}, min, max, live, doc});
#include "common/config/settings.def"
#undef NACRE_SETTING
  return rows;
}

constexpr KeyRow kKeys[] = {
#define NACRE_KEY(section, name, type, presence, doc) {#section, #name, type, presence, doc},
#include "common/config/keys.def"
#undef NACRE_KEY
};

std::string written_duration(uint64_t ms) {
  static constexpr std::pair<uint64_t, const char*> kUnits[] = {{86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}};
  for (auto [unit, name] : kUnits)
    if (ms >= unit && ms % unit == 0) return fmt::format("\"{}{}\"", ms / unit, name);
  return fmt::format("\"{}ms\"", ms);
}

std::string unquoted(std::string text) {
  std::erase(text, '"');
  return text;
}
}  // namespace

std::span<const SettingRow> setting_rows() {
  static const std::vector<SettingRow> rows = make_rows();
  return rows;
}

const SettingRow* find_setting(std::string_view section, std::string_view name) {
  for (const SettingRow& r : setting_rows())
    if (r.section == section && r.name == name) return &r;
  return nullptr;
}

std::span<const KeyRow> key_rows() { return kKeys; }

std::vector<std::string_view> section_names() { return {std::begin(kSections), std::end(kSections)}; }

std::vector<std::string_view> key_names(std::string_view section) {
  std::vector<std::string_view> out;
  for (const KeyRow& k : kKeys)
    if (k.section == section) out.push_back(k.name);
  for (const SettingRow& r : setting_rows())
    if (r.section == section) out.push_back(r.name);
  return out;
}

std::string written_size(uint64_t bytes) {
  static constexpr std::pair<uint64_t, const char*> kUnits[] = {{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}};
  for (auto [unit, name] : kUnits)
    if (bytes >= unit && bytes % unit == 0) return fmt::format("\"{}{}\"", bytes / unit, name);
  return fmt::format("{}", bytes);
}

std::string written_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += {'\\', c};
    else if (u < 0x20 || u == 0x7f) out += fmt::format("\\u{:04x}", u);
    else out += c;
  }
  return out + "\"";
}

std::string written(const SettingRow& row, const Settings& settings) {
  if (auto* text = std::get_if<std::string Settings::*>(&row.field)) return written_text(settings.*(*text));
  if (auto* flag = std::get_if<bool Settings::*>(&row.field)) return settings.*(*flag) ? "true" : "false";
  const uint64_t value = settings.*std::get<uint64_t Settings::*>(row.field);
  switch (row.kind) {
    case Kind::kSize: return written_size(value);
    case Kind::kDuration: return written_duration(value);
    default: return fmt::format("{}", value);
  }
}

std::string allowed(const SettingRow& row) {
  switch (row.kind) {
    case Kind::kCount: return fmt::format("a whole number from {} to {}", row.min, row.max);
    case Kind::kSize: return fmt::format("a size from {} to {}, as text with a unit or as a number of bytes", unquoted(written_size(row.min)), unquoted(written_size(row.max)));
    case Kind::kDuration: return fmt::format("a duration from {} to {}, as text with a unit or as a number of milliseconds", unquoted(written_duration(row.min)), unquoted(written_duration(row.max)));
    case Kind::kFlag: return "true or false";
    case Kind::kText: break;
  }
  if (row.words.empty()) return "a text in double quotes";
  std::string out;
  for (size_t i = 0; i < row.words.size(); ++i)
    out += fmt::format("{}\"{}\"", i == 0 ? "" : i + 1 == row.words.size() ? " or " : ", ", row.words[i]);
  return out;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table of optimal string alignment.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t distance = std::max<size_t>(2, name.size() / 2) + 1;  // further away is another word
  for (std::string_view c : candidates) {
    const size_t d = edit_distance(name, c);
    if (d < distance) distance = d, best = c;
  }
  return best;
}
}  // namespace nacre::config
