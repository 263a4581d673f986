// SPDX-License-Identifier: Apache-2.0
// Becoming a daemon in a way that the caller learns the outcome: the process that was started stays until its child says that
// the mount is usable, or why not, and exits accordingly. Before any thread is started.
#pragma once
#include <string>

namespace nacre::mount {

class Daemon {
 public:
  /// Forks; returns in the child. The parent never returns: it exits with 0 after ready(), else with the status of failed(), or
  /// with `broken` if the child ended without a word.
  void detach(int broken);
  /// Lets the parent exit with 0, and goes on without terminal.
  void ready();
  /// Says it on stderr and ends this process (and the parent) with `status`.
  [[noreturn]] void failed(const std::string& text, int status);

 private:
  int pipe_ = -1;
};

}  // namespace nacre::mount
