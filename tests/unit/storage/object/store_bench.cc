// SPDX-License-Identifier: Apache-2.0
// What the object store alone costs: storage_object_bench DIR [loops]. Wall time and CPU of the whole process per operation,
// with the real device and index in DIR (which must not exist; it is removed).
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>

#include "common/runtime/sync.h"
#include "common/base/units.h"
#include "common/wire/checksum.h"
#include "storage/object/object_store.h"

using namespace nacre;
using namespace nacre::storage;

namespace {
constexpr size_t kInFlight = 16;  ///< per loop

double cpu_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

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

struct Work {
  ObjectStore* store = nullptr;
  size_t size = 4096;
  bool write = true, random = false, sync = false;
  uint64_t span = 256 * MiB;  ///< of the object
  uint64_t count = 0;
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> failed{0};
};

Task<bool> one(Work& w, uint64_t n, Buffer data, ObjectId id) {
  uint64_t slot = n;
  if (w.random) slot = (n * 2654435761u) % (w.span / w.size);
  const uint64_t offset = slot * w.size % w.span;
  if (!w.write) co_return (co_await w.store->read(id, offset, static_cast<uint32_t>(w.size))).has_value();
  WriteArgs a;
  a.object = id;
  a.fileset = kRootFileset;
  a.epoch = Epoch(1);
  a.offset = offset;
  a.data = data;
  a.sums = wire::range_sums(id, offset, data.span());  // as the client would: part of what is measured
  a.sync = w.sync;
  co_return (co_await w.store->write(std::move(a))).has_value();
}

Task<void> worker(Work& w, ObjectId id) {
  Buffer data = Buffer::allocate(w.size);
  std::memset(data.data(), 0x5a, data.size());
  for (;;) {
    const uint64_t n = w.next.fetch_add(1);
    if (n >= w.count) co_return;
    w.failed += !co_await one(w, n, data, id);
  }
}

Task<bool> fan(Work& w, ObjectId id) {
  std::vector<Task<bool>> tasks;
  auto as_bool = [](Work& work, ObjectId object) -> Task<bool> {
    co_await worker(work, object);
    co_return true;
  };
  for (size_t i = 0; i < kInFlight; ++i) tasks.push_back(as_bool(w, id));
  (void)co_await when_all(std::move(tasks));
  co_return true;
}

void measure(Runtime& runtime, ObjectStore& store, const char* name, size_t size, uint64_t count, bool write, bool random, bool sync = false) {
  Work w;
  w.store = &store;
  w.size = size, w.count = count, w.write = write, w.random = random, w.sync = sync;
  const double cpu = cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::promise<bool>> done(runtime.size());
  auto body = [](std::promise<bool>& p, Task<bool> t) -> Task<void> {
    bool value = co_await std::move(t);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  };
  for (size_t i = 0; i < runtime.size(); ++i) runtime.loop(i).spawn(body(done[i], fan(w, ObjectId{Ino(7), Generation(1), 0, 0})));
  for (auto& d : done) d.get_future().get();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double used = cpu_seconds() - cpu;
  std::printf("%-28s %8.0f/s %8.1f MB/s %7.1f us CPU each%s\n", name, static_cast<double>(count) / wall, static_cast<double>(count * size) / wall / 1e6,
              used / static_cast<double>(count) * 1e6, w.failed ? "  FAILED" : "");
}
}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: storage_object_bench DIR [loops]\n"), 2;
  const std::string dir = argv[1];
  FormatOptions f;
  f.capacity = 2 * GiB;
  if (auto ok = ObjectStore::format(dir, f); !ok) return std::fprintf(stderr, "%s\n", ok.error().message().c_str()), 1;
  {
    Runtime runtime(RuntimeOptions{.loops = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1, .workers = 2});
    runtime.start();
    auto store = on_loop(runtime, 0, ObjectStore::open(runtime, dir, {}));
    if (!store) return std::fprintf(stderr, "%s\n", store.error().message().c_str()), 1;
    std::printf("%s\n", (*store)->status().io.c_str());
    measure(runtime, **store, "write 1 MiB sequential", MiB, 256, true, false);
    measure(runtime, **store, "read 1 MiB sequential", MiB, 256, false, false);
    measure(runtime, **store, "overwrite 4 KiB sequential", 4096, 60'000, true, false);
    measure(runtime, **store, "overwrite 4 KiB random", 4096, 60'000, true, true);
    measure(runtime, **store, "read 4 KiB random", 4096, 60'000, false, true);
    measure(runtime, **store, "overwrite 4 KiB random, sync", 4096, 5'000, true, true, true);
    if (auto ok = on_loop(runtime, 0, (*store)->close()); !ok) return std::fprintf(stderr, "%s\n", ok.error().message().c_str()), 1;
    runtime.stop();
  }
  std::filesystem::remove_all(dir);
  return 0;
}
