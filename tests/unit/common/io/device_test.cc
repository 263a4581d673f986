// SPDX-License-Identifier: Apache-2.0
// The file devices against a real file: io_uring and workers, buffered and direct.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/units.h"
#include "common/io/block_device.h"
#include "common/runtime/sync.h"

namespace nacre {
namespace {
using testing::HasSubstr;

constexpr uint64_t kCapacity = 64 * MiB;

/// Runs a task on loop `i` and waits for what it returns.
template <class T>
T on_loop(Runtime& runtime, size_t i, Task<T> task) {
  std::promise<T> promise;
  auto body = [](std::promise<T>& p, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  };
  runtime.loop(i).spawn(body(promise, std::move(task)));
  return promise.get_future().get();
}

Buffer pattern(size_t size, uint32_t seed) {
  Buffer b = Buffer::allocate(size);
  auto* words = reinterpret_cast<uint32_t*>(b.data());
  for (size_t i = 0; i < size / 4; ++i) words[i] = seed * 2654435761u + static_cast<uint32_t>(i);
  return b;
}
bool same(const Buffer& a, const Buffer& b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0; }
bool zeros(const Buffer& b, size_t from) {
  return std::all_of(b.data() + from, b.data() + b.size(), [](std::byte x) { return x == std::byte{0}; });
}

struct How { bool uring, direct; const char* kind; };
void PrintTo(const How& how, std::ostream* out) { *out << how.kind; }

class Device : public testing::TestWithParam<How> {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nacre-device-XXXXXX";
    const int fd = ::mkstemp(name);
    ASSERT_GE(fd, 0);
    path_ = name;
    ASSERT_EQ(::ftruncate(fd, kCapacity), 0);
    ::close(fd);
    runtime_ = std::make_unique<Runtime>(RuntimeOptions{.loops = 2, .pin = false, .workers = 2});
    runtime_->start();
    auto opened = open();
    ASSERT_TRUE(opened) << opened.error().message();
    device_ = std::move(*opened);
  }
  void TearDown() override {
    device_.reset();
    runtime_->stop();
    ::unlink(path_.c_str());
  }
  Result<std::unique_ptr<BlockDevice>> open(Nanos lock_wait = 0) {
    return open_file_device(*runtime_, {.path = path_, .direct = GetParam().direct, .allow_uring = GetParam().uring, .queue_depth = 8, .lock_wait = lock_wait});
  }
  Result<void> write(uint64_t offset, Buffer b, size_t loop = 0) { return on_loop(*runtime_, loop, device_->write(offset, b)); }
  Buffer read(uint64_t offset, size_t size, size_t loop = 0) {
    Buffer b = Buffer::allocate(size);
    std::memset(b.data(), 0xee, size);
    auto r = on_loop(*runtime_, loop, device_->read(offset, b));
    EXPECT_TRUE(r) << r.error().message();
    return b;
  }
  uint64_t blocks_used() {
    struct stat st {};
    EXPECT_EQ(::stat(path_.c_str(), &st), 0);
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }

  std::string path_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<BlockDevice> device_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, Device,
                         testing::Values(How{true, false, "io_uring buffered"}, How{true, true, "io_uring direct"}, How{false, false, "threads buffered"}, How{false, true, "threads direct"}),
                         [](const auto& info) {
                           std::string s = info.param.kind;
                           std::replace(s.begin(), s.end(), ' ', '_');
                           return s;
                         });

TEST_P(Device, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), GetParam().kind);
  EXPECT_EQ(device_->size(), kCapacity);
  EXPECT_GT(device_->backing_free(), 0u);
}

TEST_P(Device, ReadsBackWhatWasWrittenOnEveryLoop) {
  for (size_t loop : {0, 1}) {
    const Buffer small = pattern(4 * KiB, 1 + static_cast<uint32_t>(loop)), large = pattern(1 * MiB, 7);
    ASSERT_TRUE(write(8 * KiB, small, loop));
    ASSERT_TRUE(write(kCapacity - 1 * MiB, large, loop));
    EXPECT_TRUE(same(read(8 * KiB, 4 * KiB, 1 - loop), small));
    EXPECT_TRUE(same(read(kCapacity - 1 * MiB, 1 * MiB, loop), large));
  }
  EXPECT_TRUE(zeros(read(16 * MiB, 64 * KiB), 0)) << "a hole reads as zeros";
}

TEST_P(Device, MoreRequestsThanTheQueueHolds) {
  constexpr size_t kCount = 200;  // the queue holds 8
  auto body = [](BlockDevice* d) -> Task<size_t> {
    std::vector<Task<Result<void>>> writes, reads;
    std::vector<Buffer> out;
    for (uint32_t i = 0; i < kCount; ++i) writes.push_back(d->write(i * 128 * KiB, pattern(128 * KiB, i)));
    size_t good = 0;
    for (auto& r : co_await when_all(std::move(writes))) good += r.has_value();
    for (size_t i = 0; i < kCount; ++i) {
      out.push_back(Buffer::allocate(128 * KiB));
      reads.push_back(d->read(i * 128 * KiB, out.back()));
    }
    for (auto& r : co_await when_all(std::move(reads))) good += r.has_value();
    for (uint32_t i = 0; i < kCount; ++i) good += same(out[i], pattern(128 * KiB, i));
    co_return good;
  };
  EXPECT_EQ(on_loop(*runtime_, 0, body(device_.get())), 3 * kCount);
}

