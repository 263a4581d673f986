// SPDX-License-Identifier: Apache-2.0
// What /proc says about the process behind a request. The kernel names it by the id of the calling thread, which waits in its
// system call meanwhile, so what is read is what counts. Reading /proc touches memory only and never waits. Any thread.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace nacre::fuse {

/// Supplementary groups. Error: kAccess if the process can't be seen from here (another pid namespace) or is gone.
Result<std::vector<uint32_t>> groups_of(int32_t pid);

/// True if the thread is about to die of a signal, or is gone: then nobody waits for the answer. A signal with a handler, an
/// ignored or a blocked one doesn't count: local filesystems don't interrupt their calls for it either.
bool is_dying(int32_t pid);

/// True if a signal waits for the thread that it doesn't block or ignore: then a wait for a lock ends.
bool has_signal(int32_t pid);

/// The parsers, for tests: `status` is the text of /proc/PID/status.
Result<std::vector<uint32_t>> parse_groups(std::string_view status);
bool parse_dying(std::string_view status);
bool parse_signal(std::string_view status);

}  // namespace nacre::fuse
