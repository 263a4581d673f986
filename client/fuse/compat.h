// SPDX-License-Identifier: Apache-2.0
// What kernels and libfuse 3.14 differ in. Each feature is probed from the INIT request at mount (its flags, or the protocol's
// minor), can be hidden by `-o mask=`, and has a fallback that a person can read. Replies that libfuse has no words for are
// patched on their way out. Used by one thread until INIT was answered, constant afterwards.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/fuse/kernel.h"
#include "common/base/error.h"

namespace nacre::fuse {

enum class Feature : uint8_t { kMmap, kParallel, kEpoch, kUring, kKillPriv, kAcl, kSetxattrExt, kLargeIo, kTmpfile, kStatx, kCount };
inline constexpr size_t kFeatures = static_cast<size_t>(Feature::kCount);

/// One line of `nacre client status`.
struct FeatureState {
  std::string_view name;
  std::string_view what;      ///< what it is for
  std::string_view without;   ///< what is done without it
  std::string_view needs;     ///< what brings it
  bool offered = false;       ///< by this kernel
  bool masked = false;        ///< hidden by -o mask=
  bool active = false;
};

class Compat {
 public:
  Compat();
  /// Names separated by commas. Error: kInval names the features that can be masked.
  Result<void> mask(std::string_view names);
  /// Most bytes of one read or write; a multiple of 4 KiB.
  static constexpr uint32_t kMaxIo = 1024 * 1024;

  /// Reads the INIT request and hides masked features in it before libfuse sees it. Error: kVersion for a kernel too old.
  Result<void> on_init_request(std::span<std::byte> message);
  /// libfuse's init callback: what to want.
  void on_init(fuse_conn_info& connection, bool readdirplus) const;
  /// Adds to libfuse's INIT reply what it can't express.
  void patch_init_reply(fuse_init_out& reply);
  /// The kernel refused the ring, or it could not be set up: classic from now on.
  void give_up(Feature feature) { state(feature).active = false; }

  bool has(Feature feature) const { return states_[static_cast<size_t>(feature)].active; }
  uint32_t minor() const { return minor_; }
  uint32_t max_write() const { return max_write_; }
  std::span<const FeatureState> states() const { return states_; }

  /// FOPEN_* flags for a file opened with these O_* flags.
  uint32_t open_flags(uint32_t flags) const;
  /// Turns a SETXATTR request with the extended header into the one libfuse 3.14 reads: returns the message's new start and
  /// sets `kill_sgid`. A message too short is left alone.
  std::span<std::byte> plain_setxattr(std::span<std::byte> message, bool& kill_sgid) const;

 private:
  FeatureState& state(Feature f) { return states_[static_cast<size_t>(f)]; }
  std::array<FeatureState, kFeatures> states_;
  uint32_t minor_ = 0;
  uint32_t max_write_ = 0;
  uint64_t init_flags_ = 0;
};

}  // namespace nacre::fuse
