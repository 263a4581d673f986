// SPDX-License-Identifier: Apache-2.0
// lock_stress: locks that wait, between processes on every mount: counters under flock and under record locks, readers beside
// a writer, deadlocks (EDEADLK), waiters whose holder dies, waits ended by a signal, a lock free at once after close().
// Each scenario has its own files; a hang is ended by an alarm and counted as a failure.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>

#include "tests/posix/stress.h"

namespace nacre::posix {
namespace {

constexpr unsigned kScenarioSeconds = 120;
constexpr size_t kWorkersPerMount = 3;

struct Options {
  std::vector<std::string> dirs;
  unsigned rounds = 100;
  std::string only;
};

Problem failed(const char* what) { return fmt::format("{}: {}", what, std::strerror(errno)); }

// A descriptor that closes itself; opening must succeed (the scenario's own files).
class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) {
      fmt::print("open {}: {}\n", path, std::strerror(errno));
      std::fflush(stdout);
      _exit(1);
    }
  }
  ~File() { shut(); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  void shut() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

int record(int fd, int command, short type, off_t start, off_t length) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = start;
  range.l_len = length;
  return fcntl(fd, command, &range);
}

// Read, add one, write: loses counts unless the caller holds the lock.
Problem add_one(int fd, off_t at) {
  uint64_t value = 0;
  if (pread(fd, &value, sizeof value, at) != sizeof value) return failed("read of the counter");
  ++value;
  if (pwrite(fd, &value, sizeof value, at) != sizeof value) return failed("write of the counter");
  return {};
}

void make_counters(const std::string& path, size_t count) {
  File file(path, O_CREAT | O_TRUNC | O_RDWR);
  std::vector<uint64_t> zeros(count, 0);
  if (write(file.fd(), zeros.data(), count * sizeof(uint64_t)) < 0) std::abort();
}

Problem counters_are(const std::string& path, size_t count, uint64_t expected_sum) {
  File file(path, O_RDONLY);
  std::vector<uint64_t> values(count);
  if (read(file.fd(), values.data(), count * sizeof(uint64_t)) < 0) return failed("read");
  uint64_t sum = 0;
  for (auto value : values) sum += value;
  return sum == expected_sum ? Problem{} : fmt::format("{} counts of {} arrived: two held the lock at once", sum, expected_sum);
}

Problem workers_well(Workers& workers) { return workers.all_well() ? Problem{} : Problem("a worker failed, see above"); }

// A token through a pipe: what one process has done, another may rely on.
struct Signal {
  int ends[2];
  Signal() {
    if (pipe(ends) != 0) std::abort();
  }
  ~Signal() {
    close(ends[0]);
    close(ends[1]);
  }
  void give() const {
    char token = 'x';
    if (::write(ends[1], &token, 1) != 1) std::abort();
  }
  void await() const {
    char token;
    while (::read(ends[0], &token, 1) < 0 && errno == EINTR) {
    }
  }
};

struct Scene {
  const Options& options;
  std::string name;  // of the scene's directory
  std::string path(size_t mount, const char* file) const { return options.dirs[mount % options.dirs.size()] + "/" + name + "/" + file; }
  size_t mounts() const { return options.dirs.size(); }
};

Problem flock_counter(const Scene& scene) {
  make_counters(scene.path(0, "n"), 1);
  make_counters(scene.path(0, "lock"), 1);
  Workers workers(kScenarioSeconds);
  auto count = kWorkersPerMount * scene.mounts();
  for (size_t i = 0; i < count; ++i) {
    workers.start(fmt::format("flock worker {}", i), [&, i]() -> Problem {
      File counter(scene.path(i, "n"), O_RDWR);
      for (unsigned round = 0; round < scene.options.rounds; ++round) {
        File lock(scene.path(i, "lock"), O_RDWR);
        if (flock(lock.fd(), LOCK_EX) != 0) return failed("flock");
        if (auto problem = add_one(counter.fd(), 0)) return problem;
        if (round % 2 == 0 && flock(lock.fd(), LOCK_UN) != 0) return failed("unlock");  // else freed by close
      }
      return {};
    });
  }
  if (auto problem = workers_well(workers)) return problem;
  return counters_are(scene.path(0, "n"), 1, count * scene.options.rounds);
}

