// SPDX-License-Identifier: Apache-2.0
// Many requests on several loops in the same few directories: crossing renames, exchanges, links, removals. Whatever the
// order was, the tree is a tree, every count is right, and nothing hangs. Run under the tsan preset too.
#include "common/base/rng.h"
#include "metadata/ops/driver.h"
#include "tests/unit/metadata/ops/world.h"
#include "tests/unit/metadata/store/on_loop.h"

namespace nacre::mds::test {
namespace {

struct Storm {
  World& w;
  Driver& driver;
  std::mutex mutex;
  std::vector<Ino> dirs{kRootIno}, files;
  std::atomic<uint64_t> done{0};

  Ino some(std::vector<Ino>& of, SeededRng& rng) {
    std::lock_guard lock(mutex);
    return of.empty() ? Ino(0) : of[rng.below(of.size())];
  }
  void note(std::vector<Ino>& of, uint64_t ino) {
    std::lock_guard lock(mutex);
    if (of.size() < 40) of.push_back(Ino(ino));
    else of[ino % of.size()] = Ino(ino);
  }
  static Bytes name(SeededRng& rng) { return as_bytes("n" + std::to_string(rng.below(6))); }

  template <class F>
  Task<void> change(F op) {
    OpContext ctx(*w.services, kRoot);
    auto r = co_await driver.change(ctx, op);
    if (!r) {
      switch (r.error().code) {
        case Errc::kNoEnt:
        case Errc::kExist:
        case Errc::kNotDir:
        case Errc::kIsDir:
        case Errc::kNotEmpty:
        case Errc::kInval:
        case Errc::kStale:
        case Errc::kPerm: break;
        default: ADD_FAILURE() << r.error().message();
      }
    }
  }

  Task<void> make(Ino dir, SeededRng& rng, uint32_t type) {
    wire::MknodRequestT q;
    q.parent = dir.v;
    q.name = name(rng);
    q.mode = type | 0755;
    OpContext ctx(*w.services, kRoot);
    auto r = co_await driver.change(ctx, [&](OpContext& c) { return ops::mknod(c, q); });
    if (r) note(type == S_IFDIR ? dirs : files, r->attr->ino);
  }

  Task<void> step(SeededRng& rng) {
    Ino dir = some(dirs, rng), other = some(dirs, rng), file = some(files, rng);
    switch (rng.below(10)) {
      case 0: co_await make(dir, rng, S_IFDIR); break;
      case 1: co_await make(dir, rng, S_IFREG); break;
      case 2:
      case 3: {
        wire::UnlinkRequestT q;
        q.parent = dir.v;
        q.name = name(rng);
        if (rng.below(2)) co_await change([&](OpContext& c) { return ops::unlink(c, q); });
        else co_await change([&](OpContext& c) { return ops::rmdir(c, q); });
        break;
      }
      case 4: {
        wire::LinkRequestT q;
        q.ino = file.v;
        q.new_parent = dir.v;
        q.new_name = name(rng);
        co_await change([&](OpContext& c) { return ops::link(c, q); });
        break;
      }
      case 5: {
        OpContext ctx(*w.services, kRoot);
        wire::ReaddirRequestT q;
        q.dir = dir.v;
        q.plus = true;
        auto r = co_await driver.read(ctx, [&](OpContext& c) { return ops::readdir(c, q); });
        if (!r) EXPECT_EQ(r.error().code, Errc::kStale);
        break;
      }
      default: {
        wire::RenameRequestT q;
        q.parent = dir.v;
        q.name = name(rng);
        q.new_parent = other.v;
        q.new_name = name(rng);
        q.flags = rng.below(3) ? 0 : 2;
        co_await change([&](OpContext& c) { return ops::rename(c, q); });
      }
    }
    ++done;
  }
};

TEST(Concurrency, CrossingRenamesLeaveATree) {
  constexpr int kTasks = 24, kSteps = 250;
  for (bool turns : {true, false}) {
    World w;
    Runtime runtime(loops(4));
    Driver driver(runtime, *w.services, turns);
    runtime.start();
    Storm storm{w, driver, {}, {kRootIno}, {}, 0};
    {
      Crowd crowd(runtime);
      for (size_t t = 0; t < kTasks; ++t)
        crowd.start(t, [&storm, t]() -> Task<void> {
          SeededRng rng(t + 1);
          for (int i = 0; i < kSteps; ++i) co_await storm.step(rng);
        });
    }
    runtime.stop();
    EXPECT_EQ(storm.done, uint64_t{kTasks} * kSteps);
    check_namespace(*w.store, *w.journal);
    EXPECT_GT(driver.metrics().operations, 0u);
  }
}

TEST(Concurrency, OneOfManyCreatorsWins) {
  World w;
  Runtime runtime(loops(4));
  Driver driver(runtime, *w.services);
  runtime.start();
  std::atomic<int> won{0}, lost{0};
  for (int round = 0; round < 50; ++round) {
    Crowd crowd(runtime);
    for (size_t t = 0; t < 8; ++t)
      crowd.start(t, [&, round]() -> Task<void> {
        wire::MknodRequestT q;
        q.parent = 1;
        q.name = as_bytes("r" + std::to_string(round));
        q.mode = S_IFREG | 0644;
        OpContext ctx(*w.services, kRoot);
        auto r = co_await driver.change(ctx, [&](OpContext& c) { return ops::mknod(c, q); });
        if (r) ++won;
        else if (r.error().code == Errc::kExist) ++lost;
      });
  }
  runtime.stop();
  EXPECT_EQ(won, 50);
  EXPECT_EQ(lost, 350);
  check_namespace(*w.store, *w.journal);
}

}  // namespace
}  // namespace nacre::mds::test
