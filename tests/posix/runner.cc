// SPDX-License-Identifier: Apache-2.0
// One row: directory, steps, comparison, clean-up. See runner.h.
#include "tests/posix/runner.h"

#include <limits.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

namespace nacre::posix {
namespace {

const std::map<std::string, const Op*>& operations() {
  static const auto all = [] {
    std::map<std::string, const Op*> out;
    for (auto ops : {name_ops(), attribute_ops(), data_ops(), xattr_ops(), process_ops()}) {
      for (const auto& op : ops) out.emplace(op.name, &op);
    }
    return out;
  }();
  return all;
}

const Op& find_op(const Words& words) {
  auto it = operations().find(words[0]);
  if (it == operations().end()) throw TableError("no such operation: " + words[0]);
  auto count = words.size() - 1;
  if (count < it->second->min_words || count > it->second->max_words) throw TableError(fmt::format("{} takes {} to {} arguments", words[0], it->second->min_words, it->second->max_words));
  return *it->second;
}

Outcome call(Context& context, const Op& op, const Words& arguments, const std::string& who) {
  ActAs identity(who);
  return op.run(context, arguments);
}

// The child answers through a pipe: errno, then the value.
Outcome call_in_child(Context& context, const Op& op, const Words& arguments, const std::string& who) {
  int ends[2];
  if (pipe(ends) != 0) throw TableError("pipe failed");
  auto child = fork();
  if (child < 0) throw TableError("fork failed");
  if (child == 0) {
    close(ends[0]);
    Outcome outcome;
    try {
      outcome = call(context, op, arguments, who);
    } catch (const std::exception& slip) {
      outcome = read_value(slip.what());
    }
    std::string answer(reinterpret_cast<const char*>(&outcome.error), sizeof outcome.error);
    answer += outcome.value;
    bool sent = write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size());
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  read_all(ends[0], answer);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  Outcome outcome;
  if (answer.size() < sizeof outcome.error) throw TableError("the child process ended without an answer");
  std::memcpy(&outcome.error, answer.data(), sizeof outcome.error);
  outcome.value = answer.substr(sizeof outcome.error);
  return outcome;
}

std::string show(const Outcome& outcome) {
  if (outcome.error != 0) return error_name(outcome.error);
  return outcome.value.empty() ? "ok" : "'" + compact(outcome.value) + "'";
}

enum class Verdict { kAsWanted, kOther, kNotOffered };

bool names_errors(const std::string& want) {
  return want == "ok" || want.starts_with("ok|") || want.starts_with("ok?") || (want.size() > 2 && want[0] == 'E' && want.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789|") == std::string::npos);
}

bool among(const std::string& list, const std::string& name) {
  for (size_t begin = 0; begin <= list.size();) {
    auto end = std::min(list.find('|', begin), list.size());
    if (list.compare(begin, end - begin, name) == 0) return true;
    begin = end + 1;
  }
  return false;
}

// want: none or "ok" success · "EPERM|EACCES" one of these · "ok?EOPNOTSUPP" the row ends there, counted as not offered · else the value read
Verdict judge(const Outcome& outcome, const std::optional<std::string>& want) {
  auto wanted = want.value_or("ok");
  if (!names_errors(wanted)) return outcome.error == 0 && outcome.value == wanted ? Verdict::kAsWanted : Verdict::kOther;
  auto name = outcome.error == 0 ? "ok" : error_name(outcome.error);
  auto question = wanted.find('?');
  if (question != std::string::npos && among(wanted.substr(question + 1), name)) return Verdict::kNotOffered;
  if (!among(wanted.substr(0, question), name)) return Verdict::kOther;
  // "ok" for an operation that reads would accept any value: a short write must not pass as success.
  return outcome.error == 0 && outcome.value.starts_with("short") ? Verdict::kOther : Verdict::kAsWanted;
}

struct Watched {
  std::string before, after, expected;  // path before and after the operation, the letters of the times that must move
  struct stat old{};
};

// "d:mc,f>g:c" → objects and the times (a, m, c) that must move; all others must not
std::vector<Watched> watched_of(const std::string& text) {
  std::vector<Watched> out;
  for (size_t begin = 0; begin < text.size();) {
    auto end = std::min(text.find(',', begin), text.size());
    auto item = text.substr(begin, end - begin);
    auto colon = item.rfind(':');
    if (colon == std::string::npos) throw TableError("moves: no ':' in " + item);
    auto path = item.substr(0, colon);
    auto arrow = path.find('>');
    auto before = path.substr(0, arrow);
    out.push_back({before, arrow == std::string::npos ? before : path.substr(arrow + 1), item.substr(colon + 1), {}});
    begin = end + 1;
  }
  return out;
}

bool later(const timespec& a, const timespec& b) { return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec; }
bool equal(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

// Empty if exactly the expected times moved and the second mount shows the same.
std::string compare_times(Context& context, const Watched& watched) {
  struct stat now{}, other{};
  if (lstat(context.path(watched.after).c_str(), &now) != 0) return fmt::format("{}: {}", watched.after, std::strerror(errno));
  struct Time {
    char letter;
    timespec before, after;
  };
  const Time times[] = {{'a', watched.old.st_atim, now.st_atim}, {'m', watched.old.st_mtim, now.st_mtim}, {'c', watched.old.st_ctim, now.st_ctim}};
  for (const auto& time : times) {
    bool must = watched.expected.find(time.letter) != std::string::npos;
    if (must && !later(time.after, time.before)) return fmt::format("{}time of {} did not move", time.letter, watched.after);
    if (!must && !equal(time.after, time.before)) return fmt::format("{}time of {} moved", time.letter, watched.after);
  }
  if (watched.after.find(':') != std::string::npos) return {};
  context.look_through_second(true);
  int rc = lstat(context.path(watched.after).c_str(), &other);
  context.look_through_second(false);
  if (rc != 0 || !equal(other.st_mtim, now.st_mtim) || !equal(other.st_ctim, now.st_ctim)) return fmt::format("{}: the second mount shows other times", watched.after);
  return {};
}

// An empty, absolute or marked path, or one that only fits relatively, means something else when the second directory stands before it.
bool has_second_form(const std::string& path) {
  return !path.empty() && path[0] != '/' && path.find(':') != 1 && path.size() < PATH_MAX / 2;
}

class RowRun {
 public:
  RowRun(Context& context, RowResult& result) : context_(context), result_(result) {}

  // False ends the row (failed or not offered).
  bool step(const Step& step) {
    if (step.words[0] == "moves") return moves(step);
    const auto& op = find_op(step.words);
    Words arguments(step.words.begin() + 1, step.words.end());
    if (step.words[0] == "chdir") at_home_ = false;
    auto outcome = step.in_child ? call_in_child(context_, op, arguments, step.who) : call(context_, op, arguments, step.who);
    if (!accept(step, outcome, "")) return false;
    if (!op.looks || !at_home_ || !has_second_form(arguments[0])) return true;
    context_.look_through_second(true);
    auto other = call(context_, op, arguments, step.who);
    context_.look_through_second(false);
    return accept(step, other, " through the second mount");
  }

 private:
  bool accept(const Step& step, const Outcome& outcome, const char* how) {
    ++result_.checks;
    auto verdict = judge(outcome, step.want);
    if (verdict == Verdict::kAsWanted) return true;
    if (verdict == Verdict::kNotOffered) {
      result_.kind = RowResult::Kind::kNotOffered;
      return false;
    }
    fail(step, fmt::format("gave {}{}, expected {}", show(outcome), how, compact(step.want.value_or("ok"))));
    return false;
  }

  bool moves(const Step& step) {
    if (step.words.size() < 4 || step.words[2] != "by") throw TableError("moves OBJECTS by OPERATION …");
    auto objects = watched_of(step.words[1]);
    for (auto& object : objects) {
      if (lstat(context_.path(object.before).c_str(), &object.old) != 0) throw TableError("moves: no " + object.before);
    }
    constexpr timespec kTick{0, 12'000'000};  // coarse kernel clocks move every 4 ms
    nanosleep(&kTick, nullptr);
    Step inner = step;
    inner.words.erase(inner.words.begin(), inner.words.begin() + 3);
    const auto& op = find_op(inner.words);
    Words arguments(inner.words.begin() + 1, inner.words.end());
    if (!accept(step, call(context_, op, arguments, step.who), "")) return false;
    for (const auto& object : objects) {
      ++result_.checks;
      auto difference = compare_times(context_, object);
      if (!difference.empty()) {
        fail(step, difference);
        return false;
      }
    }
    return true;
  }

  void fail(const Step& step, const std::string& why) {
    result_.kind = RowResult::Kind::kFailed;
    result_.message = fmt::format("'{}' {}", step.text.substr(0, 160), why);
  }

  Context& context_;
  RowResult& result_;
  bool at_home_ = true;  // relative paths mean the row's directory
};

}  // namespace

RowResult Runner::run(const Row& row, size_t number) {
  RowResult result;
  auto name = fmt::format("row{}", number);
  auto first = first_ + "/" + name, second = second_ + "/" + name;
  umask(0);
  if (mkdir(first.c_str(), 0777) != 0 || chdir(first.c_str()) != 0) {
    result.kind = RowResult::Kind::kFailed;
    result.message = fmt::format("{}: {}", first, std::strerror(errno));
    return result;
  }
  {
    Context context(first, second);
    RowRun run(context, result);
    for (const auto& step : row.steps) {
      try {
        if (!run.step(step)) break;
      } catch (const std::exception& slip) {
        result.kind = RowResult::Kind::kFailed;
        result.message = fmt::format("'{}': {}", step.text.substr(0, 160), slip.what());
        break;
      }
    }
  }
  rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &unlimited);
  umask(0);
  if (chdir(first_.c_str()) != 0) std::abort();  // its directory vanished: nothing after this can be judged
  std::error_code error;
  std::filesystem::remove_all(first, error);
  if (error && result.kind != RowResult::Kind::kFailed) {
    result.kind = RowResult::Kind::kFailed;
    result.message = fmt::format("its directory can't be removed: {}", error.message());
  }
  return result;
}

}  // namespace nacre::posix
