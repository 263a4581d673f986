// SPDX-License-Identifier: Apache-2.0
// Measures a file device on one loop: operations per second and latency by size, kind and depth.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include <fmt/format.h>

#include "common/base/units.h"
#include "common/io/block_device.h"
#include "common/runtime/sync.h"

namespace nacre {
namespace {
struct Run { const char* name; bool write; uint64_t size; size_t depth; double seconds; };

struct Outcome { uint64_t ops = 0; double seconds = 0; };

Task<void> worker(BlockDevice& d, Run r, uint64_t seed, std::shared_ptr<uint64_t> ops, Nanos until) {
  Buffer b = Buffer::allocate(r.size);
  std::memset(b.data(), static_cast<int>(seed), b.size());
  const uint64_t places = d.size() / r.size;
  for (uint64_t x = seed * 7919 + 1; Loop::current()->clock().boot() < until;) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t at = (x >> 33) % places * r.size;
    auto done = r.write ? co_await d.write(at, b) : co_await d.read(at, b);
    if (!done) fmt::print(stderr, "{}\n", done.error().message());
    ++*ops;
  }
}

Task<void> measure(BlockDevice& d, Run r, std::promise<Outcome>& out) {
  auto ops = std::make_shared<uint64_t>(0);
  const Nanos start = Loop::current()->clock().boot();
  std::vector<Task<int>> tasks;
  auto wrap = [](BlockDevice& dev, Run run, uint64_t i, std::shared_ptr<uint64_t> n, Nanos until) -> Task<int> {
    co_await worker(dev, run, i, n, until);
    co_return 0;
  };
  for (size_t i = 0; i < r.depth; ++i) tasks.push_back(wrap(d, r, i, ops, start + static_cast<Nanos>(r.seconds * kSecond)));
  co_await when_all(std::move(tasks));
  out.set_value({*ops, static_cast<double>(Loop::current()->clock().boot() - start) / kSecond});
}

/// Writes back and forgets the file's pages: a copy-on-write store writes where nothing was cached.
void drop(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  if (fd < 0) return;
  (void)!::fdatasync(fd);
  (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

int run(const std::string& path, bool direct, bool uring) {
  const uint64_t capacity = 512 * MiB;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || ::posix_fallocate(fd, 0, capacity) != 0) return 1;
  ::close(fd);
  Runtime runtime(RuntimeOptions{.loops = 1, .pin = true, .workers = 4});
  runtime.start();
  auto device = open_file_device(runtime, {.path = path, .direct = direct, .allow_uring = uring});
  if (!device) return fmt::print(stderr, "{}\n", device.error().message()), 1;
  fmt::print("{}\n", (*device)->kind());
  const Run runs[] = {{"write 1M x4", true, MiB, 4, 1.5}, {"write 4K x1 (uncached)", true, 4 * KiB, 1, 1}, {"write 4K x32 (uncached)", true, 4 * KiB, 32, 1},
                      {"read 1M x4 (cold first)", false, MiB, 4, 1}, {"read 4K x1 (cold first)", false, 4 * KiB, 1, 1}, {"read 4K x32 (cold first)", false, 4 * KiB, 32, 2}};
  for (const Run& r : runs) {
    drop(path);
    std::promise<Outcome> p;
    runtime.loop(0).spawn(measure(**device, r, p));
    const Outcome o = p.get_future().get();
    fmt::print("  {:24} {:9.0f}/s {:8.1f} us {:8.0f} MiB/s\n", r.name, o.ops / o.seconds, o.seconds / o.ops * 1e6 * r.depth, o.ops * r.size / o.seconds / MiB);
  }
  device->reset();
  runtime.stop();
  ::unlink(path.c_str());
  return 0;
}
}  // namespace
}  // namespace nacre

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print(stderr, "usage: device_bench FILE [direct] [threads]\n"), 2;
  bool direct = false, uring = true;
  for (int i = 2; i < argc; ++i) {
    direct = direct || std::string_view(argv[i]) == "direct";
    uring = uring && std::string_view(argv[i]) != "threads";
  }
  return nacre::run(argv[1], direct, uring);
}