Problem record_counters(const Scene& scene) {
  constexpr size_t kCounters = 5;
  make_counters(scene.path(0, "n"), kCounters);
  Workers workers(kScenarioSeconds);
  auto count = kWorkersPerMount * scene.mounts();
  for (size_t i = 0; i < count; ++i) {
    workers.start(fmt::format("record worker {}", i), [&, i]() -> Problem {
      std::mt19937 random(static_cast<unsigned>(i));
      File file(scene.path(i, "n"), O_RDWR);
      for (unsigned round = 0; round < scene.options.rounds; ++round) {
        auto at = static_cast<off_t>(random() % kCounters * sizeof(uint64_t));
        if (record(file.fd(), F_SETLKW, F_WRLCK, at, sizeof(uint64_t)) != 0) return failed("lock");
        if (auto problem = add_one(file.fd(), at)) return problem;
        if (record(file.fd(), F_SETLKW, F_UNLCK, at, sizeof(uint64_t)) != 0) return failed("unlock");
      }
      return {};
    });
  }
  if (auto problem = workers_well(workers)) return problem;
  return counters_are(scene.path(0, "n"), kCounters, count * scene.options.rounds);
}

// Writers keep two values equal under an exclusive lock; readers under a shared one must never see them differ.
Problem readers_and_writers(const Scene& scene) {
  make_counters(scene.path(0, "n"), 2);
  Workers workers(kScenarioSeconds);
  for (size_t i = 0; i < 2 * scene.mounts(); ++i) {
    bool writes = i < scene.mounts();
    workers.start(fmt::format("{} {}", writes ? "writer" : "reader", i), [&, i, writes]() -> Problem {
      File file(scene.path(i, "n"), O_RDWR);
      for (unsigned round = 0; round < scene.options.rounds; ++round) {
        if (record(file.fd(), F_SETLKW, writes ? F_WRLCK : F_RDLCK, 0, 16) != 0) return failed("lock");
        uint64_t pair[2];
        if (pread(file.fd(), pair, sizeof pair, 0) != sizeof pair) return failed("read");
        if (pair[0] != pair[1]) return fmt::format("a half-done change was seen: {} and {}", pair[0], pair[1]);
        if (writes) {
          auto next = pair[0] + 1;
          if (pwrite(file.fd(), &next, 8, 0) != 8 || pwrite(file.fd(), &next, 8, 8) != 8) return failed("write");
        }
        if (record(file.fd(), F_SETLK, F_UNLCK, 0, 16) != 0) return failed("unlock");
      }
      return {};
    });
  }
  return workers_well(workers);
}

// A ring of processes, each holding byte i and asking for byte i+1: exactly one must be told EDEADLK, the others get their lock.
Problem deadlock(const Scene& scene, size_t ring) {
  make_counters(scene.path(0, "n"), 8);
  auto* shared = make_shared_page();
  Signal holds, go;
  Workers workers(kScenarioSeconds);
  for (size_t i = 0; i < ring; ++i) {
    workers.start(fmt::format("ring member {}", i), [&, i]() -> Problem {
      File file(scene.path(i, "n"), O_RDWR);
      if (record(file.fd(), F_SETLK, F_WRLCK, static_cast<off_t>(i), 1) != 0) return failed("first lock");
      holds.give();
      go.await();
      int rc = record(file.fd(), F_SETLKW, F_WRLCK, static_cast<off_t>((i + 1) % ring), 1);
      if (rc != 0 && errno != EDEADLK) return failed("second lock");
      shared->counts[rc == 0 ? 0 : 1].fetch_add(1);
      return {};  // ending frees what it holds, so the next in the ring goes on
    });
  }
  for (size_t i = 0; i < ring; ++i) holds.await();
  for (size_t i = 0; i < ring; ++i) go.give();
  if (auto problem = workers_well(workers)) return problem;
  if (shared->counts[1] != 1) return fmt::format("{} of {} were told EDEADLK, expected 1", shared->counts[1].load(), ring);
  return {};
}

