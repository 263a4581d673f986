// SPDX-License-Identifier: Apache-2.0
// fsx_model: random operations on one file, compared with an array in memory after every step. With several directories (the
// same directory through several mounts) each operation goes through the next mount, and its effect must show through
// the others at once. A run is determined by --seed; a failure prints the operations that led to it and the first wrong byte.
// Exit status 0: equal to the end, 1: a difference, 2: wrong use.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>

#include <fmt/format.h>

#include "tests/posix/fsx_file.h"

namespace nacre::posix {
namespace {

constexpr size_t kKeptOps = 400;          // operations printed before a failure
constexpr uint64_t kWholeCheckEvery = 64; // operations between two comparisons of the whole file
constexpr uint64_t kLongestOp = 256 << 10;

enum class Kind { kWrite, kDirectWrite, kAppend, kMapWrite, kTruncate, kGrow, kPunch, kZero, kAllocate, kCopy, kRead, kDirectRead, kMapRead, kSeek, kSync, kReopen };
constexpr const char* kNames[] = {"write", "dwrite", "append", "mapwrite", "truncate", "grow", "punch", "zero", "fallocate", "copy", "read", "dread", "mapread", "seek", "sync", "reopen"};
constexpr size_t kKinds = std::size(kNames);

struct Options {
  std::vector<std::string> dirs;
  uint64_t seed = 1, ops = 10'000, maxlen = 1 << 20, break_at = 0;
  bool without[kKinds] = {};
  std::string stop_file;  // its appearance ends the run well
  bool keep = false, verbose = false;
};

struct Op {
  uint64_t number = 0;
  Kind kind = Kind::kRead;
  size_t mount = 0;
  uint64_t offset = 0, length = 0, extra = 0;  // extra: target of a copy, old size of a truncate, flavour
};

std::string describe(const Op& op) {
  auto text = fmt::format("{:6} mount {} {:<9} {:#8x} .. {:#8x} ({} bytes)", op.number, op.mount, kNames[static_cast<size_t>(op.kind)], op.offset, op.offset + op.length, op.length);
  if (op.kind == Kind::kCopy) text += fmt::format(" to {:#x}", op.extra);
  if (op.kind == Kind::kTruncate || op.kind == Kind::kGrow) text += fmt::format(" from size {:#x}", op.extra);
  return text;
}

class Exerciser {
 public:
  Exerciser(const Options& options, std::string name) : options_(options), random_(options.seed) {
    for (size_t i = 0; i < options.dirs.size(); ++i) files_.push_back(std::make_unique<FsxFile>(options.dirs[i] + "/" + name, options.dirs[i]));
  }

  bool run() {
    for (auto& file : files_) {
      if (auto problem = file->open_all(direct())) return report(*problem, *file);
    }
    for (uint64_t number = 1; number <= options_.ops && !stop_wanted(number); ++number) {
      done_ = number;
      if (!step(number)) return false;
      if (number >= options_.break_at && options_.break_at != 0 && break_one_byte()) return compare_all();
    }
    return compare_all();
  }

  uint64_t done() const { return done_; }

 private:
  bool stop_wanted(uint64_t number) const {
    constexpr uint64_t kLookEvery = 16;
    return !options_.stop_file.empty() && number % kLookEvery == 0 && access(options_.stop_file.c_str(), F_OK) == 0;
  }

  bool direct() const { return !options_.without[static_cast<size_t>(Kind::kDirectWrite)]; }
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  // Lengths of all magnitudes; a third of the offsets near block borders, where mistakes live.
  uint64_t some_length(uint64_t room) {
    auto limit = std::min({room, kLongestOp, uint64_t{1} << (4 + below(15))});
    return limit == 0 ? 0 : 1 + below(limit);
  }
  uint64_t some_offset(uint64_t limit) {
    auto offset = below(limit);
    if (below(3) == 0) offset = offset / kBlock * kBlock + below(3);
    return std::min(offset, limit == 0 ? 0 : limit - 1);
  }

