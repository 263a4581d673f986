// SPDX-License-Identifier: Apache-2.0
// `nacre mount|umount`: runs mount.nacre, and unmounts.
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tools/nacre/cluster.h"
#include "tools/nacre/commands.h"
#include "tools/nacre/output.h"

namespace nacre::cli {

int mount(const Mount& o) {
  std::string source = o.source;
  if (std::filesystem::exists(source)) source = std::filesystem::absolute(source).lexically_normal();
  std::vector<std::string> argv{sibling_program("mount.nacre"), source, std::filesystem::absolute(o.mountpoint).lexically_normal()};
  if (o.foreground) argv.push_back("-f");
  std::vector<std::string> options = o.options;
  if (!o.common.cluster.empty()) options.push_back("cluster=" + o.common.cluster);
  std::string joined;
  for (const auto& x : options) joined += (joined.empty() ? "" : ",") + x;
  if (!joined.empty()) {
    argv.push_back("-o");
    argv.push_back(joined);
  }
  std::vector<char*> args;
  for (auto& a : argv) args.push_back(a.data());
  args.push_back(nullptr);
  ::execvp(args[0], args.data());
  return complain(kFound, fmt::format("{} can't be run: {}", argv[0], std::strerror(errno)));
}

int umount(const Mount& o) {
  const std::string path = std::filesystem::absolute(o.mountpoint).lexically_normal();
  const int flags = (o.lazy ? MNT_DETACH : 0) | (o.force ? MNT_FORCE : 0);
  if (::umount2(path.c_str(), flags) == 0) return kOk;
  switch (errno) {
    case EBUSY: return complain(kFound, fmt::format("{} is busy: end what uses it (fuser -vm {} lists it), or detach it with 'nacre umount -l {}'", path, path, path));
    case EINVAL: return complain(kFound, fmt::format("{} is not a mount point", path));
    case EPERM: return complain(kFound, fmt::format("only root may unmount {}", path));
    default: return complain(kFound, fmt::format("{} can't be unmounted: {}", path, std::strerror(errno)));
  }
}
}  // namespace nacre::cli
