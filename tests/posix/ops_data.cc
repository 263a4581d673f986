// SPDX-License-Identifier: Apache-2.0
// Operations on file contents: read and write in all their forms, size, holes, preallocation, mapping, copying.
// Data that must be aligned for O_DIRECT goes through one aligned buffer.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "tests/posix/context.h"

namespace nacre::posix {
namespace {

constexpr size_t kAlignment = 4096;
constexpr size_t kMaxTransfer = 16 << 20;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<char, Free>;

Buffer aligned(size_t size) {
  if (size > kMaxTransfer) throw TableError("a transfer in a table is larger than 16 MiB");
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max(size, kAlignment)) != 0) throw TableError("out of memory");
  return Buffer(static_cast<char*>(memory));
}

Buffer aligned_copy(const std::string& data) {
  auto buffer = aligned(data.size());
  std::memcpy(buffer.get(), data.data(), data.size());
  return buffer;
}

Outcome written(ssize_t n, size_t wanted) {
  if (n < 0) return failed();
  return static_cast<size_t>(n) == wanted ? Outcome{} : read_value(fmt::format("short: {}", n));
}

Outcome op_write(Context& context, const Words& words) {
  auto buffer = aligned_copy(words[1]);
  return written(write(context.descriptor(words[0]), buffer.get(), words[1].size()), words[1].size());
}

// pwrite FD OFFSET DATA
Outcome op_pwrite(Context& context, const Words& words) {
  auto buffer = aligned_copy(words[2]);
  return written(pwrite(context.descriptor(words[0]), buffer.get(), words[2].size(), number(words[1])), words[2].size());
}

Outcome op_writev(Context& context, const Words& words) {
  iovec pieces[8];
  size_t count = 0, total = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    pieces[count++] = {const_cast<char*>(words[i].data()), words[i].size()};
    total += words[i].size();
  }
  return written(writev(context.descriptor(words[0]), pieces, static_cast<int>(count)), total);
}

Outcome op_read(Context& context, const Words& words) {
  auto size = static_cast<size_t>(number(words[1]));
  auto buffer = aligned(size);
  auto n = read(context.descriptor(words[0]), buffer.get(), size);
  return n < 0 ? failed() : read_value(std::string(buffer.get(), static_cast<size_t>(n)));
}

// pread FD OFFSET SIZE
Outcome op_pread(Context& context, const Words& words) {
  auto size = static_cast<size_t>(number(words[2]));
  auto buffer = aligned(size);
  auto n = pread(context.descriptor(words[0]), buffer.get(), size, number(words[1]));
  return n < 0 ? failed() : read_value(std::string(buffer.get(), static_cast<size_t>(n)));
}

Outcome put(const std::string& path, int flags, const std::string& data) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd < 0) return failed();
  auto outcome = written(write(fd, data.data(), data.size()), data.size());
  if (close(fd) != 0 && outcome.error == 0) outcome = failed();
  return outcome;
}

Outcome op_put(Context& context, const Words& words) { return put(context.path(words[0]), O_TRUNC, words[1]); }
Outcome op_append(Context& context, const Words& words) { return put(context.path(words[0]), O_APPEND, words[1]); }

