// SPDX-License-Identifier: Apache-2.0
// A real process with the real device and the real index, killed with SIGKILL under load: all that it acknowledged is there at the
// next start. And two event loops at once on one object, for the sanitizers.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {

constexpr uint64_t kCapacity = 256 * MiB;

FormatOptions format_options() {
  FormatOptions f;
  f.cluster_id = test_uuid(1);
  f.uuid = test_uuid(2);
  f.ost = OstId(0);
  f.capacity = kCapacity;
  return f;
}
StoreOptions store_options() {
  StoreOptions o;
  o.cluster_id = test_uuid(1);
  o.block_cache = 8 * MiB;
  o.txg_interval = 50 * kMillisecond;
  return o;
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

struct TempDir {
  std::string path = temp_dir();
  ~TempDir() { std::filesystem::remove_all(path); }
};

/// What write number `n` puts: which object, where, which bytes.
struct Write { ObjectId object; uint64_t offset; size_t size; };
Write nth(uint64_t n) {
  SeededRng rng(n + 1);
  const size_t size = 1 + rng.below(20'000);
  return {Rig::object(1 + rng.below(5)), rng.below(4 * MiB), size};
}

Task<void> child_writes(ObjectStore& store, int out) {
  for (uint64_t n = 0;; ++n) {
    const Write w = nth(n);
    WriteArgs args = Rig::args(w.object, w.offset, Rig::bytes(w.size, n));
    auto ok = co_await store.write(std::move(args));
    if (!ok) ::_exit(2);
    if (::write(out, &n, sizeof n) != sizeof n) ::_exit(3);
  }
}

[[noreturn]] void child(const std::string& dir, int out) {
  Runtime runtime(RuntimeOptions{.loops = 1, .pin = false, .workers = 2});
  runtime.start();
  auto store = on_loop(runtime, 0, ObjectStore::open(runtime, dir, store_options()));
  if (!store) ::_exit(1);
  runtime.loop(0).spawn(child_writes(**store, out));
  for (;;) ::pause();
}

TEST(Kill, WhatWasAcknowledgedSurvivesSigkill) {
  TempDir t;
  const std::string dir = t.path + "/ost";
  ASSERT_TRUE(ObjectStore::format(dir, format_options()));
  std::map<ObjectId, std::string> model;
  uint64_t applied = 0;  // writes the model holds; each child begins anew, so only the first is kept
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::close(pipes[0]);
    child(dir, pipes[1]);
  }
  ::close(pipes[1]);
  const uint64_t kill_at = 700;
  uint64_t n = 0, last = 0;
  bool killed = false;
  while (::read(pipes[0], &n, sizeof n) == sizeof n) {
    last = n;
    if (n >= kill_at && !killed) {
      ASSERT_EQ(::kill(pid, SIGKILL), 0);
      killed = true;
    }
  }
  ::close(pipes[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(killed && WIFSIGNALED(status)) << "the child ended by itself, status " << status;
  applied = last + 1;
  for (uint64_t i = 0; i < applied; ++i) {
    const Write w = nth(i);
    std::string& content = model[w.object];
    if (content.size() < w.offset + w.size) content.resize(w.offset + w.size, '\0');
    const Buffer b = Rig::bytes(w.size, i);
    std::memcpy(content.data() + w.offset, b.data(), w.size);
  }

  Runtime runtime(RuntimeOptions{.loops = 2, .pin = false, .workers = 2});
  runtime.start();
  auto opened = on_loop(runtime, 0, ObjectStore::open(runtime, dir, store_options()));
  ASSERT_TRUE(opened) << opened.error().message();
  auto& store = **opened;
  EXPECT_FALSE(store.registration().clean);
  EXPECT_EQ(store.registration().incarnation, 2u);
  // The write after the last one that was heard of may be there too.
  const Write next = nth(applied);
  uint64_t allocated = 0;
  for (auto& [object, content] : model) {
    for (uint64_t offset = 0; offset < content.size(); offset += kMaxIo) {
      auto r = on_loop(runtime, offset / kMaxIo % 2, store.read(object, offset, kMaxIo));
      ASSERT_TRUE(r) << r.error().message();
      for (size_t i = 0; i < r->sums.size(); ++i) {
        const auto block = r->payload.span().subspan(i * kBlockSize, kBlockSize);
        const uint64_t at = offset + i * kBlockSize;
        if (r->sums[i]) ASSERT_EQ(wire::block_sum(object, at / kBlockSize, block), r->sums[i]);
        if (object == next.object && at < next.offset + next.size && next.offset < at + kBlockSize) continue;
        for (size_t b = 0; b < kBlockSize && at + b < content.size(); ++b)
          ASSERT_EQ(static_cast<char>(block[b]), content[at + b]) << "object " << fmt::format("{}", object) << " offset " << at + b;
      }
    }
    auto info = on_loop(runtime, 0, store.stat({object}));
    allocated += info->at(0).allocated;
  }
  EXPECT_EQ(store.usage().used, allocated);
  ASSERT_TRUE(on_loop(runtime, 1, store.close()));
  runtime.stop();
}

Task<size_t> write_blocks(ObjectStore& store, ObjectId object, uint64_t first, uint64_t step, uint64_t count) {
  size_t failures = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = (first + i * step) * 1'000;  // not aligned: the two loops meet in blocks
    WriteArgs args = Rig::args(object, offset, Rig::bytes(1'000, first + i * step));
    failures += !co_await store.write(std::move(args));
    if (i % 16 == 0) failures += !co_await store.read(object, 0, 100'000);
    if (i % 50 == 0) failures += !co_await store.stat({object});
  }
  co_return failures;
}

TEST(Threads, TwoLoopsShareAnObject) {
  TempDir t;
  const std::string dir = t.path + "/ost";
  ASSERT_TRUE(ObjectStore::format(dir, format_options()));
  Runtime runtime(RuntimeOptions{.loops = 2, .pin = false, .workers = 2});
  runtime.start();
  auto opened = on_loop(runtime, 0, ObjectStore::open(runtime, dir, store_options()));
  ASSERT_TRUE(opened) << opened.error().message();
  auto& store = **opened;
  constexpr uint64_t kEach = 300;
  const ObjectId object = Rig::object(1);
  std::promise<size_t> done[2];
  auto body = [](std::promise<size_t>& p, Task<size_t> work) -> Task<void> {
    size_t value = co_await std::move(work);  // the task is gone before anybody hears of its end
    p.set_value(std::move(value));
  };
  for (size_t i = 0; i < 2; ++i) runtime.loop(i).spawn(body(done[i], write_blocks(store, object, i, 2, kEach)));
  for (auto& d : done) EXPECT_EQ(d.get_future().get(), 0u);
  std::string expected;
  for (uint64_t i = 0; i < 2 * kEach; ++i) {
    const Buffer b = Rig::bytes(1'000, i);
    expected.append(reinterpret_cast<const char*>(b.data()), b.size());
  }
  auto r = on_loop(runtime, 1, store.read(object, 0, static_cast<uint32_t>(expected.size())));
  ASSERT_TRUE(r);
  EXPECT_EQ(r->size, expected.size());
  EXPECT_EQ(std::memcmp(r->payload.data(), expected.data(), expected.size()), 0);
  ASSERT_TRUE(on_loop(runtime, 0, store.close()));
  EXPECT_EQ(on_loop(runtime, 0, store.read(object, 0, 1)).error().code, Errc::kShutdown);
  runtime.stop();
}

}  // namespace
}  // namespace nacre::storage::testing
