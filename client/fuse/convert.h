// SPDX-License-Identifier: Apache-2.0
// The core's attributes in the kernel's structs. Pure functions. Timeouts are zero everywhere: nothing is cached.
#pragma once
#include "client/core/filesystem.h"
#include "client/fuse/kernel.h"

namespace nacre::fuse {

/// st_blksize: what programs take for their buffers. Each read or write is a trip to the servers, so it is larger than a page;
/// much more would cost small reads the pages they don't fill.
inline constexpr uint32_t kPreferredIo = 64 * 1024;
/// Inode numbers are never used twice, so one generation is enough.
inline constexpr uint64_t kNodeGeneration = 1;

fuse_attr to_kernel(const client::Attr& a);
fuse_attr_out attr_out(const client::Attr& a);
fuse_entry_out entry_out(const client::Attr& a, uint64_t nodeid);
kernel::StatxOut statx_out(const client::Attr& a);
/// The kernel's SETATTR in the core's terms; `valid` holds FATTR_* bits.
client::SetAttr to_set_attr(const fuse_setattr_in& in);
/// "1700000000.000000001": seconds since the epoch UTC.
std::string format_time(Nanos t);
/// DT_* of a directory entry.
uint32_t dirent_type(schema::FileType t);

}  // namespace nacre::fuse
