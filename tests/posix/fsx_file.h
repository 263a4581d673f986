// SPDX-License-Identifier: Apache-2.0
// The file under test of fsx_model, through one mount: the system calls of every operation, each complete or an error text.
// One thread. Buffers for O_DIRECT are aligned to kBlock.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace nacre::posix {

constexpr uint64_t kBlock = 4096;  ///< alignment of O_DIRECT and of mapped pages

using Bytes = std::vector<uint8_t>;
using Problem = std::optional<std::string>;  ///< none: done

class FsxFile {
 public:
  FsxFile(std::string path, std::string mount_name) : path_(std::move(path)), mount_name_(std::move(mount_name)) {}
  ~FsxFile() { close_all(); }
  FsxFile(const FsxFile&) = delete;
  FsxFile& operator=(const FsxFile&) = delete;

  const std::string& mount_name() const { return mount_name_; }
  const std::string& path() const { return path_; }

  Problem open_all(bool direct);  ///< buffered, appending and (if wanted) direct descriptors
  Problem reopen(bool direct);
  void close_all();

  Problem write_at(uint64_t offset, std::span<const uint8_t> data, bool direct);
  Problem append(std::span<const uint8_t> data);
  Problem map_write(uint64_t offset, std::span<const uint8_t> data);
  Problem truncate_to(uint64_t size, bool by_path);
  Problem allocate(int mode, uint64_t offset, uint64_t length);
  Problem copy_range(uint64_t from, uint64_t to, uint64_t length);
  Problem sync(bool data_only);

  Problem size_is(uint64_t expected) const;  ///< by fstat and by stat of the path
  Problem read_at(uint64_t offset, uint64_t length, bool direct, Bytes& out) const;
  Problem map_read(uint64_t offset, uint64_t length, Bytes& out) const;
  Problem next_data(uint64_t offset, std::optional<uint64_t>& data, std::optional<uint64_t>& hole) const;  ///< SEEK_DATA, SEEK_HOLE

 private:
  std::string path_, mount_name_;
  int plain_ = -1, append_ = -1, direct_ = -1;
};

}  // namespace nacre::posix
