// SPDX-License-Identifier: Apache-2.0
// The thread of a client that hears signals and answers `nacre client status|abort`.
// The first signal asks the kernel to unmount; if the mount is in use, it is detached: it vanishes from the tree now, and ends
// when its users have closed what they hold. Another signal ends it for them. Servers that don't answer hold nothing up: what
// waits for them fails, and if the metadata server stays away the connection ends, so that a signal is obeyed within seconds.
#pragma once
#include <signal.h>

#include <atomic>
#include <thread>

#include "client/core/filesystem.h"
#include "client/fuse/front.h"
#include "client/mount/control.h"

namespace nacre::mount {

class Ending {
 public:
  /// `device`: of the mount, for the control socket.
  Ending(fuse::Front& front, client::Filesystem& fs, const std::string& device);
  ~Ending();
  static sigset_t signals();
  /// A signal asked for the end.
  bool asked() const { return asked_.load(); }

 private:
  void run();
  void on_signal(int seen);
  void unmount();        ///< on its own thread: the kernel may first write back to servers that don't answer
  void hurry();          ///< every moment after the first signal
  fuse::Front& front_;
  client::Filesystem& fs_;
  ControlSocket control_;
  ControlHandlers handlers_;
  std::atomic<bool> asked_{false};
  Nanos asked_at_ = 0;
  bool cut_off_ = false;
  int stop_;
  std::thread unmounting_, thread_;
};

}  // namespace nacre::mount
