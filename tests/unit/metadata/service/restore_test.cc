// SPDX-License-Identifier: Apache-2.0
// A server whose database is an older one: what it waits for, and that no number is given out twice.
#include "tests/unit/metadata/service/stand_in_ost.h"
#include "tests/unit/metadata/service/test_client.h"

namespace nacre::mds::testing {
namespace {

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() { world.start_server(); }
  World world;
};

TEST_F(RestoreTest, WaitsForItsTargetsAndBeginsAboveWhatTheyHaveSeen) {
  auto ost = std::make_unique<StandInOst>(world, 0, [this] { return world.mds(); });
  TestClient a(world);
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(a.create("old", 1));
  ASSERT_TRUE(world.backup("backup"));
  const uint64_t later = a.create("later", 2)->attr->ino;
  ost->highest = {later + 500, 77'000'000, 5000};
  ost->down();
  const uint64_t session = a.session, version = world.core().registry->version();
  ASSERT_TRUE(world.restore("backup"));
  world.start_server();

  TestClient admin(world), b(world);
  ASSERT_TRUE(admin.connect(wire::kRoleAdmin));
  auto status = admin.call<rpc::Method::kMdsStatus>({});
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->recovering);
  ASSERT_FALSE(status->waiting_for.empty());
  EXPECT_TRUE(status->waiting_for[0].starts_with("ost0")) << status->waiting_for[0];
  ASSERT_TRUE(b.connect());
  wire::SessionOpenRequestT open;
  open.client_uuid.assign(16, 1);
  EXPECT_EQ(b.call<rpc::Method::kSessionOpen>(std::move(open)).error().code, Errc::kRecovering);
  EXPECT_EQ(admin.stat(kRootIno).error().code, Errc::kRecovering);

  ost->up();
  ASSERT_TRUE(world.eventually([&] { return !world.core().restoration->active(); }));
  EXPECT_GT(world.core().registry->version(), version);
  EXPECT_EQ(world.core().sessions->size(), 0u) << "sessions of the backup are gone";
  const auto fences = world.core().registry->fences();
  EXPECT_TRUE(fences.contains(SessionId(session)));
  EXPECT_TRUE(fences.contains(SessionId(5000))) << "and one of which only a target knows";
  ASSERT_TRUE(b.mount());
  EXPECT_GT(b.session, 5000u);
  auto made = b.create("new", 1);
  ASSERT_TRUE(made);
  EXPECT_GT(made->attr->ino, later + 500);
  EXPECT_GT(world.core().commands->next(), 77'000'000u);
  ASSERT_TRUE(b.lookup("old"));
  EXPECT_EQ(b.lookup("later").error().code, Errc::kNoEnt);
  world.kill_and_restart();
  EXPECT_FALSE(world.core().restoration->active()) << "once";
}

TEST_F(RestoreTest, ATargetThatIsGivenUpIsNotWaitedFor) {
  auto ost = std::make_unique<StandInOst>(world, 0, [this] { return world.mds(); });
  ASSERT_TRUE(world.eventually([&] { return world.core().registry->has(OstId(0)); }));
  ASSERT_TRUE(world.backup("backup"));
  ost->down();
  ASSERT_TRUE(world.restore("backup"));
  world.configure_ost(5);  // of the cluster file, but added after the backup
  world.start_server();
  TestClient admin(world);
  ASSERT_TRUE(admin.connect(wire::kRoleAdmin));
  EXPECT_EQ(world.core().restoration->waiting_for().size(), 2u);
  wire::OstSetStateRequestT q;
  q.state = wire::kOstInactive;
  ASSERT_TRUE(admin.call<rpc::Method::kOstSetState>(q));
  EXPECT_EQ(world.core().restoration->waiting_for().size(), 1u);
  q.ost = 6;
  EXPECT_EQ(admin.call<rpc::Method::kOstSetState>(q).error().code, Errc::kNoEnt);
  q.ost = 5;
  ASSERT_TRUE(admin.call<rpc::Method::kOstSetState>(q));
  EXPECT_TRUE(world.eventually([&] { return !world.core().restoration->active(); }));
}

TEST_F(RestoreTest, TheRecoveryCanBeEnded) {
  StandInOst ost(world, 0, [this] { return world.mds(); });
  TestClient a(world), admin(world);
  ASSERT_TRUE(a.mount());
  ASSERT_TRUE(a.create("f", 1));
  world.kill_and_restart();
  ASSERT_TRUE(admin.connect(wire::kRoleAdmin));
  auto status = admin.call<rpc::Method::kMdsStatus>({});
  ASSERT_TRUE(status);
  EXPECT_TRUE(status->recovering);
  EXPECT_GT(status->recovery_left_ms, 0u);
  ASSERT_EQ(status->waiting_for.size(), 1u);
  EXPECT_TRUE(status->waiting_for[0].starts_with(fmt::format("session {} (/mnt on test)", a.session))) << status->waiting_for[0];
  wire::MdsStatusRequestT q;
  q.abort_recovery = true;
  ASSERT_TRUE(admin.call<rpc::Method::kMdsStatus>(q));
  EXPECT_TRUE(world.eventually([&] { return !world.core().sessions->recovering(); }));
  EXPECT_EQ(world.core().sessions->size(), 0u);
}

}  // namespace
}  // namespace nacre::mds::testing
