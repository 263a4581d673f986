// SPDX-License-Identifier: Apache-2.0
#include "tools/nacre/output.h"

#include <cstdio>
#include <ctime>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/units.h"
#include "tools/nacre/commands.h"

namespace nacre::cli {

Table::Table(std::vector<std::string> header, std::vector<size_t> right) : right_(std::move(right)) { rows_.push_back(std::move(header)); }
void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void Table::print() const {
  std::vector<size_t> width;
  for (const auto& r : rows_) {
    width.resize(std::max(width.size(), r.size()));
    for (size_t i = 0; i < r.size(); ++i) width[i] = std::max(width[i], r[i].size());
  }
  for (const auto& r : rows_) {
    std::string line;
    for (size_t i = 0; i < r.size(); ++i) {
      const bool is_right = std::find(right_.begin(), right_.end(), i) != right_.end();
      const std::string pad(width[i] - r[i].size(), ' ');
      line += is_right ? pad + r[i] : r[i] + pad;
      if (i + 1 < r.size()) line += "  ";
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    fmt::print("{}\n", line);
  }
}

void print_json(nlohmann::ordered_json fields) {
  nlohmann::ordered_json out;
  out["version"] = 1;
  for (auto& [k, v] : fields.items()) out[k] = v;
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int complain(int exit_code, const std::string& message) {
  fmt::print(stderr, "nacre: {}\n", message);
  return exit_code;
}

int complain(const Error& error) {
  switch (error.code) {
    case Errc::kUnavailable:
    case Errc::kDisconnected:
    case Errc::kDeadline:
    case Errc::kTimedOut: return complain(kUnreachable, error.message());
    case Errc::kConfig: return complain(kUsage, error.detail.empty() ? error.message() : error.detail);
    default: return complain(kFound, error.message());
  }
}

std::string iso_time(int64_t ns) {
  const time_t seconds = static_cast<time_t>(ns >= 0 ? ns / kSecond : (ns - kSecond + 1) / kSecond);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:09} UTC", text, ns - static_cast<int64_t>(seconds) * kSecond);
}

std::string size_or_bytes(uint64_t bytes, bool human) { return human ? format_size(bytes) : std::to_string(bytes); }

std::string printable(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size();) {
    const auto c = static_cast<unsigned char>(name[i]);
    const size_t length = c < 0x80 ? 1 : c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 ? 2 : 0;
    bool good = length > 0 && c < 0xF5 && i + length <= name.size() && c >= 0x20 && c != 0x7F && c != '\\';
    for (size_t k = 1; good && k < length; ++k) good = (static_cast<unsigned char>(name[i + k]) & 0xC0) == 0x80;
    if (good) {
      out.append(name.substr(i, length));
      i += length;
    } else {
      out += fmt::format("\\x{:02x}", c);
      ++i;
    }
  }
  return out;
}

}  // namespace nacre::cli
