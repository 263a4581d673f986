// SPDX-License-Identifier: Apache-2.0
// A mount of the filesystem in memory for one test, over the transport and without the features that the test's parameter says.
// Skips where mounting is not possible. The ring needs fuse.enable_uring for the moment of mounting, and gives it back.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "client/fuse/front.h"
#include "tests/unit/client_fuse/memory_fs.h"

namespace nacre::test {

struct Mode {
  const char* name;
  const char* mask;
  bool ring = false;
  bool readdirplus = false;
};

class Mounted : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override;
  void TearDown() override;
  void set_up(Mode mode);
  std::string at(const std::string& name) const { return point_ + "/" + name; }
  /// Runs `fn` in a child process and returns its pid; the child exits with what fn returns. In it: system calls only.
  pid_t child(std::function<int()> fn);
  /// Exit status, 128 + signal, or -1 if it has not ended after `seconds` (then it is killed).
  int wait_child(pid_t pid, double seconds = 20);
  /// Waits for a condition, at most `seconds`.
  bool soon(std::function<bool()> fn, double seconds = 10);
  void make_file(const std::string& name, const std::string& content, mode_t mode = 0644);
  std::string content(const std::string& name);
  bool has(fuse::Feature f) const;

  std::string point_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<MemoryFs> fs_;
  std::shared_ptr<fuse::Notifier> notifier_;
  std::unique_ptr<fuse::Front> front_;
};

}  // namespace nacre::test
