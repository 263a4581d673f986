// SPDX-License-Identifier: Apache-2.0
#include "common/io/buffer.h"

#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/units.h"

namespace nacre {
namespace {

TEST(Buffer, AlignedAndLargeEnough) {
  for (size_t size : {size_t{1}, size_t{4096}, size_t{4097}, size_t{20000}, size_t{1} << 20, (size_t{1} << 20) + 8192, Buffer::kMaxPooled, Buffer::kMaxPooled + 1}) {
    Buffer b = Buffer::allocate(size);
    EXPECT_EQ(b.size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 4096, 0u);
    std::memset(b.data(), 0xab, size);
  }
  EXPECT_TRUE(Buffer::allocate(0).empty());
}

TEST(Buffer, MemoryComesBackToThePool) {
  // Other tests may have filled the pool: what is free there is taken first, so that there is room and nothing of this size.
  std::vector<Buffer> taken;
  for (size_t size : {size_t{1} << 20, size_t{100'000}})
    for (const uint64_t before = Buffer::pool_bytes(); Buffer::pool_bytes() == before;) taken.push_back(Buffer::allocate(size));
  std::byte* first = Buffer::allocate(100'000).data();
  Buffer again = Buffer::allocate(99'000);
  EXPECT_EQ(again.data(), first);
  const uint64_t before = Buffer::pool_bytes();
  { Buffer more = Buffer::allocate(100'000); EXPECT_GT(Buffer::pool_bytes(), before); }
}

TEST(Buffer, PoolIsBounded) {
  {
    std::vector<Buffer> many;
    for (int i = 0; i < 200; ++i) many.push_back(Buffer::allocate(1 << 20));
    EXPECT_GE(Buffer::pool_bytes(), 200 * MiB);
  }
  EXPECT_LE(Buffer::pool_bytes(), 129 * MiB);
}

TEST(Buffer, SlicesShareMemory) {
  Buffer b = Buffer::allocate(8192);
  std::memset(b.data(), 1, 8192);
  Buffer s = b.slice(4096, 10);
  std::byte* p = b.data();
  b = {};
  EXPECT_EQ(s.data(), p + 4096);
  EXPECT_EQ(s.size(), 10u);
  EXPECT_EQ(s.use_count(), 1);
  EXPECT_EQ(s.data()[0], std::byte{1});
  EXPECT_TRUE(s.slice(10, 0).empty());
}

TEST(Buffer, WrapKeepsItsOwner) {
  auto owner = std::make_shared<std::vector<std::byte>>(100);
  std::weak_ptr<std::vector<std::byte>> weak = owner;
  Buffer b = Buffer::wrap(owner, owner->data(), 100);
  owner.reset();
  Buffer s = b.slice(50, 50);
  b = {};
  EXPECT_FALSE(weak.expired());
  s = {};
  EXPECT_TRUE(weak.expired());
}

TEST(Buffer, CopyOf) {
  std::vector<std::byte> v(5000, std::byte{9});
  Buffer b = Buffer::copy_of(v);
  EXPECT_TRUE(std::equal(v.begin(), v.end(), b.span().begin()));
}

TEST(Buffer, ThreadsGetDistinctMemory) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      for (int round = 0; round < 500; ++round) {
        std::vector<Buffer> mine;
        for (int i = 0; i < 8; ++i) {
          mine.push_back(Buffer::allocate(16384));
          std::memset(mine.back().data(), t * 8 + i, 16384);
        }
        for (int i = 0; i < 8; ++i)
          if (mine[static_cast<size_t>(i)].data()[16383] != static_cast<std::byte>(t * 8 + i)) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nacre