  Op choose(uint64_t number) {
    Op op;
    op.number = number;
    op.mount = number % files_.size();
    do op.kind = static_cast<Kind>(below(kKinds));
    while (options_.without[static_cast<size_t>(op.kind)] || ((op.kind == Kind::kReopen || op.kind == Kind::kSync) && below(4) != 0));
    auto size = model_.size();
    switch (op.kind) {
      case Kind::kTruncate: return sized(op, below(size + 1));
      case Kind::kGrow: return sized(op, size + below(options_.maxlen - size + 1));
      case Kind::kAppend:
        op.offset = size;
        op.length = some_length(options_.maxlen - size);
        return op;
      case Kind::kCopy: return choose_copy(op);
      case Kind::kRead: case Kind::kDirectRead: case Kind::kMapRead: case Kind::kMapWrite: case Kind::kSeek:
        op.offset = some_offset(size);
        op.length = some_length(size - std::min<uint64_t>(op.offset, size));
        break;
      default:
        op.offset = some_offset(options_.maxlen);
        op.length = some_length(options_.maxlen - op.offset);
    }
    op.extra = random_();
    if (op.kind == Kind::kDirectRead || op.kind == Kind::kDirectWrite) {
      op.offset = op.offset / kBlock * kBlock;
      op.length = std::max(op.length / kBlock, uint64_t{1}) * kBlock;
      if (op.kind == Kind::kDirectWrite && op.offset + op.length > options_.maxlen) op.length = 0;
    }
    return op;
  }

  Op sized(Op op, uint64_t size) {
    op.offset = std::min<uint64_t>(size, model_.size());
    op.length = std::max<uint64_t>(size, model_.size()) - op.offset;
    op.extra = model_.size();
    return op;
  }

  Op choose_copy(Op op) {
    op.offset = some_offset(model_.size());
    op.length = some_length(model_.size() - std::min<uint64_t>(op.offset, model_.size()));
    op.extra = some_offset(options_.maxlen);
    bool overlaps = op.extra < op.offset + op.length && op.offset < op.extra + op.length;
    if (overlaps || op.extra + op.length > options_.maxlen) op.length = 0;
    return op;
  }

  bool step(uint64_t number) {
    auto op = choose(number);
    bool needs_length = op.kind != Kind::kTruncate && op.kind != Kind::kGrow && op.kind != Kind::kSync && op.kind != Kind::kReopen && op.kind != Kind::kSeek;
    if (needs_length && op.length == 0) return true;
    log_.push_back(op);
    if (log_.size() > kKeptOps) log_.pop_front();
    if (options_.verbose) fmt::print("{}\n", describe(op));
    auto& file = *files_[op.mount];
    if (auto problem = apply(op, file)) return report(*problem, file);
    if (number % kWholeCheckEvery == 0) return compare_all();
    return compare_around(op);
  }

  Bytes pattern(uint64_t length) {
    Bytes data(length);
    for (size_t i = 0; i < length; i += sizeof(uint64_t)) {
      auto value = random_();
      std::memcpy(data.data() + i, &value, std::min<size_t>(sizeof value, length - i));
    }
    return data;
  }

  void store(uint64_t offset, std::span<const uint8_t> data) {
    if (model_.size() < offset + data.size()) model_.resize(offset + data.size());
    std::copy(data.begin(), data.end(), model_.begin() + static_cast<ptrdiff_t>(offset));
  }

  void clear(uint64_t offset, uint64_t length) {
    auto end = std::min<uint64_t>(offset + length, model_.size());
    if (offset < end) std::fill(model_.begin() + static_cast<ptrdiff_t>(offset), model_.begin() + static_cast<ptrdiff_t>(end), 0);
  }

  Problem apply(const Op& op, FsxFile& file) {
    switch (op.kind) {
      case Kind::kWrite: case Kind::kDirectWrite: case Kind::kAppend: case Kind::kMapWrite: return apply_store(op, file);
      case Kind::kTruncate: case Kind::kGrow: {
        auto size = op.kind == Kind::kTruncate ? op.offset : op.offset + op.length;
        model_.resize(size);
        return file.truncate_to(size, op.number % 2 == 0);
      }
      case Kind::kPunch:
        clear(op.offset, op.length);
        return file.allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, op.offset, op.length);
      case Kind::kZero: case Kind::kAllocate: {
        bool keep = op.extra % 2 == 0;
        if (op.kind == Kind::kZero) clear(op.offset, op.length);
        if (!keep && model_.size() < op.offset + op.length) model_.resize(op.offset + op.length);
        return file.allocate((op.kind == Kind::kZero ? FALLOC_FL_ZERO_RANGE : 0) | (keep ? FALLOC_FL_KEEP_SIZE : 0), op.offset, op.length);
      }
      case Kind::kCopy: {
        Bytes data(model_.begin() + static_cast<ptrdiff_t>(op.offset), model_.begin() + static_cast<ptrdiff_t>(op.offset + op.length));
        store(op.extra, data);
        return file.copy_range(op.offset, op.extra, op.length);
      }
      case Kind::kRead: case Kind::kDirectRead: case Kind::kMapRead: return apply_read(op, file);
      case Kind::kSeek: return apply_seek(op, file);
      case Kind::kSync: return file.sync(op.number % 2 == 0);
      case Kind::kReopen: return file.reopen(direct());
    }
    return {};
  }

