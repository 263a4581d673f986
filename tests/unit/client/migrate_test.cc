// SPDX-License-Identifier: Apache-2.0
// The client as the mover of a file's data. The stand-in of the metadata server gives every stripe to the next target.
#include <atomic>
#include <thread>

#include "tests/unit/client/world.h"

namespace nacre::test {

using Steps = std::vector<uint8_t>;

class MigrateData : public World {
 protected:
  Result<wire::MigrateReplyT> migrate(Ino ino, client::Caller caller = {}) {
    wire::MigrateRequestT q;
    q.ino = ino.v;
    auto body = run(fs().call_method(static_cast<uint16_t>(rpc::Method::kMigrate), encode(q), std::move(caller)), 1);
    if (!body) return std::unexpected(body.error());
    return decode<wire::MigrateReplyT>(*body);
  }
  bool any(Ino ino, uint32_t generation) {
    for (auto& o : osts)
      for (uint16_t s = 0; s < 3; ++s)
        if (o->exists(ObjectId{ino, Generation(generation), 0, s})) return true;
    return false;
  }
};

TEST_F(MigrateData, BytesAndHolesLieElsewhere) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(500'000)));
  ASSERT_OK(write(h, 40 * MiB, data("tail")));
  auto before = read(h, 0, 500'000);
  const int writes = osts[0]->served(rpc::Method::kObjectWrite) + osts[1]->served(rpc::Method::kObjectWrite) + osts[2]->served(rpc::Method::kObjectWrite);
  auto moved = migrate(h->ino());
  ASSERT_OK(moved);
  EXPECT_EQ(moved->token, 2u);
  EXPECT_EQ(mds->migrate_steps(), (Steps{1, 2, 3}));
  EXPECT_FALSE(any(h->ino(), 1));
  EXPECT_EQ(read(h, 0, 500'000).value(), before.value());
  EXPECT_EQ(read(h, 40 * MiB, 100).value(), "tail");
  const int now = osts[0]->served(rpc::Method::kObjectWrite) + osts[1]->served(rpc::Method::kObjectWrite) + osts[2]->served(rpc::Method::kObjectWrite);
  EXPECT_LE(now - writes, 9 + 1) << "what is a hole is not written, and nothing twice";
  ASSERT_OK(write(h, 10, data("new")));
  EXPECT_EQ(read(h, 10, 3).value(), "new");
  EXPECT_EQ(mds->open_handles(), 1u) << "the mover has closed the file";
}

TEST_F(MigrateData, WhatIsWrittenMeanwhileIsNotLost) {
  auto h = create("f");
  std::string model = text(bytes(4 * MiB));
  ASSERT_OK(write(h, 0, bytes(4 * MiB)));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      const uint64_t at = i * 77'777 % (4 * MiB - 5000);
      auto b = bytes(5000, i);
      auto done = write(h, at, b);
      EXPECT_TRUE(done) << done.error().message();
      if (done) model.replace(at, 5000, text(b));
    }
  });
  for (uint64_t i = 0; i < 5; ++i) {
    auto moved = migrate(h->ino());
    EXPECT_TRUE(moved) << moved.error().message();
  }
  stop = true;
  writer.join();
  EXPECT_EQ(read(h, 0, 5 * MiB).value(), model);
}

TEST_F(MigrateData, OneThatIsLostOnTheWayBeginsAnew) {
  auto h = create("f");
  auto b = bytes(300'000);
  ASSERT_OK(write(h, 0, b));
  int seen = 0;
  mds->stop();
  mds->alter = [&](const rpc::PeerPtr&, const rpc::Request& q, rpc::Reply& reply) {
    if (q.header.method != static_cast<uint16_t>(rpc::Method::kMigrate) || ++seen != 2) return;
    reply = rpc::fail(Error(Errc::kStale, "the migration is over"));  // the answer to the seal
  };
  mds->start();
  ASSERT_OK(migrate(h->ino()));
  EXPECT_EQ(mds->migrate_steps(), (Steps{1, 2, 4, 1, 2, 3}));
  EXPECT_EQ(read(h, 0, 400'000).value(), text(b));
  mds->stop();
  mds->alter = nullptr;
  mds->start();
}

TEST_F(MigrateData, ATargetThatRestartsHasTheWholeCopiedAnew) {
  auto h = create("f");
  auto b = bytes(300'000);
  ASSERT_OK(write(h, 0, b));
  ASSERT_OK(run(fs().fsync(h, false, {})));
  osts[1]->inject(rpc::Method::kObjectCommit, {Fault::kHold});
  auto pending = start(fs().call_method(static_cast<uint16_t>(rpc::Method::kMigrate), [&] {
    wire::MigrateRequestT q;
    q.ino = h->ino().v;
    return encode(q);
  }(), {}));
  osts[1]->wait_received(rpc::Method::kObjectCommit, 2);
  osts[1]->lose_power();
  restart(*osts[1]);
  osts[1]->release_held();
  ASSERT_EQ(pending.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  ASSERT_OK(pending.get());
  EXPECT_EQ(read(h, 0, 400'000).value(), text(b));
}

TEST_F(MigrateData, InterruptedItIsGivenUp) {
  auto h = create("f");
  ASSERT_OK(write(h, 0, bytes(300'000)));
  osts[0]->stop();
  client::Caller caller;
  caller.cancel = std::make_shared<Cancel>();
  wire::MigrateRequestT q;
  q.ino = h->ino().v;
  auto pending = start(fs().call_method(static_cast<uint16_t>(rpc::Method::kMigrate), encode(q), caller));
  mds->wait_received(rpc::Method::kMigrate, 1);
  caller.cancel->fire(Error(Errc::kIntr));
  ASSERT_EQ(pending.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(pending.get().error().code, Errc::kIntr);
  EXPECT_EQ(mds->migrate_steps(), (Steps{1, 4}));
  osts[0]->start();
  ASSERT_OK(write(h, 0, data("x")));
}

}  // namespace nacre::test
