// SPDX-License-Identifier: Apache-2.0
// What the two stress programs share: forked workers whose failures are told by a sentence, a shared stop flag, options.
// Workers end by returning from their function; one that hangs is ended by the alarm that its parent set for all.
#pragma once
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace nacre::posix {

using Problem = std::optional<std::string>;  ///< none: all as it must be

/// Memory seen by parent and forked children.
struct Shared {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> counts[8] = {};  ///< meaning is the program's
};

inline Shared* make_shared_page() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return new (memory) Shared();
}

/// Forked workers. A worker's problem is printed by itself; its exit status tells the parent.
class Workers {
 public:
  explicit Workers(unsigned seconds) : seconds_(seconds) {}
  void start(const std::string& name, const std::function<Problem()>& work) {
    std::fflush(stdout);
    auto pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker outlives an interrupted run
      alarm(seconds_);                   // SIGALRM ends the process: a hang becomes a failure
      auto problem = work();
      if (problem) fmt::print("{}: {}\n", name, *problem);
      std::fflush(stdout);
      _exit(problem ? 1 : 0);
    }
    running_.push_back({pid, name});
  }
  /// Waits for all; false if one failed, was killed or hung.
  bool all_well() {
    bool well = true;
    for (const auto& worker : running_) {
      int status = 0;
      waitpid(worker.pid, &status, 0);
      if (WIFSIGNALED(status)) fmt::print("{}: {}\n", worker.name, WTERMSIG(status) == SIGALRM ? fmt::format("no end within {} s", seconds_) : fmt::format("ended by signal {}", WTERMSIG(status)));
      well = well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    running_.clear();
    return well;
  }
  pid_t pid(size_t index) const { return running_[index].pid; }

 private:
  struct Worker {
    pid_t pid;
    std::string name;
  };
  unsigned seconds_;
  std::vector<Worker> running_;
};

inline std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    auto end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace nacre::posix
