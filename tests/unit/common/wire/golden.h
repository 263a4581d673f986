// SPDX-License-Identifier: Apache-2.0
// Golden bytes: files of hex digits under tests/golden that hold what a released format looks like. Tests run from the
// root of the repository. A difference means that the format changed: it needs a new version, not a new golden file.
#pragma once
#include <fstream>
#include <span>
#include <string>

#include <fmt/format.h>

namespace nacre::testing {

inline std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

/// The digits of tests/golden/NAME, lines starting with '#' and white space left out.
inline std::string golden(const std::string& name) {
  std::ifstream in("tests/golden/" + name);
  std::string out, line;
  while (std::getline(in, line)) {
    if (line.starts_with('#')) continue;
    for (char c : line)
      if (c != ' ' && c != '\t' && c != '\r') out.push_back(c);
  }
  return out;
}

}  // namespace nacre::testing
