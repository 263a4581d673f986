// SPDX-License-Identifier: Apache-2.0
// dir_stress: lists a large directory through every mount while other processes create, rename and delete in it. Entries that
// existed all the time must appear exactly once in every listing, no name twice, no name that nobody made (POSIX readdir
// leaves only entries that come or go during the listing open), and telldir/seekdir must lead back to the same place.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <unordered_set>

#include "tests/posix/stress.h"

namespace nacre::posix {
namespace {

struct Options {
  std::vector<std::string> dirs;
  uint64_t entries = 100'000;
  unsigned rounds = 4, readers = 1, changers = 1, limit_seconds = 600;  // readers and changers per mount
};

constexpr size_t kNameDigits = 7;       // up to 10 million lasting entries
constexpr size_t kMarksPerListing = 16; // positions kept with telldir

std::string lasting(uint64_t index) { return fmt::format("s{:0{}}", index, kNameDigits); }

Problem failed(const char* what, const std::string& path) { return fmt::format("{} {}: {}", what, path, std::strerror(errno)); }

Problem make_entries(const std::string& directory, uint64_t begin, uint64_t end) {
  int at = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return failed("open", directory);
  for (auto i = begin; i < end; ++i) {
    int fd = openat(at, lasting(i).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return failed("create", lasting(i));
    close(fd);
  }
  close(at);
  return {};
}

// Creates, renames and deletes; every name is used once in the whole run, so that a name listed twice is always wrong.
Problem change(const std::string& directory, const std::string& prefix, Shared& shared) {
  for (uint64_t i = 0; !shared.stop; ++i) {
    auto name = fmt::format("{}/{}_{}", directory, prefix, i), renamed = name + "r";
    bool make_directory = i % 5 == 0;
    int rc = make_directory ? mkdir(name.c_str(), 0755) : open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (rc < 0) return failed("create", name);
    if (!make_directory) close(rc);
    if (i % 2 == 0 && rename(name.c_str(), renamed.c_str()) != 0) return failed("rename", name);
    const auto& now = i % 2 == 0 ? renamed : name;
    if ((make_directory ? rmdir(now.c_str()) : unlink(now.c_str())) != 0) return failed("remove", now);
    shared.counts[0].fetch_add(1, std::memory_order_relaxed);
  }
  return {};
}

struct Mark {
  long position;
  std::string next_lasting;  // the first lasting name that followed
};

class Listing {
 public:
  Listing(const std::string& directory, uint64_t entries, uint64_t seed) : directory_(directory), seen_(entries, false), random_(seed) {}

  Problem check() {
    DIR* stream = opendir(directory_.c_str());
    if (stream == nullptr) return failed("opendir", directory_);
    auto problem = read_all(stream);
    if (!problem) problem = complete();
    if (!problem) problem = seek_back(stream);
    closedir(stream);
    return problem;
  }

 private:
  static bool is_lasting(const char* name) { return name[0] == 's'; }

  Problem read_all(DIR* stream) {
    bool mark_wanted = false;
    uint64_t listed = 0;
    for (;;) {
      auto position = telldir(stream);
      errno = 0;
      auto* entry = readdir(stream);
      if (entry == nullptr) return errno != 0 ? failed("readdir", directory_) : Problem{};
      if (mark_wanted && marks_.size() < kMarksPerListing) {
        marks_.push_back({position, ""});
        mark_wanted = false;
      }
      if (auto problem = take(entry->d_name)) return problem;
      if (is_lasting(entry->d_name)) {
        for (auto mark = marks_.rbegin(); mark != marks_.rend() && mark->next_lasting.empty(); ++mark) mark->next_lasting = entry->d_name;
      }
      if (random_() % std::max<uint64_t>(1, seen_.size() / kMarksPerListing) == 0) mark_wanted = true;
      ++listed;
      if (listed > seen_.size() * 4 + 1'000'000) return fmt::format("the listing does not end: {} entries so far", listed);
    }
  }

  Problem take(const std::string& name) {
    if (name == "." || name == "..") return dots_.insert(name).second ? Problem{} : fmt::format("{} listed twice", name);
    if (!is_lasting(name.c_str())) {
      if (name[0] != 'c') return fmt::format("an entry that nobody made: {}", name);
      return others_.insert(name).second ? Problem{} : fmt::format("{} listed twice", name);
    }
    auto index = std::strtoull(name.c_str() + 1, nullptr, 10);
    if (index >= seen_.size()) return fmt::format("an entry that nobody made: {}", name);
    if (seen_[index]) return fmt::format("{} listed twice", name);
    seen_[index] = true;
    return {};
  }

  Problem complete() const {
    uint64_t missing = 0, first = 0;
    for (uint64_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i]) continue;
      if (missing++ == 0) first = i;
    }
    if (missing > 0) return fmt::format("{} of {} lasting entries are missing, first {}", missing, seen_.size(), lasting(first));
    return dots_.size() == 2 ? Problem{} : Problem(". or .. is missing");
  }

