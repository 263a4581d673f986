// SPDX-License-Identifier: Apache-2.0
// The tables of the POSIX suite (*.tbl): rows of steps in a small language, described in tests/posix/README.md.
// A row is one line `name [VAR=a,b …]: step; step; …`, continued on indented lines; every combination of its
// variables is a row of its own. A malformed table throws std::runtime_error: it ends the start-up, never a run.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nacre::posix {

using Words = std::vector<std::string>;

struct Step {
  std::string text;                 ///< as written, for messages
  std::string who;                  ///< identity after '@'; empty: root
  bool in_child = false;            ///< run in a forked process (record locks belong to processes)
  Words words;                      ///< operation and arguments, macros expanded
  std::optional<std::string> want;  ///< what follows "->"; none: plain success
};

struct Row {
  std::string name;
  std::string where;  ///< "file:line"
  std::vector<Step> steps;
};

constexpr size_t kMaxRowsPerTable = 10'000;  // a product of variables larger than this is a slip of the pen

/// Rows of one table file, in order. Throws std::runtime_error naming file and line.
std::vector<Row> load_table(const std::string& path);

/// Replaces every `<text*N>` by N copies of text (`\0` is the zero byte).
std::string expand_repeats(std::string_view word);

}  // namespace nacre::posix
