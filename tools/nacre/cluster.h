// SPDX-License-Identifier: Apache-2.0
// What cluster_init and cluster_run share: the servers of a host and how their processes are found and run.
#pragma once
#include <string>
#include <vector>

#include "common/config/cluster.h"

namespace nacre::cli {

struct Server {
  std::string role;     ///< "mds" or "ost"
  std::string target;   ///< "mds" or "ost0"
  uint32_t ost = 0;
  std::string host, address, data;
  std::string pid_file, log_file;
};

/// Servers that run on `host`; empty = those of this machine's host name and of "localhost".
std::vector<Server> servers_of(const config::Cluster& cluster, const std::string& host);
/// All servers of the cluster.
std::vector<Server> all_servers(const config::Cluster& cluster);
/// The program's path: beside this executable, else from PATH.
std::string sibling_program(const std::string& name);
Result<std::string> read_text(const std::string& path);
Result<void> stop_server(const Server& server);  ///< cleanly; waits for its end
/// Starts it if it is down, and waits until it serves. Errors: kIo, kUnavailable.
Result<void> start_server(const Server& server, const config::Cluster& cluster);
std::vector<std::string> server_command(const Server& server, const config::Cluster& cluster);
/// Runs the server's program with extra arguments until it exits. Error: what it printed.
Result<void> run_to_end(const Server& server, const config::Cluster& cluster, std::vector<std::string> extra);

}  // namespace nacre::cli
