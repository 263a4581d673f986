// SPDX-License-Identifier: Apache-2.0
// The FUSE protocol as this client speaks it: the system's headers, and what newer kernels added since (Debian 12 ships the
// header of protocol 7.38, the kernels it meets speak up to 7.45). Layouts are the kernel's ABI (include/uapi/linux/fuse.h).
#pragma once
#define FUSE_USE_VERSION 35
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>

#include <cstddef>
#include <cstdint>

namespace nacre::fuse::kernel {

// INIT flags, numbered over flags and flags2
inline constexpr uint64_t kInitDirectIoAllowMmap = 1ull << 36;  ///< 7.39: MAP_SHARED on handles that bypass the page cache
inline constexpr uint64_t kInitOverIoUring = 1ull << 41;        ///< 7.42

// minors of protocol 7 that brought what no INIT flag announces
inline constexpr uint32_t kMinorTmpfile = 37;
inline constexpr uint32_t kMinorParallelWrites = 38;
inline constexpr uint32_t kMinorStatx = 39;
inline constexpr uint32_t kMinorIncEpoch = 44;

// operations
inline constexpr uint32_t kOpTmpfile = 51;
inline constexpr uint32_t kOpStatx = 52;
inline constexpr uint32_t kOpCopyFileRange64 = 53;

// notifications
inline constexpr int32_t kNotifyIncEpoch = 8;

struct SxTime { int64_t sec; uint32_t nsec; int32_t reserved; };
struct Statx {
  uint32_t mask, blksize;
  uint64_t attributes;
  uint32_t nlink, uid, gid;
  uint16_t mode, spare0;
  uint64_t ino, size, blocks, attributes_mask;
  SxTime atime, btime, ctime, mtime;
  uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
  uint64_t spare2[14];
};
static_assert(sizeof(Statx) == 256);
struct StatxIn { uint32_t getattr_flags, reserved; uint64_t fh; uint32_t flags, mask; };
struct StatxOut { uint64_t attr_valid; uint32_t attr_valid_nsec, flags; uint64_t spare[2]; Statx stat; };
static_assert(sizeof(StatxIn) == 24 && sizeof(StatxOut) == 288);
struct CopyFileRangeOut { uint64_t bytes; };

// FUSE over io_uring (7.42)
inline constexpr uint32_t kRingRegister = 1, kRingCommitAndFetch = 2;
struct RingEntry { uint64_t flags, commit_id; uint32_t payload_size, pad; uint64_t reserved; };
struct RingHeader { std::byte in_out[128]; std::byte op_in[128]; RingEntry entry; };
struct RingCommand { uint64_t flags, commit_id; uint16_t qid; uint8_t pad[6]; };
static_assert(sizeof(RingHeader) == 288 && sizeof(RingCommand) == 24);

}  // namespace nacre::fuse::kernel
