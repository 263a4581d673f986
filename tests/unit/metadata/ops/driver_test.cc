// SPDX-License-Identifier: Apache-2.0
// The driver on real loops: exactly once, turns, cold reads, waits, durability.
#include "metadata/ops/driver.h"

#include <thread>

#include "tests/unit/metadata/ops/world.h"
#include "tests/unit/metadata/store/on_loop.h"

namespace nacre::mds::test {
namespace {

constexpr uint16_t kMknodMethod = 23;

struct DriverTest : testing::Test {
  World w;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Driver> driver;
  void SetUp() override { restart(); }
  void TearDown() override { down(); }
  void down() {
    if (runtime) runtime->stop();
    driver.reset();
    runtime.reset();
  }
  void restart(bool turn_commit = true) {
    down();
    runtime = std::make_unique<Runtime>(loops(2));
    driver = std::make_unique<Driver>(*runtime, *w.services, turn_commit);
    runtime->start();
  }
  static wire::MknodRequestT mkdir_request(std::string_view name) {
    wire::MknodRequestT q;
    q.parent = 1;
    q.name = as_bytes(name);
    q.mode = S_IFDIR | 0755;
    return q;
  }
  Task<Result<Outcome<wire::EntryReplyT>>> mkdir_once(std::string name, Identity id) {
    OpContext ctx(*w.services, kRoot, id);
    auto q = mkdir_request(name);
    co_return co_await driver->once<wire::EntryReplyT>(ctx, [&](OpContext& c) { return ops::mknod(c, q); });
  }
  Result<Outcome<wire::EntryReplyT>> mkdir_now(std::string name, Identity id, size_t loop = 0) {
    Result<Outcome<wire::EntryReplyT>> out = Err(Errc::kIo);
    on_loop(*runtime, loop, [&]() -> Task<void> { out = co_await mkdir_once(name, id); });
    return out;
  }
};

TEST_F(DriverTest, ARepeatGetsTheFirstAnswerEvenAfterARestart) {
  Identity first{SessionId(7), 3, 1, kMknodMethod};
  auto made = must(mkdir_now("d", first));
  EXPECT_FALSE(made.replayed);
  for (int round = 0; round < 2; ++round) {
    auto again = must(mkdir_now("d", first, 1));
    EXPECT_TRUE(again.replayed);
    EXPECT_EQ(again.reply.attr->ino, made.reply.attr->ino);
    down();
    w.stop();
    w.start();
    restart();
  }
  EXPECT_CODE(mkdir_now("d", {SessionId(7), 3, 2, kMknodMethod}), kExist);
  EXPECT_CODE(mkdir_now("d", {SessionId(7), 3, 1, kMknodMethod}), kProtocol);
  EXPECT_CODE(mkdir_now("e", {SessionId(7), 3, 3, kMknodMethod}), kOk);
  EXPECT_CODE(mkdir_now("e", {SessionId(7), 3, 3, 99}), kProtocol);
  EXPECT_CODE(mkdir_now("e", {SessionId(8), 3, 3, kMknodMethod}), kExist);
  EXPECT_CODE(mkdir_now("f", {SessionId(7), 4, 1, kMknodMethod}), kOk);
}

TEST_F(DriverTest, AFailedRequestIsRunAgain) {
  EXPECT_CODE(mkdir_now("d", {SessionId(7), 0, 1, kMknodMethod}), kOk);
  EXPECT_CODE(mkdir_now("d", {SessionId(7), 0, 2, kMknodMethod}), kExist);
  must(w.rmdir(kRoot, kRootIno, "d"));
  EXPECT_CODE(mkdir_now("d", {SessionId(7), 0, 2, kMknodMethod}), kOk);
}

TEST_F(DriverTest, ARepeatWaitsForTheArrivalThatIsRunning) {
  std::vector<Signal> hold;  // made on loop 0, where the first one waits
  on_loop(*runtime, 0, [&]() -> Task<void> {
    hold.emplace_back();
    co_return;
  });
  std::atomic<int> made{0}, entered{0};
  Identity id{SessionId(1), 0, 1, kMknodMethod};
  auto request = [&](bool first) -> Task<void> {
    OpContext ctx(*w.services, kRoot, id);
    auto q = mkdir_request("d");
    if (first) {
      auto ticket = co_await driver->slots().enter(id);
      EXPECT_TRUE(ticket.has_value());
      ++entered;
      co_await hold[0].wait();
      auto done = co_await driver->change(ctx, [&](OpContext& c) -> Result<wire::EntryReplyT> {
        c.on_commit([&] { ++made; });  // an operation may run several times, on a worker too
        auto r = ops::mknod(c, q);
        if (r) driver->store_reply(c, encode(*r));
        return r;
      });
      EXPECT_TRUE(done.has_value());
      co_return;
    }
    ++entered;
    auto out = co_await driver->once<wire::EntryReplyT>(ctx, [&](OpContext& c) {
      c.on_commit([&] { ++made; });
      return ops::mknod(c, q);
    });
    EXPECT_TRUE(out && out->replayed);
  };
  Crowd crowd(*runtime);
  crowd.start(0, [&] { return request(true); });
  while (entered < 1) std::this_thread::yield();
  crowd.start(0, [&] { return request(false); });
  crowd.start(1, [&] { return request(false); });
  while (entered < 3) std::this_thread::yield();
  hold[0].set();
  crowd.wait();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(driver->metrics().replays, 2u);
}

TEST_F(DriverTest, OneTurnOfALoopIsOneCommit) {
  for (bool turns : {true, false}) {
    restart(turns);
    uint64_t before = w.journal->committed().v;
    Crowd crowd(*runtime);
    std::atomic<int> made{0};
    crowd.start(0, [&]() -> Task<void> {  // starts all in one turn
      for (int i = 0; i < 100; ++i)
        crowd.start(0, [&, i]() -> Task<void> {
          auto r = co_await mkdir_once(fmt::format("d{}{}", turns, i), {SessionId(5), static_cast<uint16_t>(i), turns ? 1u : 2u, kMknodMethod});
          made += r.has_value();
        });
      co_return;
    });
    crowd.wait();
    EXPECT_EQ(made, 100);
    uint64_t commits = w.journal->committed().v - before;
    EXPECT_EQ(driver->metrics().commits, commits);
    if (turns) EXPECT_LE(commits, 3u);
    else EXPECT_EQ(commits, 100u);
  }
  check_namespace(*w.store, *w.journal);
}

TEST_F(DriverTest, WithinATurnLaterOperationsSeeEarlierOnes) {
  EXPECT_CODE(w.lookup(kRoot, kRootIno, "same"), kNoEnt);  // from disk: what follows finds it in memory and runs in order
  std::vector<Errc> codes;
  on_loop(*runtime, 0, [&]() -> Task<void> {
    Crowd* crowd = new Crowd(*runtime);
    for (int i = 0; i < 3; ++i)
      crowd->start(0, [&]() -> Task<void> {
        OpContext ctx(*w.services, kRoot);
        auto q = mkdir_request("same");
        auto r = co_await driver->change(ctx, [&](OpContext& c) { return ops::mknod(c, q); });
        codes.push_back(code(r));
        EXPECT_TRUE(must(w.view().dentry(kRootIno, "same"))) << "the answer may leave only after the commit it is founded on";
      });
    while (codes.size() < 3) co_await yield_now();
    runtime->loop(1).post([crowd] { delete crowd; });
  });
  EXPECT_EQ(codes, (std::vector<Errc>{Errc::kOk, Errc::kExist, Errc::kExist}));
}

TEST_F(DriverTest, ColdRecordsAreReadByAWorkerAndTheOperationRunsAgain) {
  Ino d = must(w.mkdir(kRoot, kRootIno, "d"));
  for (int i = 0; i < 50; ++i) must(w.create(kRoot, d, "f" + std::to_string(i)));
  down();
  must(w.store->close_clean());
  w.stop();
  w.start();
  restart();
  on_loop(*runtime, 0, [&]() -> Task<void> {
    OpContext ctx(*w.services, kRoot);
    wire::ReaddirRequestT q;
    q.dir = d.v;
    q.plus = true;
    auto page = co_await driver->read(ctx, [&](OpContext& c) { return ops::readdir(c, q); });
    EXPECT_TRUE(page.has_value());
    if (page) EXPECT_EQ(page->entries.size() > 10, true);
    wire::UnlinkRequestT u;
    u.parent = d.v;
    u.name = as_bytes("f1");
    OpContext change(*w.services, kRoot);
    auto gone = co_await driver->change(change, [&](OpContext& c) { return ops::unlink(c, u); });
    EXPECT_TRUE(gone.has_value());
    EXPECT_NE(change.journal_no().v, 0u);
  });
  EXPECT_GT(driver->metrics().rehearsals, 0u);
}

TEST_F(DriverTest, ParksAreResolvedAndTheOperationStartsAgain) {
  Ino f = must(w.create(kRoot, kRootIno, "f"));
  w.hooks.writers.insert(f);
  w.hooks.objects[f] = {f, 77, 4096, 0};
  on_loop(*runtime, 1, [&]() -> Task<void> {
    OpContext ctx(*w.services, kRoot);
    wire::GetattrRequestT q;
    q.ino = f.v;
    auto r = co_await driver->read(ctx, [&](OpContext& c) { return ops::getattr(c, q); });
    EXPECT_TRUE(r && r->attr->size == 77);
  });
  EXPECT_EQ(driver->metrics().parks, 1u);
}

TEST_F(DriverTest, InodeNumbersAreRefilledOnTheWay) {
  while (w.inos->take(1000)) {
  }
  while (w.inos->take()) {
  }
  auto made = must(mkdir_now("d", {}));
  EXPECT_GT(made.reply.attr->ino, 65'536u);
  EXPECT_FALSE(w.inos->low());
}

TEST_F(DriverTest, EffectsRunOnceBeforeAndAfterTheCommitAndNotForErrors) {
  std::vector<std::string> order;
  on_loop(*runtime, 0, [&]() -> Task<void> {
    OpContext ctx(*w.services, kRoot);
    auto q = mkdir_request("d");
    bool parked = false;
    auto ok = co_await driver->change(ctx, [&](OpContext& c) -> Result<wire::EntryReplyT> {
      c.on_staged([&] { order.push_back(must(w.view().dentry(kRootIno, "d")) ? "late" : "staged"); });
      c.on_commit([&] { order.push_back(must(w.view().dentry(kRootIno, "d")) ? "committed" : "early"); });
      if (!std::exchange(parked, true)) return c.park({Park::Kind::kNumbers, {}, 0});
      return ops::mknod(c, q);
    });
    EXPECT_TRUE(ok.has_value());
    OpContext again(*w.services, kRoot);
    auto failed = co_await driver->change(again, [&](OpContext& c) -> Result<wire::EntryReplyT> {
      c.on_staged([&] { order.push_back("wrong"); });
      return ops::mknod(c, q);
    });
    EXPECT_FALSE(failed.has_value());
    EXPECT_EQ(again.journal_no().v, 0u);
  });
  EXPECT_EQ(order, (std::vector<std::string>{"staged", "committed"}));
}

TEST_F(DriverTest, ASyncFilesetIsAcknowledgedAfterTheSync) {
  EXPECT_CODE(mkdir_now("lazy", {}), kOk);
  EXPECT_LT(w.journal->synced().v, w.journal->committed().v);
  auto fileset = *w.store->fileset(kRootFileset);
  fileset.durability_sync = true;
  Batch b;
  b.put_record(Family::kFileset, fileset_key(kRootFileset), fileset);
  must(w.journal->commit(std::move(b)));
  down();
  w.stop();
  w.start();
  restart();
  EXPECT_CODE(mkdir_now("kept", {}), kOk);
  EXPECT_EQ(w.journal->synced(), w.journal->committed());
}

}  // namespace
}  // namespace nacre::mds::test
