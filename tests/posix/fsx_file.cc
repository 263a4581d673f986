// SPDX-License-Identifier: Apache-2.0
// System calls of fsx_model. See fsx_file.h.
#include "tests/posix/fsx_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace nacre::posix {
namespace {

Problem failed(const char* call) { return fmt::format("{}: {}", call, std::strerror(errno)); }

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<uint8_t, Free>;

Buffer aligned(uint64_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kBlock, (size / kBlock + 1) * kBlock) != 0) std::abort();  // a few MiB at most
  return Buffer(static_cast<uint8_t*>(memory));
}

class Mapping {
 public:
  Mapping(int fd, uint64_t offset, uint64_t length, int protection) : skip_(offset % kBlock), size_(length + skip_) {
    void* at = mmap(nullptr, size_, protection, MAP_SHARED, fd, static_cast<off_t>(offset - skip_));
    if (at != MAP_FAILED) base_ = static_cast<uint8_t*>(at);
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  uint8_t* data() const { return base_ == nullptr ? nullptr : base_ + skip_; }
  bool sync() const { return msync(base_, size_, MS_SYNC) == 0; }

 private:
  uint64_t skip_, size_;
  uint8_t* base_ = nullptr;
};

}  // namespace

Problem FsxFile::open_all(bool direct) {
  plain_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (plain_ < 0) return failed("open");
  append_ = open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (append_ < 0) return failed("open O_APPEND");
  if (direct) direct_ = open(path_.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  return direct && direct_ < 0 ? failed("open O_DIRECT") : Problem{};
}

void FsxFile::close_all() {
  for (int* fd : {&plain_, &append_, &direct_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

Problem FsxFile::reopen(bool direct) {
  close_all();
  return open_all(direct);
}

Problem FsxFile::write_at(uint64_t offset, std::span<const uint8_t> data, bool direct) {
  auto buffer = aligned(data.size());
  std::memcpy(buffer.get(), data.data(), data.size());
  auto n = pwrite(direct ? direct_ : plain_, buffer.get(), data.size(), static_cast<off_t>(offset));
  if (n < 0) return failed("pwrite");
  return static_cast<size_t>(n) == data.size() ? Problem{} : fmt::format("pwrite wrote {} of {} bytes", n, data.size());
}

Problem FsxFile::append(std::span<const uint8_t> data) {
  auto n = write(append_, data.data(), data.size());
  if (n < 0) return failed("write O_APPEND");
  return static_cast<size_t>(n) == data.size() ? Problem{} : fmt::format("append wrote {} of {} bytes", n, data.size());
}

Problem FsxFile::map_write(uint64_t offset, std::span<const uint8_t> data) {
  Mapping mapping(plain_, offset, data.size(), PROT_READ | PROT_WRITE);
  if (mapping.data() == nullptr) return failed("mmap PROT_WRITE");
  std::memcpy(mapping.data(), data.data(), data.size());
  return mapping.sync() ? Problem{} : failed("msync");
}

Problem FsxFile::truncate_to(uint64_t size, bool by_path) {
  int rc = by_path ? truncate(path_.c_str(), static_cast<off_t>(size)) : ftruncate(plain_, static_cast<off_t>(size));
  return rc != 0 ? failed(by_path ? "truncate" : "ftruncate") : Problem{};
}

Problem FsxFile::allocate(int mode, uint64_t offset, uint64_t length) {
  return fallocate(plain_, mode, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0 ? failed("fallocate") : Problem{};
}

Problem FsxFile::copy_range(uint64_t from, uint64_t to, uint64_t length) {
  auto source = static_cast<off_t>(from), target = static_cast<off_t>(to);
  while (length > 0) {
    auto n = copy_file_range(plain_, &source, plain_, &target, length, 0);
    if (n < 0) return failed("copy_file_range");
    if (n == 0) return fmt::format("copy_file_range stopped with {} bytes left", length);
    length -= static_cast<uint64_t>(n);
  }
  return {};
}

Problem FsxFile::sync(bool data_only) {
  int rc = data_only ? fdatasync(plain_) : fsync(plain_);
  return rc != 0 ? failed("fsync") : Problem{};
}

Problem FsxFile::size_is(uint64_t expected) const {
  struct stat by_fd{}, by_path{};
  if (fstat(plain_, &by_fd) != 0) return failed("fstat");
  if (stat(path_.c_str(), &by_path) != 0) return failed("stat");
  if (static_cast<uint64_t>(by_fd.st_size) != expected) return fmt::format("fstat says {} bytes, expected {}", by_fd.st_size, expected);
  if (static_cast<uint64_t>(by_path.st_size) != expected) return fmt::format("stat says {} bytes, expected {}", by_path.st_size, expected);
  auto end = lseek(plain_, 0, SEEK_END);
  if (static_cast<uint64_t>(end) != expected) return fmt::format("lseek to the end says {}, expected {}", end, expected);
  return {};
}

Problem FsxFile::read_at(uint64_t offset, uint64_t length, bool direct, Bytes& out) const {
  auto buffer = aligned(length);
  auto n = pread(direct ? direct_ : plain_, buffer.get(), length, static_cast<off_t>(offset));
  if (n < 0) return failed("pread");
  out.assign(buffer.get(), buffer.get() + n);
  return {};
}

Problem FsxFile::map_read(uint64_t offset, uint64_t length, Bytes& out) const {
  int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open O_RDONLY");
  Problem problem;
  {
    Mapping mapping(fd, offset, length, PROT_READ);
    if (mapping.data() == nullptr) problem = failed("mmap PROT_READ");
    else out.assign(mapping.data(), mapping.data() + length);
  }
  close(fd);
  return problem;
}

Problem FsxFile::next_data(uint64_t offset, std::optional<uint64_t>& data, std::optional<uint64_t>& hole) const {
  for (auto [whence, out] : {std::pair{SEEK_DATA, &data}, std::pair{SEEK_HOLE, &hole}}) {
    auto at = lseek(plain_, static_cast<off_t>(offset), whence);
    if (at < 0 && errno != ENXIO) return failed("lseek SEEK_DATA/SEEK_HOLE");
    *out = at < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(at));
  }
  return {};
}

}  // namespace nacre::posix
