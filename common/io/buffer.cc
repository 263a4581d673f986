// SPDX-License-Identifier: Apache-2.0
#include "common/io/buffer.h"

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "common/base/units.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(p, n) (void)(p), (void)(n)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) (void)(p), (void)(n)
#endif

namespace nacre {
namespace {

constexpr uint64_t kMaxFree = 128 * MiB;  ///< free memory the pool keeps: 100 requests of 1 MiB in flight; more goes back to the system

/// Size classes: 4 KiB · {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, …}: four per doubling, so at most a quarter is wasted.
constexpr size_t kSteps = 4;
size_t class_of(size_t size) {
  const size_t blocks = (size + kBlockSize - 1) / kBlockSize;
  if (blocks <= kSteps) return blocks - 1;
  const size_t shift = std::bit_width(blocks - 1) - 3;  // blocks - 1 = 1xx… : the two bits after the first choose the step
  return kSteps * (shift + 1) + ((blocks - 1) >> shift) - kSteps;
}
constexpr size_t size_of_class(size_t c) {
  if (c < kSteps) return (c + 1) * kBlockSize;
  const size_t shift = c / kSteps - 1;
  return ((c % kSteps + kSteps + 1) << shift) * kBlockSize;
}
constexpr size_t kClasses = 32;
static_assert(size_of_class(kClasses - 1) == Buffer::kMaxPooled);

std::atomic<uint64_t> pool_total{0};

std::byte* system_allocate(size_t size) {
  void* p = std::aligned_alloc(kBlockSize, round_up(size, kBlockSize));
  if (!p) throw std::bad_alloc();
  return static_cast<std::byte*>(p);
}

class Pool {
 public:
  std::byte* take(size_t c) {
    {
      Class& k = classes_[c];
      std::lock_guard lock(k.mutex);
      if (!k.free.empty()) {
        std::byte* p = k.free.back();
        k.free.pop_back();
        free_bytes_.fetch_sub(size_of_class(c), std::memory_order_relaxed);
        ASAN_UNPOISON_MEMORY_REGION(p, size_of_class(c));
        return p;
      }
    }
    std::byte* p = system_allocate(size_of_class(c));
    pool_total.fetch_add(size_of_class(c), std::memory_order_relaxed);
    return p;
  }

  void give(size_t c, std::byte* p) {
    const size_t size = size_of_class(c);
    if (free_bytes_.fetch_add(size, std::memory_order_relaxed) + size <= kMaxFree) {
      ASAN_POISON_MEMORY_REGION(p, size);
      Class& k = classes_[c];
      std::lock_guard lock(k.mutex);
      k.free.push_back(p);
      return;
    }
    free_bytes_.fetch_sub(size, std::memory_order_relaxed);
    pool_total.fetch_sub(size, std::memory_order_relaxed);
    std::free(p);
  }

 private:
  struct alignas(64) Class {
    std::mutex mutex;
    std::vector<std::byte*> free;
  };
  std::array<Class, kClasses> classes_;
  std::atomic<uint64_t> free_bytes_{0};
};

Pool& pool() {
  static Pool* p = new Pool;  // never destroyed: buffers may outlive static destructors
  return *p;
}

}  // namespace

Buffer Buffer::allocate(size_t size) {
  Buffer b;
  if (size == 0) return b;
  if (size <= kMaxPooled) {
    const size_t c = class_of(size);
    b.data_ = pool().take(c);
    b.owner_ = std::shared_ptr<void>(b.data_, [c](void* p) { pool().give(c, static_cast<std::byte*>(p)); });
  } else {
    b.data_ = system_allocate(size);
    b.owner_ = std::shared_ptr<void>(b.data_, [](void* p) { std::free(p); });
  }
  b.size_ = size;
  return b;
}

Buffer Buffer::wrap(std::shared_ptr<void> owner, std::byte* data, size_t size) {
  Buffer b;
  b.owner_ = std::move(owner);
  b.data_ = data;
  b.size_ = size;
  return b;
}

Buffer Buffer::copy_of(std::span<const std::byte> bytes) {
  Buffer b = allocate(bytes.size());
  if (!bytes.empty()) std::memcpy(b.data_, bytes.data(), bytes.size());
  return b;
}

Buffer Buffer::slice(size_t offset, size_t length) const {
  assert(offset <= size_ && length <= size_ - offset);
  return wrap(owner_, data_ + offset, length);
}

uint64_t Buffer::pool_bytes() { return pool_total.load(std::memory_order_relaxed); }

}  // namespace nacre
