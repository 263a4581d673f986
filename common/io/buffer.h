// SPDX-License-Identifier: Apache-2.0
// Buffer: a reference-counted slice of memory that is 4 KiB-aligned and pooled per size class. Bulk bytes travel in
// Buffers from socket to disk and back without being copied. Copying a Buffer shares the memory. Thread-safe as shared_ptr is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace nacre {

class Buffer {
 public:
  Buffer() = default;
  /// At least `size` bytes, aligned to 4 KiB, content undefined. Sizes up to kMaxPooled come from a pool.
  static Buffer allocate(size_t size);
  /// Memory somebody else owns; `owner` is kept as long as a slice lives.
  static Buffer wrap(std::shared_ptr<void> owner, std::byte* data, size_t size);
  static Buffer copy_of(std::span<const std::byte> bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<std::byte> span() const { return {data_, size_}; }
  /// Same memory, from `offset`, `length` bytes. offset + length ≤ size().
  Buffer slice(size_t offset, size_t length) const;
  long use_count() const { return owner_.use_count(); }

  static constexpr size_t kMaxPooled = 2 * 1024 * 1024;
  static uint64_t pool_bytes();  ///< bytes the pool holds, in use or free

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace nacre