  Problem seek_back(DIR* stream) const {
    for (const auto& mark : marks_) {
      if (mark.next_lasting.empty()) continue;  // nothing lasting followed
      seekdir(stream, mark.position);
      auto* entry = readdir(stream);
      while (entry != nullptr && !is_lasting(entry->d_name)) entry = readdir(stream);
      std::string found = entry == nullptr ? "the end" : entry->d_name;
      if (found != mark.next_lasting) return fmt::format("seekdir to a position before {} leads to {}", mark.next_lasting, found);
    }
    return {};
  }

  std::string directory_;
  std::vector<bool> seen_;
  std::unordered_set<std::string> others_, dots_;
  std::vector<Mark> marks_;
  std::mt19937_64 random_;
};

Problem list_repeatedly(const std::string& directory, const Options& options, uint64_t seed, Shared& shared) {
  for (unsigned round = 0; round < options.rounds; ++round) {
    auto problem = Listing(directory, options.entries, seed + round).check();
    if (problem) return fmt::format("listing {}: {}", round + 1, *problem);
    shared.counts[1].fetch_add(1, std::memory_order_relaxed);
  }
  return {};
}

// Removes everything while reading the directory, through one mount; the others must show it empty.
Problem empty_it(const std::string& directory, uint64_t entries) {
  DIR* stream = opendir(directory.c_str());
  if (stream == nullptr) return failed("opendir", directory);
  uint64_t removed = 0;
  Problem problem;
  while (auto* entry = readdir(stream)) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (unlinkat(dirfd(stream), name.c_str(), 0) != 0) problem = failed("unlink", name);
    ++removed;
  }
  closedir(stream);
  if (problem) return problem;
  return removed == entries ? Problem{} : fmt::format("removing while reading found {} of {} entries", removed, entries);
}

bool expect(const char* what, const Problem& problem, unsigned& passed, unsigned& failures) {
  if (problem) fmt::print("FAIL {}: {}\n", what, *problem);
  ++(problem ? failures : passed);
  return !problem;
}

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr, "dir_stress: {}\nusage: dir_stress --dirs DIR[,DIR…] [--entries N] [--rounds N] [--readers N] [--changers N] [--limit SECONDS]\n", problem);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string word = argv[i], value = argv[i + 1];
    auto count = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 0));
    if (word == "--dirs") options.dirs = split_list(value);
    else if (word == "--entries") options.entries = count;
    else if (word == "--rounds") options.rounds = count;
    else if (word == "--readers") options.readers = count;
    else if (word == "--changers") options.changers = count;
    else if (word == "--limit") options.limit_seconds = count;
    else usage("unknown option " + word);
  }
  if (options.dirs.empty()) usage("--dirs is missing");
  return options;
}

std::string directory_to_remove;

void on_stop(int) {
  std::error_code error;  // not async-signal-safe, but nothing else runs on: the process ends here
  std::filesystem::remove_all(directory_to_remove, error);
  _exit(1);
}

int run(const Options& options) {
  auto name = fmt::format("/dir_stress.{}", getpid());
  std::vector<std::string> paths;
  for (const auto& dir : options.dirs) paths.push_back(dir + name);
  directory_to_remove = paths[0];
  if (mkdir(paths[0].c_str(), 0755) != 0) usage(fmt::format("{}: {}", paths[0], std::strerror(errno)));
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, on_stop);
  unsigned passed = 0, failures = 0;
  auto* shared = make_shared_page();

  Workers makers(options.limit_seconds);
  for (size_t i = 0; i < paths.size(); ++i) {
    auto begin = options.entries * i / paths.size(), end = options.entries * (i + 1) / paths.size();
    makers.start(fmt::format("maker {}", i), [&, i, begin, end] { return make_entries(paths[i], begin, end); });
  }
  bool made = expect("create", makers.all_well() ? Problem{} : Problem("not all entries could be made"), passed, failures);

  if (made) {
    Workers changers(options.limit_seconds), readers(options.limit_seconds);
    for (size_t i = 0; i < paths.size() * options.changers; ++i) changers.start(fmt::format("changer {}", i), [&, i] { return change(paths[i % paths.size()], fmt::format("c{}", i), *shared); });
    for (size_t i = 0; i < paths.size() * options.readers; ++i) readers.start(fmt::format("reader {}", i), [&, i] { return list_repeatedly(paths[i % paths.size()], options, 1000 * i, *shared); });
    expect("listing while others change the directory", readers.all_well() ? Problem{} : Problem("see above"), passed, failures);
    shared->stop = true;
    expect("changing while others list the directory", changers.all_well() ? Problem{} : Problem("see above"), passed, failures);
    fmt::print("{} listings of {} lasting entries while {} entries came and went\n", shared->counts[1].load(), options.entries, shared->counts[0].load());
    expect("removing while reading", empty_it(paths.back(), options.entries), passed, failures);
    for (const auto& path : paths) expect("empty afterwards", Listing(path, 0, 1).check(), passed, failures);
    expect("rmdir afterwards", rmdir(paths[0].c_str()) == 0 ? Problem{} : failed("rmdir", paths[0]), passed, failures);
  }
  std::error_code error;
  std::filesystem::remove_all(paths[0], error);
  fmt::print("{} passed, {} failed\n", passed, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace nacre::posix

int main(int argc, char** argv) { return nacre::posix::run(nacre::posix::parse(argc, argv)); }
