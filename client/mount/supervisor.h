// SPDX-License-Identifier: Apache-2.0
// The small parent of a client: it stays while its child serves the mount, and when the child dies (killed, crashed, an error
// of the device) makes another one that mounts at the same place. What the dead one had open answers ENOTCONN; the dead mount
// stays until its successor can serve, so that nobody writes into the directory below it. It ends with a mount that was
// unmounted, with SIGTERM (handed on to the child), and with a first mount that fails. One thread, no locks.
#pragma once
#include <functional>
#include <string>

#include "client/mount/daemon.h"
#include "common/base/clock.h"

namespace nacre::mount {

/// How long to wait before child number `failures` in a row is made: at once, then 1, 2, 4 … 60 s.
Nanos restart_pause(unsigned failures);
/// A child that lived for so long was no failure in a row.
inline constexpr Nanos kLongLife = 60 * kSecond;

class Supervisor {
 public:
  /// Serves the mount in a child and returns its exit status; `again`: after the death of another one.
  using Serve = std::function<int(Daemon&, bool again)>;
  Supervisor(Daemon& parent, std::string point, bool keep_terminal) : parent_(parent), point_(std::move(point)), keep_terminal_(keep_terminal) {}
  /// Returns the exit status when there is nothing more to serve. In the children it does not return.
  int run(const Serve& serve);

 private:
  void launch(const Serve& serve, bool again);
  int watch();                            ///< until the child has ended; its wait status
  int wait_first(int status);             ///< what a first child that never got ready said
  bool pause(Nanos length);               ///< false: told to end, or the dead mount has been unmounted
  void on_report();
  void pass_on(int signal);
  void remove_dead();

  Daemon& parent_;
  std::string point_;
  bool keep_terminal_;
  int signals_ = -1, report_ = -1;
  pid_t child_ = -1;
  int said_ = -1;                         ///< what the child reported: 0 = serves
  bool ever_ready_ = false, ending_ = false;
};

}  // namespace nacre::mount
