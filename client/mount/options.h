// SPDX-License-Identifier: Apache-2.0
// The command line of mount.nacre, as people and mount(8) write it. Pure: nothing is looked up.
#pragma once
#include <string>
#include <vector>

#include "common/base/error.h"

namespace nacre::mount {

struct Arguments {
  std::string source, mount_point;
  bool help = false, foreground = false, verbose = false, sloppy = false;

  // from the source HOST[:PORT][,HOST…]:/[SUB]; empty hosts = the source names a cluster file or directory
  std::vector<std::string> hosts;
  std::string subdir;                        ///< "" or absolute

  // from -o
  bool read_only = false;
  bool atime = true;
  bool readdirplus = false;
  bool supervise = true;                     ///< a parent mounts anew when the client dies; off with -f unless asked for
  uint32_t soft_seconds = 0;                 ///< 0 = wait for ever
  uint32_t ring_depth = 0;                   ///< 0 = the default
  std::string mask;                          ///< names separated by commas
  std::string key_file, cluster, log_file;
  std::vector<std::string> kernel_options;   ///< for mount(2), in order
};

/// Errors: kInval with a sentence.
Result<Arguments> parse_arguments(const std::vector<std::string>& argv, bool root);
std::string usage();   ///< one line
std::string manual();  ///< docs/man/mount.nacre.8.scd as plain text

/// "HOST" with the default port, "HOST:PORT" as it is; brackets around IPv6 addresses.
std::string with_port(const std::string& host, const std::string& default_port);
/// The port of "HOST:PORT", empty if there is none.
std::string port_of(const std::string& address);

}  // namespace nacre::mount