  Problem apply_store(const Op& op, FsxFile& file) {
    auto data = pattern(op.length);
    store(op.offset, data);
    if (op.kind == Kind::kAppend) return file.append(data);
    if (op.kind == Kind::kMapWrite) return file.map_write(op.offset, data);
    return file.write_at(op.offset, data, op.kind == Kind::kDirectWrite);
  }

  Problem apply_read(const Op& op, FsxFile& file) {
    Bytes data;
    auto problem = op.kind == Kind::kMapRead ? file.map_read(op.offset, op.length, data) : file.read_at(op.offset, op.length, op.kind == Kind::kDirectRead, data);
    return problem ? problem : differs(op.offset, op.length, data);
  }

  // Whatever lies in a hole is zero, and data begins at or after the position asked for.
  Problem apply_seek(const Op& op, FsxFile& file) {
    std::optional<uint64_t> data, hole;
    if (auto problem = file.next_data(op.offset, data, hole)) return problem;
    if (op.offset >= model_.size()) return data || hole ? Problem("SEEK_DATA or SEEK_HOLE at the end of the file must be ENXIO") : Problem{};
    auto zero_end = data.value_or(model_.size());
    if (zero_end < op.offset || zero_end > model_.size()) return fmt::format("SEEK_DATA from {:#x} answered {:#x} in a file of {:#x}", op.offset, zero_end, model_.size());
    for (auto at = op.offset; at < zero_end; ++at) {
      if (model_[at] != 0) return fmt::format("SEEK_DATA from {:#x} answered {:#x}, but byte {:#x} is data", op.offset, zero_end, at);
    }
    if (!hole || *hole < op.offset || *hole > model_.size()) return fmt::format("SEEK_HOLE from {:#x} answered {} in a file of {:#x}", op.offset, hole ? fmt::format("{:#x}", *hole) : "ENXIO", model_.size());
    return {};
  }

  Problem differs(uint64_t offset, uint64_t length, const Bytes& data) const {
    auto expected = offset >= model_.size() ? 0 : std::min<uint64_t>(length, model_.size() - offset);
    if (data.size() != expected) return fmt::format("read of {} bytes at {:#x} gave {}, expected {} (size {:#x})", length, offset, data.size(), expected, model_.size());
    for (uint64_t i = 0; i < expected; ++i) {
      if (data[i] == model_[offset + i]) continue;
      uint64_t wrong = i;
      while (wrong < expected && data[wrong] != model_[offset + wrong]) ++wrong;
      return fmt::format("first wrong byte {:#x}: {:#04x} instead of {:#04x}; {} wrong in a row; size {:#x}", offset + i, data[i], model_[offset + i], wrong - i, model_.size());
    }
    return {};
  }

  bool compare(FsxFile& file, uint64_t offset, uint64_t length) {
    if (auto problem = file.size_is(model_.size())) return report(*problem, file);
    Bytes data;
    if (auto problem = file.read_at(offset, length, false, data)) return report(*problem, file);
    auto problem = differs(offset, length, data);
    return problem ? report(*problem, file) : true;
  }

  // Through every mount: the size, and the bytes from before the touched range to behind it.
  bool compare_around(const Op& op) {
    constexpr uint64_t kMargin = 16;
    auto begin = op.kind == Kind::kCopy ? op.extra : op.offset;
    begin -= std::min(begin, kMargin);
    for (auto& file : files_) {
      if (!compare(*file, begin, op.length + 2 * kMargin)) return false;
    }
    return true;
  }