TEST_P(Device, ColdReadsComplete) {
  const Buffer data = pattern(2 * MiB, 5);
  ASSERT_TRUE(write(0, data));
  ASSERT_TRUE(on_loop(*runtime_, 0, device_->sync()));
  const int fd = ::open(path_.c_str(), O_RDONLY);
  ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  ::close(fd);
  for (uint64_t at : {1536 * KiB, 4 * KiB, 512 * KiB}) EXPECT_TRUE(same(read(at, 64 * KiB), data.slice(at, 64 * KiB))) << at;
  EXPECT_TRUE(same(read(0, 2 * MiB), data));
}

TEST_P(Device, AReadThatMeetsTheEndOfTheFileIsFilledWithZeros) {
  const Buffer data = pattern(64 * KiB, 9);
  ASSERT_TRUE(write(0, data));
  for (off_t end : {off_t{32 * KiB + 100}, off_t{32 * KiB}, off_t{0}}) {
    ASSERT_EQ(::truncate(path_.c_str(), end), 0);
    const Buffer b = read(0, 64 * KiB);
    EXPECT_EQ(std::memcmp(b.data(), data.data(), static_cast<size_t>(end)), 0) << end;
    EXPECT_TRUE(zeros(b, static_cast<size_t>(end))) << end;
  }
  EXPECT_TRUE(zeros(read(48 * MiB, 1 * MiB), 0));
}

TEST_P(Device, PunchGivesSpaceBack) {
  ASSERT_TRUE(write(0, pattern(8 * MiB, 3)));
  ASSERT_TRUE(on_loop(*runtime_, 0, device_->sync()));
  const uint64_t before = blocks_used();
  auto r = on_loop(*runtime_, 0, device_->punch(2 * MiB, 4 * MiB));
  ASSERT_TRUE(r) << r.error().message();
  ASSERT_TRUE(on_loop(*runtime_, 0, device_->sync()));
  EXPECT_LE(blocks_used() + 4 * MiB, before + 64 * KiB);
  EXPECT_TRUE(zeros(read(2 * MiB, 4 * MiB), 0));
  EXPECT_TRUE(same(read(0, 1 * MiB), pattern(8 * MiB, 3).slice(0, 1 * MiB)));
  struct stat st {};
  ASSERT_EQ(::stat(path_.c_str(), &st), 0);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), kCapacity) << "the size stays";
}

TEST_P(Device, RefusesWhatIsMisalignedOrPastTheCapacity) {
  const Buffer b = pattern(8 * KiB, 1);
  EXPECT_EQ(write(100, b).error().code, Errc::kInval);
  EXPECT_EQ(write(0, b.slice(0, 100)).error().code, Errc::kInval);
  EXPECT_EQ(write(0, b.slice(512, 4 * KiB)).error().code, Errc::kInval);
  EXPECT_EQ(write(kCapacity - 4 * KiB, b).error().code, Errc::kInval);
  EXPECT_EQ(write(~uint64_t{0} - 4 * KiB + 1, b).error().code, Errc::kInval);
  EXPECT_EQ(on_loop(*runtime_, 0, device_->punch(0, 100)).error().code, Errc::kInval);
  EXPECT_TRUE(on_loop(*runtime_, 0, device_->punch(0, 0)));
}

TEST_P(Device, IsOpenedOnce) {
  auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kInUse);
  EXPECT_THAT(second.error().detail, HasSubstr("in use by another process"));
  device_.reset();
  auto third = open();
  EXPECT_TRUE(third) << third.error().message();
}

// A ring that has the file registered holds it until the kernel has taken the ring apart, some time after it was closed.
TEST_P(Device, IsFreeAsSoonAsItIsClosed) {
  for (int round = 0; round < 20; ++round) {
    for (size_t loop : {0, 1}) ASSERT_TRUE(write(loop * 64 * KiB, pattern(64 * KiB, 1), loop));
    device_.reset();
    auto again = open();
    ASSERT_TRUE(again) << again.error().message();
    device_ = std::move(*again);
  }
}

TEST_P(Device, WaitsForTheLockIfTold) {
  device_.reset();
  const int other = ::open(path_.c_str(), O_RDWR);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  std::thread holder([other] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(other);
  });
  auto opened = open(10 * kSecond);
  holder.join();
  EXPECT_TRUE(opened) << opened.error().message();
}

TEST(OpenFileDevice, SaysWhyItCannot) {
  Runtime runtime(RuntimeOptions{.loops = 1, .pin = false, .workers = 1});
  EXPECT_EQ(open_file_device(runtime, {.path = "/tmp/nacre-no-such-file"}).error().code, Errc::kNoEnt);
  EXPECT_FALSE(open_file_device(runtime, {.path = "/tmp"}));
}

/// What a hardened site or a container's seccomp profile does.
void refuse_io_uring() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{std::size(code), code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(77);
}

TEST(OpenFileDevice, FallsBackToWorkersWhereIoUringIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        refuse_io_uring();
        char name[] = "/tmp/nacre-device-XXXXXX";
        const int fd = ::mkstemp(name);
        const bool sized = ::ftruncate(fd, 1 * MiB) == 0;
        Runtime runtime(RuntimeOptions{.loops = 1, .pin = false, .workers = 1});
        runtime.start();
        auto device = open_file_device(runtime, {.path = name});
        ::unlink(name);
        bool good = sized && device && (*device)->kind() == "threads buffered";
        good = good && on_loop(runtime, 0, (*device)->write(0, pattern(4 * KiB, 1))).has_value();
        ::_exit(good ? 0 : 1);
      },
      testing::ExitedWithCode(0), "io_uring is not available");
}

}  // namespace
}  // namespace nacre
