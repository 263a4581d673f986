// SPDX-License-Identifier: Apache-2.0
// The door beside the mount: a local socket through which `nacre client status|abort` reach a client whose servers don't answer,
// when nothing that goes through the mount itself would come back. The socket is abstract, so a killed client leaves nothing
// behind, and is named after the mount's device number, which /proc/self/mountinfo tells without touching the mount.
// One question per connection: a line, answered with "ok " or "error " and text until the end.
#pragma once
#include <functional>
#include <string>

#include "common/base/error.h"

namespace nacre::mount {

struct ControlHandlers {
  std::function<std::string()> status;   ///< JSON
  std::function<size_t()> abort;         ///< returns how many operations it failed
};

/// The serving side; answers on the thread that calls answer(). Status for everybody who sees the mount, abort for root and for
/// whom the client runs as.
class ControlSocket {
 public:
  ControlSocket() = default;
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  Result<void> open(const std::string& device);
  int fd() const { return fd_; }         ///< readable when somebody asks; -1 if not open
  void answer(const ControlHandlers& handlers);

 private:
  int fd_ = -1;
};

enum class ControlQuestion { kStatus, kAbort };
/// Asks the client of the mount with this device number, which must run as `owner`. Errors: kDisconnected (no client there), kPerm.
Result<std::string> ask_client(const std::string& device, uint32_t owner, ControlQuestion question);

}  // namespace nacre::mount
