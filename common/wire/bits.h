// SPDX-License-Identifier: Apache-2.0
// Flag bits of messages that are not enums of a schema.
#pragma once
#include <cstdint>

namespace nacre::wire {

/// SetattrRequest.valid
inline constexpr uint32_t kSetMode = 1u << 0, kSetUid = 1u << 1, kSetGid = 1u << 2, kSetSize = 1u << 3, kSetAtime = 1u << 4, kSetMtime = 1u << 5,
                          kSetAtimeNow = 1u << 6, kSetMtimeNow = 1u << 7, kSetCtimeNow = 1u << 8;
/// Attr.flags and InodeRecord.flags
inline constexpr uint32_t kHasAcl = 1u << 0, kHasDefaultAcl = 1u << 1, kHasCapability = 1u << 2, kOpenForWrite = 1u << 8;
/// Capability.mode
inline constexpr uint8_t kCapRead = 1, kCapWrite = 2;
/// HelloRequest.role
inline constexpr uint8_t kRoleClient = 1, kRoleMds = 2, kRoleOss = 3, kRoleAdmin = 4;
/// Object command kinds
inline constexpr uint8_t kCmdDestroy = 1, kCmdTruncate = 2, kCmdPunch = 3, kCmdZero = 4, kCmdAllocate = 5, kCmdSeal = 6, kCmdUnseal = 7;
/// OST states
inline constexpr uint8_t kOstActive = 0, kOstInactive = 1, kOstDraining = 2;

inline constexpr uint16_t kProtocolMin = 1, kProtocolMax = 1;

}  // namespace nacre::wire
