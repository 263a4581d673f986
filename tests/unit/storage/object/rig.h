// SPDX-License-Identifier: Apache-2.0
// One simulated machine with one target: a runtime driven by hand, a memory device, an index on real files whose unsynced tails are
// lost with the power. A test says run(task) and gets what the task returns.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/runtime/loop.h"
#include "common/testing/memory_device.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"
#include "storage/object/object_store.h"
#include "tests/unit/storage/object/power_env.h"

namespace nacre::storage::testing {

using nacre::testing::MemoryDevice;
using nacre::testing::Power;
using nacre::testing::PowerEnv;

/// In memory where that is possible: the power cuts are simulated, so real syncs would only cost time.
inline std::string temp_dir() {
  for (const char* base : {"/dev/shm", "/tmp"}) {
    std::string name = std::string(base) + "/nacre-ost-XXXXXX";
    if (::mkdtemp(name.data())) return name;
  }
  std::abort();
}

/// NACRE_LONG=1: many seeds instead of a few.
inline bool long_form() {
  const char* given = std::getenv("NACRE_LONG");
  return given != nullptr && *given != '\0';
}

/// Different bytes for each seed, cut out of one pool: to draw them anew costs most of a test's time under sanitizers.
inline void test_bytes(std::span<std::byte> out, uint64_t seed) {
  static constexpr size_t kPool = 4 * MiB;
  static const std::vector<std::byte> pool = [] {
    std::vector<std::byte> p(kPool);
    SeededRng(1).fill(p);
    return p;
  }();
  if (out.size() > kPool / 2) std::abort();
  std::memcpy(out.data(), pool.data() + seed * 0x9E3779B97F4A7C15ull % (kPool / 2), out.size());
}

inline Uuid test_uuid(uint8_t fill) {
  Uuid u;
  u.fill(fill);
  return u;
}

class Rig {
 public:
  explicit Rig(uint64_t capacity = 64 * MiB, size_t loops = 1) : capacity(capacity), loops_(loops) {
    dir = temp_dir();
    power = std::make_shared<Power>();
    env = std::make_unique<PowerEnv>(power);
    device = std::make_shared<MemoryDevice>(capacity, power);
    FormatOptions f;
    f.cluster_id = test_uuid(1);
    f.uuid = test_uuid(2);
    f.ost = OstId(3);
    f.capacity = capacity;
    f.env = env.get();
    auto ok = ObjectStore::format(dir + "/ost", f);
    if (!ok) std::abort();
    options.cluster_id = f.cluster_id;
    options.ost = f.ost;
    options.block_cache = 8 * MiB;
    options.device = device;
    options.env = env.get();
    options.fatal = [this](Error e) { fatal = e; };
  }
  ~Rig() {
    drop();
    std::filesystem::remove_all(dir);
  }

  Result<void> open() {
    runtime = std::make_unique<Runtime>(hand_options());
    runtime->start();
    auto opened = run(ObjectStore::open(*runtime, dir + "/ost", options));
    if (!opened) {
      drop();
      return std::unexpected(opened.error());
    }
    store = std::move(*opened);
    store->set_time_offset(0);
    return {};
  }
  Result<void> close() {
    auto ok = run(store->close());
    drop();
    return ok;
  }
  /// As kill -9: what was written stays in the page cache.
  void kill() { drop(); }
  /// The power goes, and comes back.
  void power_cut(Rng& rng) {
    power->cut();
    drop();
    device->power_cut(rng);
    env->restore_files(rng);
    power->restore();
    fatal.reset();
  }

