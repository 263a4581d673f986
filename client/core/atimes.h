// SPDX-License-Identifier: Apache-2.0
// Access times that this client owes the metadata server. They travel with keepalives and closes; until the server has them
// they are laid over every attribute this client shows, so that a stat after a read is exact here at once. Thread-safe.
#pragma once
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "client/core/filesystem.h"

namespace nacre::client {

inline constexpr Nanos kRelatimeAge = 24 * 3600 * kSecond;
inline constexpr size_t kMaxPendingAtimes = 100'000;  ///< beyond it reads don't move atime until the next keepalive

/// The relatime rule of mount(8).
constexpr bool relatime_moves(Nanos atime, Nanos mtime, Nanos ctime, Nanos now) { return atime <= mtime || atime <= ctime || atime <= now - kRelatimeAge; }

class Atimes {
 public:
  bool add(Ino ino, Nanos atime);              ///< false = no room
  void forget(Ino ino);                        ///< an explicit time replaces it
  Nanos of(Ino ino) const;                     ///< 0 = nothing owed
  void overlay(wire::AttrT& attr) const;
  std::vector<wire::AtimeReport> pending(size_t most) const;
  void reported(const std::vector<wire::AtimeReport>& reports);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Nanos> owed_;
  std::atomic<size_t> count_{0};
};

}  // namespace nacre::client
