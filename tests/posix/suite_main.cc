// SPDX-License-Identifier: Apache-2.0
// posix_suite: runs the tables beside it against a mounted directory. Output: one line per failing row, then counts; the
// last line is "N passed, N failed". Exit status 0: all passed, 1: some failed, 2: wrong use. Needs root (identities, devices).
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tests/posix/runner.h"

namespace nacre::posix {
namespace {

constexpr unsigned kRowSeconds = 60;  // a row is a few dozen calls: one that takes longer hangs
volatile sig_atomic_t stop_asked = 0;
char running_row[256] = "";

struct Options {
  std::string directory, second, filter, without;
  std::string tables = NACRE_POSIX_TABLES;
  bool list = false, verbose = false;
};

[[noreturn]] void usage(const char* problem) {
  fmt::print(stderr,
             "posix_suite: {}\nusage: posix_suite --dir DIR [--second DIR] [--filter TEXT] [--without PREFIX] [--tables DIR] [--list] [-v]\n"
             "  --dir DIR     directory on the filesystem under test\n"
             "  --second DIR  the same directory through a second mount (default: DIR again)\n"
             "  --filter TEXT only rows whose name or table contains TEXT\n"
             "  --without PREFIX  not the rows whose name begins so\n",
             problem);
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 >= argc) usage((word + " needs a value").c_str());
      return argv[++i];
    };
    if (word == "--dir") options.directory = value();
    else if (word == "--second") options.second = value();
    else if (word == "--filter") options.filter = value();
    else if (word == "--without") options.without = value();
    else if (word == "--tables") options.tables = value();
    else if (word == "--list") options.list = true;
    else if (word == "-v") options.verbose = true;
    else usage(("unknown option " + word).c_str());
  }
  if (options.directory.empty() && !options.list) usage("--dir is missing");
  if (options.second.empty()) options.second = options.directory;
  return options;
}

std::vector<Row> load_all(const Options& options) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.tables)) {
    if (entry.path().extension() == ".tbl") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Row> rows;
  for (const auto& file : files) {
    for (auto& row : load_table(file)) {
      if (!options.without.empty() && row.name.starts_with(options.without)) continue;
      if (options.filter.empty() || row.name.find(options.filter) != std::string::npos || row.where.find(options.filter) != std::string::npos) rows.push_back(std::move(row));
    }
  }
  return rows;
}

void on_alarm(int) {
  const char* parts[] = {"FAIL ", running_row, ": no end within 60 s; its directory is left\n"};
  for (const char* part : parts) (void)!write(STDOUT_FILENO, part, std::strlen(part));
  _exit(1);
}

void on_stop(int) { stop_asked = 1; }

int run_all(const Options& options, const std::vector<Row>& rows) {
  auto name = fmt::format("/posix_suite.{}", getpid());
  auto first = std::filesystem::absolute(options.directory).string() + name, second = std::filesystem::absolute(options.second).string() + name;
  umask(0);
  if (mkdir(first.c_str(), 0777) != 0) {
    fmt::print(stderr, "posix_suite: {}: {}\n", first, std::strerror(errno));
    return 2;
  }
  size_t passed = 0, failed = 0, not_offered = 0, checks = 0;
  {
    Runner runner(first, second);
    for (size_t i = 0; i < rows.size() && stop_asked == 0; ++i) {
      std::snprintf(running_row, sizeof running_row, "%s %s", rows[i].where.c_str(), rows[i].name.c_str());
      alarm(kRowSeconds);
      auto result = runner.run(rows[i], i);
      alarm(0);
      checks += result.checks;
      if (result.kind == RowResult::Kind::kPassed) ++passed;
      if (result.kind == RowResult::Kind::kNotOffered) {
        ++not_offered;
        fmt::print("not offered: {}\n", running_row);
      }
      if (result.kind == RowResult::Kind::kFailed) {
        ++failed;
        fmt::print("FAIL {}: {}\n", running_row, result.message);
      } else if (options.verbose) {
        fmt::print("pass {}\n", running_row);
      }
      std::fflush(stdout);
    }
  }
  (void)!chdir("/");
  std::error_code error;
  std::filesystem::remove_all(first, error);
  fmt::print("{} expectations compared, {} rows need what this filesystem does not offer\n", checks, not_offered);
  if (stop_asked != 0) fmt::print("stopped by a signal\n");
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && stop_asked == 0 && passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace nacre::posix

int main(int argc, char** argv) {
  using namespace nacre::posix;
  auto options = parse(argc, argv);
  try {
    auto rows = load_all(options);
    if (options.list) {
      for (const auto& row : rows) fmt::print("{} {}\n", row.where, row.name);
      return 0;
    }
    if (geteuid() != 0) usage("must run as root: it acts as several users and makes devices");
    struct sigaction action{};
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    action.sa_handler = on_stop;
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    return run_all(options, rows);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "posix_suite: {}\n", problem.what());
    return 2;
  }
}
