// SPDX-License-Identifier: Apache-2.0
// The ioctl through which commands of ordinary users ask the cluster: on any open file or directory of a mount, so that the
// kernel proves the caller's uid, gid and groups and nobody needs the key. FUSE hands over fixed-size arguments below 16 KiB:
// a longer answer is fetched in pages by repeating the call on the same descriptor with a growing offset.
#pragma once
#include <sys/ioctl.h>

#include <cstdint>

namespace nacre::fuse {

inline constexpr uint32_t kIoctlMagic = 0x4E416331;  // "NAc1"
inline constexpr uint32_t kIoctlData = 16000;
/// Not a method of the servers: answered by the client itself with a JSON text about it (features, transport, session, servers).
inline constexpr uint16_t kIoctlClientStatus = 0xFFFF;

struct IoctlCall {
  uint32_t magic = kIoctlMagic;
  uint16_t method = 0;   ///< rpc::Method number; only those of kUserMethods are served
  uint16_t status = 0;   ///< out: Errc number; then `data` holds `size` bytes of detail
  uint32_t offset = 0;   ///< in: first byte of the answer wanted; 0 = run the request, else the kept answer of the descriptor goes on
  uint32_t total = 0;    ///< out: bytes of the whole answer
  uint32_t size = 0;     ///< in: bytes of request body in `data`; out: bytes of answer in `data`
  uint32_t reserved = 0;
  uint8_t data[kIoctlData] = {};
};
static_assert(sizeof(IoctlCall) < 16384);

inline constexpr unsigned long kIoctlRequest = _IOWR('N', 1, IoctlCall);

}  // namespace nacre::fuse