  bool compare_all() {
    for (auto& file : files_) {
      if (!compare(*file, 0, model_.size() + 1)) return false;
    }
    return true;
  }

  // For the test of this test: a change that the model does not know.
  bool break_one_byte() {
    if (model_.empty()) return false;
    uint8_t other = static_cast<uint8_t>(~model_[model_.size() / 2]);
    return !files_[0]->write_at(model_.size() / 2, {&other, 1}, false);
  }

  bool report(const std::string& problem, const FsxFile& file) {
    for (const auto& op : log_) fmt::print("{}\n", describe(op));
    fmt::print("DIFFERENCE seen through {} ({}): {}\nrepeat with --seed {} --maxlen {}\n", file.mount_name(), file.path(), problem, options_.seed, options_.maxlen);
    return false;
  }

  const Options& options_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<FsxFile>> files_;
  Bytes model_;
  std::deque<Op> log_;
  uint64_t done_ = 0;
};

char file_to_remove[4096] = "";

void on_signal(int signal) {
  const char* text = signal == SIGBUS ? "DIFFERENCE: SIGBUS, a mapped page inside the file could not be read or written; repeat with -v\n" : "stopped by a signal\n";
  (void)!write(STDOUT_FILENO, text, std::strlen(text));
  unlink(file_to_remove);
  _exit(1);
}

[[noreturn]] void usage(const std::string& problem) {
  fmt::print(stderr,
             "fsx_model: {}\nusage: fsx_model --dirs DIR[,DIR…] [--seed N] [--ops N] [--maxlen BYTES] [--without OP,…] [--stop-file F] [--keep] [-v]\n"
             "  --dirs     one directory, or the same directory through several mounts\n"
             "  --without  leave out: write dwrite append mapwrite truncate grow punch zero fallocate copy read dread mapread seek sync reopen\n"
             "  --stop-file F  end well as soon as F exists\n"
             "  --break-at N  change a byte behind the model's back after operation N and end there (the run must fail)\n",
             problem);
  std::exit(2);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    auto end = std::min(text.find(',', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

void leave_out(Options& options, const std::string& list) {
  for (const auto& name : split(list)) {
    bool found = false;
    for (size_t i = 0; i < kKinds; ++i) {
      if (name != kNames[i]) continue;
      options.without[i] = found = true;
    }
    if (!found) usage("no operation " + name);
  }
  // Without O_DIRECT at all the descriptor for it is not opened either.
  if (options.without[static_cast<size_t>(Kind::kDirectWrite)]) options.without[static_cast<size_t>(Kind::kDirectRead)] = true;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 >= argc) usage(word + " needs a value");
      return argv[++i];
    };
    auto count = [&] { return std::strtoull(value().c_str(), nullptr, 0); };
    if (word == "--dirs") options.dirs = split(value());
    else if (word == "--seed") options.seed = count();
    else if (word == "--ops") options.ops = count();
    else if (word == "--maxlen") options.maxlen = count();
    else if (word == "--break-at") options.break_at = count();
    else if (word == "--without") leave_out(options, value());
    else if (word == "--stop-file") options.stop_file = value();
    else if (word == "--keep") options.keep = true;
    else if (word == "-v") options.verbose = true;
    else usage("unknown option " + word);
  }
  if (options.dirs.empty()) usage("--dirs is missing");
  if (options.maxlen < kBlock || options.maxlen > (uint64_t{1} << 30)) usage("--maxlen must lie between 4096 and 1 GiB");
  return options;
}

}  // namespace
}  // namespace nacre::posix

int main(int argc, char** argv) {
  using namespace nacre::posix;
  auto options = parse(argc, argv);
  auto name = fmt::format("fsx_model.{}.{}", getpid(), options.seed);
  std::snprintf(file_to_remove, sizeof file_to_remove, "%s/%s", options.dirs[0].c_str(), name.c_str());
  for (int signal : {SIGBUS, SIGINT, SIGTERM, SIGHUP}) std::signal(signal, on_signal);
  Exerciser exerciser(options, name);
  bool equal = exerciser.run();
  if (equal || !options.keep) unlink(file_to_remove);
  fmt::print("fsx_model: {} operations, seed {}, {} mounts: {}\n", exerciser.done(), options.seed, options.dirs.size(), equal ? "equal to the model" : "DIFFERENT");
  return equal ? 0 : 1;
}
