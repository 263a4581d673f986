// SPDX-License-Identifier: Apache-2.0
// The rows of settings.def and keys.def as data: what the parser, the dump and docs/configuration.md are made from.
// Immutable, thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/config/cluster.h"

namespace nacre::config {

enum class Kind { kCount, kSize, kDuration, kText, kFlag };

struct SettingRow {
  std::string_view section, name;
  Kind kind;
  std::variant<uint64_t Settings::*, std::string Settings::*, bool Settings::*> field;
  std::vector<std::string_view> words;  ///< allowed texts; empty = any
  uint64_t min = 0, max = 0;            ///< of numbers
  std::string_view live;                ///< "restart" or "live"
  std::string_view sentence;
};
std::span<const SettingRow> setting_rows();
const SettingRow* find_setting(std::string_view section, std::string_view name);

struct KeyRow { std::string_view section, name, type, presence, sentence; };
std::span<const KeyRow> key_rows();

/// Every section a cluster file may have, in the order of the dump and the document.
std::vector<std::string_view> section_names();
/// What the section may hold: keys.def first, then settings.def.
std::vector<std::string_view> key_names(std::string_view section);

/// A value as it is written in a cluster file: 1000, "1s", "256MiB", "buffered", true. Parses to exactly the same value.
std::string written(const SettingRow& row, const Settings& settings);
std::string written_size(uint64_t bytes);
std::string written_text(std::string_view text);
/// "a duration from 10ms to 1m, such as \"1s\""
std::string allowed(const SettingRow& row);

/// Edits (insert, remove, replace, swap of neighbours) that turn `a` into `b`.
size_t edit_distance(std::string_view a, std::string_view b);
/// The candidate nearest to `name`, empty if none is near enough to be meant.
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

std::string configuration_document();  ///< text of docs/configuration.md

}  // namespace nacre::config
