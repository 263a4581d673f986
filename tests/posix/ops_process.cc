// SPDX-License-Identifier: Apache-2.0
// What involves processes: locks, running programs, sockets, resource limits, waiting for the clock to move on.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <ctime>
#include <fstream>

#include <fmt/format.h>

#include "tests/posix/context.h"

namespace nacre::posix {
namespace {

// flock FD sh|ex|un (never waits)
Outcome op_flock(Context& context, const Words& words) {
  int how = words[1] == "sh" ? LOCK_SH : words[1] == "ex" ? LOCK_EX : LOCK_UN;
  return plain(flock(context.descriptor(words[0]), how | LOCK_NB));
}

struct flock range_of(const Words& words) {
  struct flock range{};
  range.l_type = static_cast<short>(words[1] == "r" ? F_RDLCK : words[1] == "w" ? F_WRLCK : F_UNLCK);
  range.l_whence = SEEK_SET;
  range.l_start = number(words[2]);
  range.l_len = number(words[3]);
  return range;
}

// lock FD r|w|u START LENGTH (process-owned, never waits)
Outcome op_lock(Context& context, const Words& words) {
  auto range = range_of(words);
  return plain(fcntl(context.descriptor(words[0]), F_SETLK, &range));
}

Outcome op_ofdlock(Context& context, const Words& words) {
  auto range = range_of(words);
  return plain(fcntl(context.descriptor(words[0]), F_OFD_SETLK, &range));
}

// getlock FD r|w START LENGTH -> "free" or "r|w START LENGTH" of what is in the way
Outcome op_getlock(Context& context, const Words& words) {
  auto range = range_of(words);
  if (fcntl(context.descriptor(words[0]), F_GETLK, &range) != 0) return failed();
  if (range.l_type == F_UNLCK) return read_value("free");
  return read_value(fmt::format("{} {} {}", range.l_type == F_RDLCK ? "r" : "w", range.l_start, range.l_len));
}

Outcome wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) < 0) return failed();
  if (WIFSIGNALED(status)) return read_value(fmt::format("signal {}", WTERMSIG(status)));
  constexpr int kExecFailed = 200;  // exit codes from here carry the errno of execve
  if (WEXITSTATUS(status) >= kExecFailed) return {WEXITSTATUS(status) - kExecFailed, {}};
  return read_value(fmt::format("exit {}", WEXITSTATUS(status)));
}

// exec PATH [ARGUMENT…] -> "exit N"
Outcome op_exec(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  auto child = fork();
  if (child < 0) return failed();
  if (child == 0) {
    std::vector<char*> arguments;
    for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(path.c_str(), arguments.data());
    _exit(200 + errno);
  }
  return wait_for(child);
}

// copybin PROGRAM PATH: a runnable copy (mode 0755)
Outcome op_copybin(Context& context, const Words& words) {
  std::ifstream in(words[0], std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  if (bytes.empty()) throw TableError("can't read " + words[0]);
  int fd = open(context.path(words[1]).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
  if (fd < 0) return failed();
  auto n = write(fd, bytes.data(), bytes.size());
  close(fd);
  return n == static_cast<ssize_t>(bytes.size()) ? Outcome{} : read_value("short copy");
}

Outcome op_connect(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {ENAMETOOLONG, {}};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto outcome = plain(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address));
  close(fd);
  return outcome;
}

// listen PATH as NAME
Outcome op_listen(Context& context, const Words& words) {
  auto path = context.path(words[0]);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {ENAMETOOLONG, {}};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 4) != 0) {
    auto outcome = failed();
    close(fd);
    return outcome;
  }
  context.keep_descriptor(words[2], fd);
  return {};
}

// limit BYTES: RLIMIT_FSIZE of this process, lifted at the end of the row by the runner
Outcome op_limit(Context&, const Words& words) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{static_cast<rlim_t>(number(words[0])), RLIM_INFINITY};
  return plain(setrlimit(RLIMIT_FSIZE, &limit));
}

// tick: until a time stamp taken by the filesystem is sure to differ from the ones before (coarse kernel clocks: 4 ms)
Outcome op_tick(Context&, const Words&) {
  constexpr timespec kTick{0, 12'000'000};
  nanosleep(&kTick, nullptr);
  return {};
}

constexpr Op kProcessOps[] = {
    {"flock", 2, 2, false, op_flock},     {"lock", 4, 4, false, op_lock},       {"ofdlock", 4, 4, false, op_ofdlock}, {"getlock", 4, 4, false, op_getlock},
    {"exec", 1, 4, false, op_exec},       {"copybin", 2, 2, false, op_copybin}, {"connect", 1, 1, false, op_connect}, {"listen", 3, 3, false, op_listen},
    {"limit", 1, 1, false, op_limit},     {"tick", 0, 0, false, op_tick},
};

}  // namespace

std::span<const Op> process_ops() { return kProcessOps; }

}  // namespace nacre::posix
