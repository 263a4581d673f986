// SPDX-License-Identifier: Apache-2.0
// Real servers for tests: a cluster file with free loopback ports in a temporary directory, one nacre-mds and N nacre-oss as
// processes, each of which can be stopped, killed, paused and started again. What was started is ended by its pid, also when
// a test fails. The programs are looked for in NACRE_BIN, else in ../bin beside the test. One thread.
#pragma once
#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/core/filesystem.h"
#include "common/config/cluster.h"

namespace nacre::test {

struct ClusterOptions {
  uint32_t osts = 2;
  uint64_t ost_size = 2 * GiB;                        ///< sparse
  std::function<void(config::Settings&)> settings;    ///< changes before the cluster file is written
};

class Cluster {
 public:
  /// Makes the directory, formats, starts nothing.
  static Result<std::unique_ptr<Cluster>> make(ClusterOptions options);
  ~Cluster();                                         ///< kills what runs and removes the directory (kept if NACRE_KEEP is set)

  /// server: "mds", "ost0", …
  Result<void> start(const std::string& server);
  Result<void> start_all();
  Result<void> stop(const std::string& server);       ///< SIGTERM, waits for the end; an exit status ≠ 0 is an error
  void kill9(const std::string& server);
  void pause(const std::string& server);              ///< SIGSTOP
  void resume(const std::string& server);             ///< SIGCONT
  bool running(const std::string& server);
  std::string log(const std::string& server) const;   ///< what it has logged so far
  std::vector<std::string> servers() const;
  const config::Cluster& config() const { return config_; }
  const std::string& directory() const { return dir_; }
  Result<client::MountOptions> mount_options() const { return client::options_from_cluster(config_); }

 private:
  Cluster() = default;
  std::vector<std::string> command(const std::string& server) const;
  Result<pid_t> launch(std::vector<std::string> argv, const std::string& log) const;
  std::string dir_, file_;
  config::Cluster config_;
  std::map<std::string, pid_t> pids_;
};

}  // namespace nacre::test
