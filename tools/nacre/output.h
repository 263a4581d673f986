// SPDX-License-Identifier: Apache-2.0
// What all subcommands print with: aligned tables, JSON with a version, error sentences.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/error.h"

namespace nacre::cli {

/// Columns aligned by width; those named in `right` are right-aligned. Lines are never wrapped.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::vector<size_t> right = {});
  void row(std::vector<std::string> cells);
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

/// Prints one JSON object with "version": 1 first.
void print_json(nlohmann::ordered_json fields);
/// "nacre: <message>" on stderr; returns the exit code that fits the error.
int complain(const Error& error);
int complain(int exit_code, const std::string& message);
std::string iso_time(int64_t ns);       ///< "2026-11-30 18:59:01.123456789 UTC"
std::string size_or_bytes(uint64_t bytes, bool human);
/// Bytes of a name as text; control characters, backslashes and bytes that are no UTF-8 as \xNN.
std::string printable(std::string_view name);

}  // namespace nacre::cli
