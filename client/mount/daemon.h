// SPDX-License-Identifier: Apache-2.0
// Becoming a daemon in a way that whoever started it learns the outcome: a process that was started stays until the one it made
// says that the mount is usable, or why not. Two such steps may follow each other: command, supervisor, client. Before any
// thread is started.
#pragma once
#include <sys/types.h>

#include <string>

namespace nacre::mount {

class Daemon {
 public:
  Daemon() = default;
  /// The end of a pipe through which ready() and failed() report one byte.
  explicit Daemon(int pipe, bool keep_terminal) : pipe_(pipe), keep_terminal_(keep_terminal) {}

  /// Forks; returns in the child. The parent never returns: it exits with 0 after ready(), else with the status of failed(), or
  /// with `broken` if the child ended without a word.
  void detach(int broken);
  /// Lets the parent know, and goes on without terminal.
  void ready();
  /// Says it on stderr and in the log, and ends this process with `status`, of which the parent hears.
  [[noreturn]] void failed(const std::string& text, int status);
  /// The log is a file by now: failed() writes there too.
  void log_too() { logging_ = true; }
  /// Ends this process and those that wait for it with `status`, without a word.
  [[noreturn]] void end(int status);

 private:
  int pipe_ = -1;
  bool keep_terminal_ = false, logging_ = false;
};

}  // namespace nacre::mount