Outcome op_content(Context& context, const Words& words) {
  int fd = open(context.path(words[0]).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed();
  Outcome outcome;
  if (!read_all(fd, outcome.value)) outcome = failed();
  close(fd);
  return outcome;
}

// zeros PATH OFFSET SIZE -> yes if that range of the file reads as zeros in full
Outcome op_zeros(Context& context, const Words& words) {
  int fd = open(context.path(words[0]).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed();
  std::string data(static_cast<size_t>(number(words[2])), 'x');
  auto n = pread(fd, data.data(), data.size(), number(words[1]));
  auto outcome = n < 0 ? failed() : Outcome{};
  close(fd);
  if (n < 0) return outcome;
  if (static_cast<size_t>(n) != data.size()) return read_value(fmt::format("short: {}", n));
  auto other = data.find_first_not_of('\0');
  return read_value(other == std::string::npos ? "yes" : fmt::format("byte {} is {}", number(words[1]) + static_cast<long long>(other), compact(data.substr(other, 1))));
}

Outcome op_truncate(Context& context, const Words& words) { return plain(truncate(context.path(words[0]).c_str(), number(words[1]))); }
Outcome op_ftruncate(Context& context, const Words& words) { return plain(ftruncate(context.descriptor(words[0]), number(words[1]))); }

// lseek FD OFFSET set|cur|end|data|hole -> position
Outcome op_lseek(Context& context, const Words& words) {
  const auto& from = words[2];
  int whence = from == "set" ? SEEK_SET : from == "cur" ? SEEK_CUR : from == "end" ? SEEK_END : from == "data" ? SEEK_DATA : from == "hole" ? SEEK_HOLE : -1;
  auto at = lseek(context.descriptor(words[0]), number(words[1]), whence);
  return at < 0 ? failed() : read_value(std::to_string(at));
}

// fallocate FD none|keep|punch|zero|zerokeep|collapse|insert|punchgrow OFFSET SIZE
Outcome op_fallocate(Context& context, const Words& words) {
  struct Mode {
    const char* name;
    int bits;
  };
  constexpr Mode kModes[] = {{"none", 0},
                             {"keep", FALLOC_FL_KEEP_SIZE},
                             {"punch", FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE},
                             {"punchgrow", FALLOC_FL_PUNCH_HOLE},
                             {"zero", FALLOC_FL_ZERO_RANGE},
                             {"zerokeep", FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE},
                             {"collapse", FALLOC_FL_COLLAPSE_RANGE},
                             {"insert", FALLOC_FL_INSERT_RANGE}};
  for (const auto& mode : kModes) {
    if (words[1] == mode.name) return plain(fallocate(context.descriptor(words[0]), mode.bits, number(words[2]), number(words[3])));
  }
  throw TableError("no fallocate mode: " + words[1]);
}

Outcome op_fsync(Context& context, const Words& words) { return plain(fsync(context.descriptor(words[0]))); }
Outcome op_fdatasync(Context& context, const Words& words) { return plain(fdatasync(context.descriptor(words[0]))); }

struct Mapping {
  char* at = nullptr;
  size_t size = 0;
  ~Mapping() {
    if (at != nullptr) munmap(at, size);
  }
};

bool map(Context& context, const std::string& fd, size_t size, int protection, int flags, Mapping& out) {
  void* at = mmap(nullptr, size, protection, flags, context.descriptor(fd), 0);
  if (at == MAP_FAILED) return false;
  out.at = static_cast<char*>(at);
  out.size = size;
  return true;
}

// mapwrite FD OFFSET DATA: stores through MAP_SHARED, then msync
Outcome op_mapwrite(Context& context, const Words& words) {
  auto offset = static_cast<size_t>(number(words[1]));
  Mapping mapping;
  if (!map(context, words[0], offset + words[2].size(), PROT_READ | PROT_WRITE, MAP_SHARED, mapping)) return failed();
  std::memcpy(mapping.at + offset, words[2].data(), words[2].size());
  return plain(msync(mapping.at, mapping.size, MS_SYNC));
}

// mapread FD OFFSET SIZE shared|private -> data
Outcome op_mapread(Context& context, const Words& words) {
  auto offset = static_cast<size_t>(number(words[1])), size = static_cast<size_t>(number(words[2]));
  Mapping mapping;
  if (!map(context, words[0], offset + size, PROT_READ, words[3] == "private" ? MAP_PRIVATE : MAP_SHARED, mapping)) return failed();
  return read_value(std::string(mapping.at + offset, size));
}

// mapprivate FD OFFSET DATA: stores through MAP_PRIVATE must not reach the file
Outcome op_mapprivate(Context& context, const Words& words) {
  auto offset = static_cast<size_t>(number(words[1]));
  Mapping mapping;
  if (!map(context, words[0], offset + words[2].size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, mapping)) return failed();
  std::memcpy(mapping.at + offset, words[2].data(), words[2].size());
  return {};
}

// copyrange FROM OFFSET TO OFFSET SIZE -> bytes copied (all pieces together)
Outcome op_copyrange(Context& context, const Words& words) {
  off_t from = number(words[1]), to = number(words[3]);
  long long left = number(words[4]), copied = 0;
  while (left > 0) {
    auto n = copy_file_range(context.descriptor(words[0]), &from, context.descriptor(words[2]), &to, static_cast<size_t>(left), 0);
    if (n < 0) return failed();
    if (n == 0) break;
    left -= n;
    copied += n;
  }
  return read_value(std::to_string(copied));
}

constexpr Op kDataOps[] = {
    {"write", 2, 2, false, op_write},         {"pwrite", 3, 3, false, op_pwrite},       {"writev", 2, 9, false, op_writev},
    {"read", 2, 2, false, op_read},           {"pread", 3, 3, false, op_pread},         {"put", 2, 2, false, op_put},
    {"append", 2, 2, false, op_append},       {"content", 1, 1, true, op_content},      {"zeros", 3, 3, true, op_zeros},
    {"truncate", 2, 2, false, op_truncate},   {"ftruncate", 2, 2, false, op_ftruncate}, {"lseek", 3, 3, false, op_lseek},
    {"fallocate", 4, 4, false, op_fallocate}, {"fsync", 1, 1, false, op_fsync},         {"fdatasync", 1, 1, false, op_fdatasync},
    {"mapwrite", 3, 3, false, op_mapwrite},   {"mapread", 4, 4, false, op_mapread},     {"mapprivate", 3, 3, false, op_mapprivate},
    {"copyrange", 5, 5, false, op_copyrange},
};

}  // namespace

std::span<const Op> data_ops() { return kDataOps; }

}  // namespace nacre::posix
