// SPDX-License-Identifier: Apache-2.0
// Runs rows of the POSIX tables, each in a fresh directory, and says what differs from the expectation.
// Every look (stat, content, dir …) at a relative path is repeated through the second mount: what one mount did, the other
// must show at once. One thread; changes uid, umask, working directory and limits of the process and restores them per row.
#pragma once
#include <string>

#include "tests/posix/context.h"
#include "tests/posix/table.h"

namespace nacre::posix {

struct RowResult {
  enum class Kind { kPassed, kFailed, kNotOffered } kind = Kind::kPassed;
  std::string message;  ///< of a failed row: step, what came, what was expected
  size_t checks = 0;    ///< expectations compared
};

class Runner {
 public:
  /// Both directories exist and are the same directory through two mounts (or twice the same path).
  Runner(std::string first, std::string second) : first_(std::move(first)), second_(std::move(second)) {}
  RowResult run(const Row& row, size_t number);

 private:
  std::string first_, second_;
};

}  // namespace nacre::posix