  template <class T>
  T run(Task<T> task) {
    std::optional<T> out;
    auto body = [](std::optional<T>& o, Task<T> t) -> Task<void> { o.emplace(co_await std::move(t)); };
    runtime->loop(0).spawn(body(out, std::move(task)));
    until([&] { return out.has_value(); });
    return std::move(*out);
  }
  void until(const std::function<bool()>& done) {
    for (;;) {
      while (runtime->run_ready() != 0) continue;
      if (done()) return;
      const Nanos next = runtime->next_timer();
      if (next < 0) {
        ADD_FAILURE() << "nothing left to run, and not done";
        std::abort();
      }
      if (next > clock.boot()) clock.advance(next - clock.boot());
      runtime->fire_timers();
    }
  }
  /// Lets `time` pass.
  void pass(Nanos time) {
    const Nanos end = clock.boot() + time;
    bool over = false;
    auto sleeper = [](bool& o, Nanos t) -> Task<void> {
      (void)co_await sleep_for(t);
      o = true;
    };
    runtime->loop(0).spawn(sleeper(over, time));
    until([&] { return over && clock.boot() >= end; });
  }

  // ---- short forms
  static ObjectId object(uint64_t ino, uint32_t generation = 1) { return {Ino(ino), Generation(generation), 0, 0}; }
  static WriteArgs args(const ObjectId& id, uint64_t offset, Buffer data) {
    WriteArgs a;
    a.object = id;
    a.fileset = kRootFileset;
    a.epoch = Epoch(1);
    a.offset = offset;
    a.sums = wire::range_sums(id, offset, data.span());
    a.data = std::move(data);
    return a;
  }
  static Buffer bytes(size_t size, uint64_t seed) {
    Buffer b = Buffer::allocate(size);
    test_bytes(b.span(), seed);
    return b;
  }
  static Buffer text(std::string_view s) { return Buffer::copy_of(std::as_bytes(std::span(s.data(), s.size()))); }
  Result<WriteResult> write(const ObjectId& id, uint64_t offset, Buffer data, WSeq wseq = {}, bool sync = false) {
    WriteArgs a = args(id, offset, std::move(data));
    a.wseq = wseq;
    a.sync = sync;
    return run(store->write(std::move(a)));
  }
  /// The bytes [offset, offset + length) as a reader sees them, after checking every sum. Up to the object's end.
  Result<std::string> read(const ObjectId& id, uint64_t offset, uint32_t length) {
    auto r = run(store->read(id, offset, length));
    if (!r) return std::unexpected(r.error());
    const uint64_t begin = round_down(offset, kBlockSize);
    for (size_t i = 0; i < r->sums.size(); ++i) {
      const auto block = r->payload.span().subspan(i * kBlockSize, kBlockSize);
      if (r->sums[i] == 0) {
        static const std::array<std::byte, kBlockSize> kZeros{};
        EXPECT_EQ(std::memcmp(block.data(), kZeros.data(), block.size()), 0) << "a hole must read as zeros";
      } else if (wire::block_sum(id, begin / kBlockSize + i, block) != r->sums[i]) {
        return Err(Errc::kChecksum, fmt::format("object {} block {}", id, begin / kBlockSize + i));
      }
    }
    if (offset >= r->size) return std::string();
    const uint64_t n = std::min<uint64_t>(length, r->size - offset);
    return std::string(reinterpret_cast<const char*>(r->payload.data()) + (offset - begin), n);
  }
  Result<CommandsResult> command(uint8_t kind, const ObjectId& id, uint64_t sequence, uint64_t offset = 0, uint64_t length = 0) {
    std::vector<Command> list(1);
    list[0] = {id, kind, offset, length, CmdSeq(sequence), kRootFileset};
    return run(store->commands(std::move(list), true));
  }
  ObjectInfo stat(const ObjectId& id) { return run(store->stat({id}))->at(0); }

  const uint64_t capacity;
  std::string dir;
  ManualClock clock;
  std::shared_ptr<Power> power;
  std::unique_ptr<PowerEnv> env;
  std::shared_ptr<MemoryDevice> device;
  StoreOptions options;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<ObjectStore> store;
  std::optional<Error> fatal;

 private:
  RuntimeOptions hand_options() {
    RuntimeOptions o;
    o.loops = loops_;
    o.workers = 0;
    o.threads = false;
    o.clock = &clock;
    return o;
  }
  void drop() {
    if (runtime) runtime->stop(0);
    store.reset();
    runtime.reset();
  }
  const size_t loops_;
};

}  // namespace nacre::storage::testing