Problem deadlock_of_two(const Scene& scene) { return deadlock(scene, 2); }
Problem deadlock_of_three(const Scene& scene) { return deadlock(scene, 3); }

// A waiter must get the lock when its holder is killed.
Problem holder_dies(const Scene& scene, bool with_flock) {
  make_counters(scene.path(0, "n"), 1);
  for (size_t mount = 0; mount < scene.mounts(); ++mount) {
    Signal held;
    Workers holder(kScenarioSeconds), waiter(kScenarioSeconds / 4);
    auto take = [&](int fd, bool wait) { return with_flock ? flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) : record(fd, wait ? F_SETLKW : F_SETLK, F_WRLCK, 0, 0); };
    holder.start("holder", [&]() -> Problem {
      File file(scene.path(mount, "n"), O_RDWR);
      if (take(file.fd(), false) != 0) return failed("lock");
      held.give();
      pause();
      return {};
    });
    held.await();
    waiter.start("waiter", [&]() -> Problem {
      File file(scene.path(mount + 1, "n"), O_RDWR);
      if (take(file.fd(), false) == 0) return Problem("the lock was given to two");
      held.give();
      return take(file.fd(), true) != 0 ? failed("waiting for the lock") : Problem{};
    });
    held.await();
    kill(holder.pid(0), SIGKILL);
    auto problem = workers_well(waiter);
    waitpid(holder.pid(0), nullptr, 0);
    if (problem) return fmt::format("holder on mount {}: {}", mount, *problem);
  }
  return {};
}

Problem flock_holder_dies(const Scene& scene) { return holder_dies(scene, true); }
Problem record_holder_dies(const Scene& scene) { return holder_dies(scene, false); }

// Ends a wait by a timer that fires again and again: the first signal may come before the wait has begun.
Problem wait_until_interrupted(const std::function<int()>& wait) {
  struct sigaction action{};
  action.sa_handler = [](int) {};  // without SA_RESTART
  sigaction(SIGUSR1, &action, nullptr);
  timer_t timer;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGUSR1;
  itimerspec every{{0, 50'000'000}, {0, 50'000'000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &every, nullptr) != 0) return failed("timer");
  int rc = wait(), error = errno;
  timer_delete(timer);
  if (rc == 0) return Problem("the lock was given although another holds it");
  return error == EINTR ? Problem{} : fmt::format("the wait ended with {}, expected EINTR", std::strerror(error));
}

// A wait ended by a signal gives EINTR, and must not take the lock later, when the holder lets go.
Problem interrupted_wait(const Scene& scene, bool with_flock) {
  make_counters(scene.path(0, "n"), 1);
  auto take = [&](int fd, bool wait) { return with_flock ? flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) : record(fd, wait ? F_SETLKW : F_SETLK, F_WRLCK, 0, 0); };
  Signal held, interrupted, freed, checked;
  Workers workers(kScenarioSeconds / 4);
  workers.start("holder", [&]() -> Problem {
    File file(scene.path(0, "n"), O_RDWR);
    if (take(file.fd(), false) != 0) return failed("lock");
    held.give();
    interrupted.await();
    file.shut();
    freed.give();
    return {};
  });
  workers.start("waiter", [&]() -> Problem {
    held.await();
    File file(scene.path(1, "n"), O_RDWR);
    auto problem = wait_until_interrupted([&] { return take(file.fd(), true); });
    interrupted.give();
    checked.await();  // stays open and alive meanwhile
    return problem;
  });
  freed.await();
  Problem problem;
  {
    File file(scene.path(0, "n"), O_RDWR);
    if (take(file.fd(), false) != 0) problem = "after the holder's end the lock is not free: the ended wait took it";
  }
  checked.give();
  auto others = workers_well(workers);
  return problem ? problem : others;
}

Problem interrupted_flock(const Scene& scene) { return interrupted_wait(scene, true); }
Problem interrupted_record(const Scene& scene) { return interrupted_wait(scene, false); }

