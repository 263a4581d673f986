// SPDX-License-Identifier: Apache-2.0
#include "common/base/units.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace nacre {
namespace {
struct Number { double value; std::string_view rest; };

Result<Number> leading_number(std::string_view text, const char* what) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double value = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (ec != std::errc() || value < 0 || !std::isfinite(value)) return Err(Errc::kInval, fmt::format("'{}' is no {}: write a number and a unit, such as 64K or 1.5TiB for sizes, 30s or 7d for times", text, what));
  std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return Number{value, rest};
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
  NACRE_TRY(Number n, leading_number(text, "size"));
  std::string unit;
  for (char c : n.rest) unit.push_back(upper(c));
  if (unit.size() == 3 && unit.ends_with("IB")) unit = unit.substr(0, 1);
  if (unit.size() == 2 && unit[1] == 'B') unit = unit.substr(0, 1);
  static constexpr std::string_view kUnits = "BKMGTPE";
  size_t power = unit.empty() ? 0 : kUnits.find(unit);
  if (unit.size() > 1 || power == std::string_view::npos) return Err(Errc::kInval, fmt::format("'{}' has the unknown unit '{}': use K, M, G, T, P or E (all binary)", text, n.rest));
  // Whole numbers are exact beyond 2^53; only a fraction goes through floating point.
  uint64_t whole = 0;
  auto [end, ec] = std::from_chars(text.data() + text.find_first_not_of(' '), text.data() + text.size(), whole);
  bool fraction = ec != std::errc() || (end < text.data() + text.size() && *end == '.');
  const long double bytes = (fraction ? static_cast<long double>(n.value) : static_cast<long double>(whole)) * static_cast<long double>(uint64_t{1} << (10 * power));
  if (bytes > 9223372036854775807.0L) return Err(Errc::kInval, fmt::format("'{}' is larger than 2^63-1 bytes", text));
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t i = 0;
  double v = static_cast<double>(bytes);
  while (v >= 1024 && i < 6) v /= 1024, ++i;
  if (i == 0) return fmt::format("{} B", bytes);
  std::string s = fmt::format("{:.1f}", v);
  if (s.ends_with(".0")) s.resize(s.size() - 2);
  return s + " " + kNames[i];
}

Result<uint64_t> parse_duration_ms(std::string_view text) {
  NACRE_TRY(Number n, leading_number(text, "duration"));
  double ms = 0;
  if (n.rest.empty() || n.rest == "s") ms = 1000;
  else if (n.rest == "ms") ms = 1;
  else if (n.rest == "m" || n.rest == "min") ms = 60'000;
  else if (n.rest == "h") ms = 3'600'000;
  else if (n.rest == "d") ms = 86'400'000;
  else if (n.rest == "w") ms = 7 * 86'400'000.0;
  else return Err(Errc::kInval, fmt::format("'{}' has the unknown unit '{}': use ms, s, m, h, d or w", text, n.rest));
  const double total = n.value * ms;
  if (total > 9.2e18 / 1e6) return Err(Errc::kInval, fmt::format("'{}' is too long", text));
  return static_cast<uint64_t>(total);
}
}  // namespace nacre