// What close() returned from is free: a lock that does not wait must succeed at once, also through another mount.
Problem free_after_close(const Scene& scene) {
  make_counters(scene.path(0, "n"), 1);
  for (unsigned round = 0; round < scene.options.rounds; ++round) {
    File second(scene.path(round + 1, "n"), O_RDWR);
    {
      File first(scene.path(round, "n"), O_RDWR);
      if (flock(first.fd(), LOCK_EX | LOCK_NB) != 0) return fmt::format("round {}: a free lock was refused: {}", round, std::strerror(errno));
      if (flock(second.fd(), LOCK_SH | LOCK_NB) == 0) return fmt::format("round {}: the lock was given to two", round);
    }
    if (flock(second.fd(), LOCK_EX | LOCK_NB) != 0) return fmt::format("round {}: refused although its holder was closed: {}", round, std::strerror(errno));
  }
  return {};
}

// Many wait at once and each holds the lock for a moment: wake-ups must be prompt, not by polling.
Problem prompt_wake_up(const Scene& scene) {
  constexpr size_t kWaiters = 16;
  constexpr timespec kHold{0, 5'000'000};
  constexpr double kLimitSeconds = 4;  // 16 × 5 ms, fifty times over
  make_counters(scene.path(0, "n"), 1);
  timespec begin{}, end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  Workers workers(kScenarioSeconds);
  for (size_t i = 0; i < kWaiters; ++i) {
    workers.start(fmt::format("waiter {}", i), [&, i]() -> Problem {
      File file(scene.path(i, "n"), O_RDWR);
      if (flock(file.fd(), LOCK_EX) != 0) return failed("flock");
      nanosleep(&kHold, nullptr);
      return {};
    });
  }
  if (auto problem = workers_well(workers)) return problem;
  clock_gettime(CLOCK_MONOTONIC, &end);
  auto seconds = static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
  return seconds < kLimitSeconds ? Problem{} : fmt::format("{} waiters took {:.1f} s", kWaiters, seconds);
}

struct Scenario {
  const char* name;
  Problem (*run)(const Scene&);
};

constexpr Scenario kScenarios[] = {
    {"flock_counter", flock_counter},           {"record_counters", record_counters},       {"readers_and_writers", readers_and_writers},
    {"deadlock_of_two", deadlock_of_two},       {"deadlock_of_three", deadlock_of_three},   {"flock_holder_dies", flock_holder_dies},
    {"record_holder_dies", record_holder_dies}, {"interrupted_flock", interrupted_flock},   {"interrupted_record", interrupted_record},
    {"free_after_close", free_after_close},     {"prompt_wake_up", prompt_wake_up},
};

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr, "lock_stress: {}\nusage: lock_stress --dirs DIR[,DIR…] [--rounds N] [--only SCENARIO]\n", problem);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    std::string word = argv[i];
    if (i + 1 >= argc) usage(word + " needs a value");
    if (word == "--dirs") options.dirs = split_list(argv[i + 1]);
    else if (word == "--rounds") options.rounds = static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 0));
    else if (word == "--only") options.only = argv[i + 1];
    else usage("unknown option " + word);
  }
  if (options.dirs.empty()) usage("--dirs is missing");
  return options;
}

std::string directory_to_remove;

void on_stop(int) {
  std::error_code error;  // the process ends here, nothing else runs on
  std::filesystem::remove_all(directory_to_remove, error);
  _exit(1);
}

int run(const Options& options) {
  Scene scene{options, fmt::format("lock_stress.{}", getpid())};
  directory_to_remove = options.dirs[0] + "/" + scene.name;
  if (mkdir(directory_to_remove.c_str(), 0755) != 0) usage(fmt::format("{}: {}", directory_to_remove, std::strerror(errno)));
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, on_stop);
  unsigned passed = 0, failures = 0;
  for (const auto& scenario : kScenarios) {
    if (!options.only.empty() && options.only != scenario.name) continue;
    auto problem = scenario.run(scene);
    if (problem) fmt::print("FAIL {}: {}\n", scenario.name, *problem);
    ++(problem ? failures : passed);
    std::fflush(stdout);
  }
  std::error_code error;
  std::filesystem::remove_all(directory_to_remove, error);
  fmt::print("{} passed, {} failed\n", passed, failures);
  return failures == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace nacre::posix

int main(int argc, char** argv) { return nacre::posix::run(nacre::posix::parse(argc, argv)); }
