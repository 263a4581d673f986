// SPDX-License-Identifier: Apache-2.0
// The service of one storage target: who may do what, what is refused with which error, and what survives. The metadata server
// is a stand-in (fixture.h).
#include <fstream>

#include "tests/unit/storage_service/fixture.h"

namespace nacre::storage {
namespace {
using rpc::Method;
using testing::HasSubstr;

constexpr ObjectId kObject{Ino(42), Generation(1), 0, 0};

TEST_F(OssService, ServesNoDataBeforeTheMetadataServerAnswered) {
  mds_->refuse = true;
  start();
  await([this] { return mds_->registered() >= 2; });  // it goes on trying
  client_ = connect(wire::kRoleClient);
  EXPECT_FALSE(status().serving);
  auto refused = write(kObject, 0, bytes(4096, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRecovering);
  EXPECT_THAT(refused.error().detail, HasSubstr("ost3"));
  {
    std::lock_guard lock(mds_->mutex);
    mds_->refuse = false;
  }
  await([this] { return service_->serving(); });
  EXPECT_TRUE(write(kObject, 0, bytes(4096, 1)));
  EXPECT_TRUE(status().serving);
}

TEST_F(OssService, RegistersWithWhatItIs) {
  start_serving();
  std::lock_guard lock(mds_->mutex);
  const auto& r = mds_->registrations.at(0);
  EXPECT_EQ(r.ost, 3u);
  EXPECT_EQ(r.address, service_->address());
  EXPECT_EQ(r.host, "localhost");
  EXPECT_EQ(r.pools, std::vector<std::string>{"ssd"});
  EXPECT_EQ(r.uuid.size(), 16u);
  EXPECT_EQ(r.incarnation, 1u);
  EXPECT_GE(r.capacity, 60 * MiB);
  EXPECT_LE(r.capacity, 64 * MiB);
}

TEST_F(OssService, BeatsAndRegistersAgainWhenForgottenOrDisconnected) {
  start_serving();
  await([this] { return mds_->beats() >= 3; });
  {
    std::lock_guard lock(mds_->mutex);
    mds_->forget = true;
  }
  await([this] { return mds_->registered() == 2; });
  // The metadata server goes: data is served on; it comes back at its address and hears from the target.
  const std::string address = mds_->address();
  mds_->stop();
  mds_->tied.reset();
  EXPECT_TRUE(write(kObject, 0, bytes(4096, 2)));
  StandInMds next(runtime_, *transport_, cluster_.id, key_, address);
  await([&] { return next.registered() == 1; });
  EXPECT_EQ(next.registrations[0].incarnation, 1u);
  EXPECT_TRUE(read(kObject, 0, 4096));
  stop();
  next.stop();
  next.tied.reset();
}

TEST_F(OssService, WritesAndReadsBackWithSums) {
  start_serving();
  for (auto [offset, size] : {std::pair<uint64_t, size_t>{0, 1 * MiB}, {3 * MiB, 64 * KiB}, {5 * MiB + 100, 10'000}}) {
    const Buffer data = bytes(size, static_cast<uint8_t>(offset >> 20));
    auto w = write(kObject, offset, data);
    ASSERT_TRUE(w) << w.error().message();
    EXPECT_EQ(w->size, offset + size);
    EXPECT_EQ(w->incarnation, 1u);
    EXPECT_GT(w->wseq, 0u);
    auto r = read(kObject, offset, static_cast<uint32_t>(size));
    ASSERT_TRUE(r) << r.error().message();
    // Whole blocks, also the last one, which ends with zeros.
    const uint64_t skip = offset % kBlockSize;
    ASSERT_EQ(r->payload.size(), round_up(skip + size, kBlockSize));
    EXPECT_EQ(std::memcmp(r->payload.data() + skip, data.data(), size), 0);
    for (size_t i = skip + size; i < r->payload.size(); ++i) ASSERT_EQ(r->payload.data()[i], std::byte{0}) << i;
    EXPECT_EQ(wire::range_sums(kObject, offset - skip, r->payload.span()), r->reply.sums);
    EXPECT_EQ(r->reply.size, offset + size);
  }
  auto hole = read(kObject, 2 * MiB, 4096);
  ASSERT_TRUE(hole);
  EXPECT_EQ(hole->reply.sums, std::vector<uint32_t>{0});
  const auto s = status();
  EXPECT_EQ(metric(s, "writes"), 3u);
  EXPECT_EQ(metric(s, "write_bytes"), 1 * MiB + 64 * KiB + 10'000);
  EXPECT_EQ(metric(s, "reads"), 4u);
  EXPECT_EQ(metric(s, "errors"), 0u);
  EXPECT_EQ(s.objects, 1u);
}

TEST_F(OssService, CommitMakesStableAndRepliesTellHowFar) {
  start_serving();
  auto w = write(kObject, 0, bytes(8192, 1));
  ASSERT_TRUE(w);
  wire::ObjectCommitRequestT q;
  q.wseq = w->wseq;
  auto c = call<Method::kObjectCommit>(client_, q);
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_GE(c->stable, w->wseq);
  EXPECT_EQ(c->incarnation, 1u);
  EXPECT_GE(read(kObject, 0, 4096)->reply.stable, w->wseq);
  q.wseq = UINT64_MAX;  // as of an incarnation that had given out more
  EXPECT_TRUE(call<Method::kObjectCommit>(client_, q));
  auto sync = write_request(kObject, 0, bytes(4096, 2));
  sync.sync = true;
  auto s = call<Method::kObjectWrite>(client_, std::move(sync), bytes(4096, 2));
  ASSERT_TRUE(s);
  EXPECT_TRUE(s->is_stable);
  EXPECT_GE(s->stable, s->wseq);
}

TEST_F(OssService, DamagedBytesAreRefusedBeforeAnythingIsStored) {
  start_serving();
  const Buffer data = bytes(8192, 1);
  auto q = write_request(kObject, 4096, data);
  q.sums[1] ^= 1;
  auto w = call<Method::kObjectWrite>(client_, std::move(q), data);
  ASSERT_FALSE(w);
  EXPECT_EQ(w.error().code, Errc::kChecksum);
  EXPECT_THAT(w.error().detail, testing::AllOf(HasSubstr("ost3"), HasSubstr("42.g1.c0.s0"), HasSubstr("8192"))) << "names target, object and offset";
  EXPECT_EQ(read(kObject, 0, 4096)->reply.size, 0u);
  EXPECT_EQ(metric(status(), "checksum_refusals"), 1u);
}

TEST_F(OssService, CapabilitiesDecide) {
  start_serving();
  const Buffer data = bytes(4096, 1);
  auto refused = [&](std::unique_ptr<wire::CapabilityT> c) {
    auto q = write_request(kObject, 0, data);
    q.cap = std::move(c);
    auto w = call<Method::kObjectWrite>(client_, std::move(q), data);
    return w ? Errc::kOk : w.error().code;
  };
  EXPECT_EQ(refused(nullptr), Errc::kCapInvalid);
  EXPECT_EQ(refused(cap(kObject, wire::kCapRead)), Errc::kCapInvalid);
  EXPECT_EQ(refused(cap({Ino(43), Generation(1), 0, 0})), Errc::kCapInvalid);
  EXPECT_EQ(refused(cap({Ino(42), Generation(2), 0, 0})), Errc::kCapInvalid);
  EXPECT_EQ(refused(cap(kObject)), Errc::kOk);
  auto forged = cap(kObject);
  forged->session = 8;
  EXPECT_EQ(refused(std::move(forged)), Errc::kCapInvalid);
  auto cut = cap(kObject);
  cut->mac.pop_back();
  EXPECT_EQ(refused(std::move(cut)), Errc::kCapInvalid);
  auto old = cap(kObject);
  old->expires = mds_->time() - 10 * kSecond;  // the target knows the time to half a round trip
  wire::sign(wire::capability_key(key_), *old);
  EXPECT_EQ(refused(std::move(old)), Errc::kCapExpired);
  const ObjectId other_component{Ino(42), Generation(1), 1, 0};
  EXPECT_EQ(read(other_component, 0, 4096, cap(kObject)).error().code, Errc::kCapInvalid);
  EXPECT_EQ(read(kObject, 0, 4096, cap(kObject, wire::kCapWrite)).error().code, Errc::kCapInvalid);
}

TEST_F(OssService, CapabilitiesExpireByTheTimeOfTheMetadataServer) {
  mds_->ahead = 3600 * kSecond;
  start_serving();
  auto by_host_time = cap(kObject);
  by_host_time->expires = system_clock().real() + 60 * kSecond;
  wire::sign(wire::capability_key(key_), *by_host_time);
  EXPECT_EQ(read(kObject, 0, 4096, std::move(by_host_time)).error().code, Errc::kCapExpired);
  auto w = write(kObject, 0, bytes(4096, 1));  // cap() is by the stand-in's time
  ASSERT_TRUE(w) << w.error().message();
  EXPECT_NEAR(static_cast<double>(w->changed), static_cast<double>(mds_->time()), 5e9);
}

TEST_F(OssService, AFencedSessionIsRefusedAlsoAfterARestart) {
  start_serving();
  ASSERT_TRUE(write(kObject, 0, bytes(4096, 1)));
  wire::FenceRequestT fence;
  fence.session = 7;
  fence.until = mds_->time() + 120 * kSecond;
  auto f = call<Method::kObjectFence>(as_mds(), fence);
  ASSERT_TRUE(f) << f.error().message();
  for (int round = 0; round < 2; ++round) {
    auto w = write(kObject, 4096, bytes(4096, 2));
    ASSERT_FALSE(w);
    EXPECT_EQ(w.error().code, Errc::kNoSession);
    EXPECT_EQ(read(kObject, 0, 4096).error().code, Errc::kNoSession);
    auto other = read(kObject, 0, 4096, cap(kObject, 3, 8));
    ASSERT_TRUE(other) << other.error().message();
    EXPECT_EQ(other->reply.size, 4096u) << "the late write left nothing";
    if (round == 0) {
      client_.reset();
      as_mds_.reset();
      stop();
      start_serving();
    }
  }
  EXPECT_EQ(metric(status(), "fenced_refusals"), 2u);
}

TEST_F(OssService, FencesOfTheRegistrationHold) {
  mds_->fences = {{7, system_clock().real() + 100 * kSecond}};
  start_serving();
  EXPECT_EQ(write(kObject, 0, bytes(4096, 1)).error().code, Errc::kNoSession);
}

TEST_F(OssService, OnlyTheMetadataServerCommands) {
  start_serving();
  wire::ObjectStatRequestT stat;
  stat.objects.push_back(to_ref(kObject));
  EXPECT_TRUE(call<Method::kObjectStat>(client_, stat)) << "who moves a file must see what has changed";
  EXPECT_EQ(call<Method::kObjectStat>(connect(wire::kRoleOss), stat).error().code, Errc::kPerm);
  EXPECT_EQ(call<Method::kObjectCommands>(client_, {}).error().code, Errc::kPerm);
  EXPECT_EQ(call<Method::kObjectFence>(client_, {}).error().code, Errc::kPerm);
  EXPECT_EQ(call<Method::kObjectFence>(connect(wire::kRoleAdmin), {}).error().code, Errc::kPerm);
  EXPECT_TRUE(call<Method::kObjectStat>(as_mds(), stat));
  // Over the connection that the target made, too.
  rpc::PeerPtr tied;
  {
    std::lock_guard lock(mds_->mutex);
    tied = mds_->tied;
  }
  std::promise<Result<wire::ObjectStatReplyT>> promise;
  tied->loop().spawn([](std::promise<Result<wire::ObjectStatReplyT>>& p, rpc::PeerPtr peer, wire::ObjectStatRequestT q) -> Task<void> {
    p.set_value(co_await rpc::call<Method::kObjectStat>(peer, std::move(q)));
  }(promise, tied, stat));
  EXPECT_TRUE(promise.get_future().get());
  EXPECT_EQ(call<Method::kLookup>(client_, {}).error().code, Errc::kOpNotSupp);
}

TEST_F(OssService, ListsObjectsAndFindsFlippedBytes) {
  start_serving();
  const ObjectId other{Ino(43), Generation(2), 1, 5};
  const Buffer data = bytes(2 * kBlockSize, 3);
  ASSERT_TRUE(write(kObject, 0, data));
  auto q = write_request(other, kBlockSize, data);
  q.cap->components = 2;
  wire::sign(wire::capability_key(key_), *q.cap);
  ASSERT_TRUE(call<Method::kObjectWrite>(client_, std::move(q), data));
  for (const auto& peer : {client_, connect(wire::kRoleAdmin)}) {
    EXPECT_EQ(call<Method::kObjectList>(peer, {}).error().code, Errc::kPerm);
    EXPECT_EQ(call<Method::kObjectScrub>(peer, {}).error().code, Errc::kPerm);
  }
  wire::ObjectListRequestT list;  // a limit of 0 is one
  auto first = call<Method::kObjectList>(as_mds(), list);
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_EQ(first->objects.size(), 1u);
  EXPECT_EQ(to_id(first->objects[0].object()), kObject);
  EXPECT_EQ(first->objects[0].stat().allocated(), 2 * kBlockSize);
  EXPECT_FALSE(first->end);
  EXPECT_EQ(first->total, 2u);
  list.after = std::make_unique<schema::ObjectRef>(first->objects[0].object());
  list.limit = 100;
  auto rest = call<Method::kObjectList>(as_mds(), list);
  ASSERT_TRUE(rest);
  ASSERT_EQ(rest->objects.size(), 1u);
  EXPECT_EQ(to_id(rest->objects[0].object()), other);
  EXPECT_TRUE(rest->end);

  auto clean = call<Method::kObjectScrub>(as_mds(), {});
  ASSERT_TRUE(clean) << clean.error().message();
  EXPECT_TRUE(clean->bad.empty() && clean->end);
  EXPECT_EQ(clean->bytes, 4 * kBlockSize);
  stop();
  {
    std::fstream blocks(dir_ + "/ost3/blocks", std::ios::in | std::ios::out | std::ios::binary);
    std::string all(1 * MiB, 0);
    blocks.read(all.data(), static_cast<std::streamsize>(all.size()));
    const size_t at = all.find(std::string(reinterpret_cast<const char*>(data.data()) + kBlockSize, kBlockSize));
    ASSERT_NE(at, all.npos);
    blocks.seekp(static_cast<std::streamoff>(at + 9));
    blocks.put('!');
  }
  as_mds_.reset();
  start_serving();
  auto bad = call<Method::kObjectScrub>(as_mds(), {});
  ASSERT_TRUE(bad) << bad.error().message();
  ASSERT_EQ(bad->bad.size(), 1u);
  EXPECT_EQ(bad->bad[0].length(), kBlockSize);
  EXPECT_GT(metric(status(), "scrubbed_bytes"), 0u);
}

TEST_F(OssService, StatTruncateDestroy) {
  start_serving();
  ASSERT_TRUE(write(kObject, 0, bytes(100'000, 1)));
  const ObjectId absent{Ino(42), Generation(1), 0, 5};
  wire::ObjectStatRequestT stat;
  stat.objects = {to_ref(kObject), to_ref(absent)};
  auto st = call<Method::kObjectStat>(as_mds(), stat);
  ASSERT_TRUE(st);
  ASSERT_EQ(st->stats.size(), 2u);
  EXPECT_EQ(st->stats[0].size(), 100'000u);
  EXPECT_EQ(st->stats[0].allocated(), round_up(100'000, 4096));
  EXPECT_TRUE(st->stats[0].exists());
  EXPECT_FALSE(st->stats[1].exists());

  auto command = [&](uint8_t kind, uint64_t offset, uint64_t number) {
    wire::ObjectCommandRequestT q;
    auto c = std::make_unique<wire::ObjectCommandT>();
    c->object = std::make_unique<schema::ObjectRef>(to_ref(kObject));
    c->kind = kind, c->offset = offset, c->command = number, c->fileset = 1;
    q.commands.push_back(std::move(c));
    q.sync = true;
    return call<Method::kObjectCommands>(as_mds(), std::move(q));
  };
  EXPECT_EQ(command(99, 0, 5).error().code, Errc::kProtocol);
  EXPECT_EQ(command(wire::kCmdTruncate, 0, 0).error().code, Errc::kProtocol);
  auto cut = command(wire::kCmdTruncate, 50'000, 5);
  ASSERT_TRUE(cut) << cut.error().message();
  EXPECT_EQ(cut->done, std::vector<uint64_t>{5});
  EXPECT_EQ(cut->stats.at(0).size(), 50'000u);
  ASSERT_TRUE(write(kObject, 50'000, bytes(10, 1)));
  EXPECT_EQ(command(wire::kCmdTruncate, 50'000, 5)->stats.at(0).size(), 50'010u) << "a repeated command does nothing";
  ASSERT_TRUE(command(wire::kCmdDestroy, 0, 6));
  auto late = write(kObject, 0, bytes(4096, 1));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::kStaleGeneration);
  wire::ObjectCommandRequestT many;
  for (size_t i = 0; i <= kMaxCommands; ++i) many.commands.push_back(std::make_unique<wire::ObjectCommandT>());
  EXPECT_EQ(call<Method::kObjectCommands>(as_mds(), std::move(many)).error().code, Errc::kTooBig);
}

TEST_F(OssService, EpochsOldNewAndUnknown) {
  mds_->epochs = {{1, 4}};
  start_serving();
  const Buffer data = bytes(4096, 1);
  auto with_epoch = [&](uint32_t epoch) {
    auto q = write_request(kObject, 0, data);
    q.cap = cap(kObject, 3, 7, epoch);
    auto w = call<Method::kObjectWrite>(client_, std::move(q), data);
    return w ? Errc::kOk : w.error().code;
  };
  EXPECT_EQ(with_epoch(3), Errc::kStaleEpoch);
  EXPECT_EQ(with_epoch(4), Errc::kOk);
  EXPECT_EQ(mds_->registered(), 1u);
  {
    std::lock_guard lock(mds_->mutex);
    mds_->epochs = {{1, 5}};
  }
  EXPECT_EQ(with_epoch(5), Errc::kOk) << "a newer epoch makes the target ask the metadata server";
  EXPECT_EQ(mds_->registered(), 2u);
  EXPECT_EQ(with_epoch(9), Errc::kRetryLater) << "newer than the metadata server's";
  EXPECT_EQ(with_epoch(4), Errc::kStaleEpoch);
}

TEST_F(OssService, ARepeatedWriteGetsTheFirstAnswer) {
  start_serving();
  const Buffer data = bytes(4096, 1);
  auto q = write_request(kObject, 0, data);
  auto first = call<Method::kObjectWrite>(client_, q, data);
  ASSERT_TRUE(first);
  ASSERT_TRUE(write(kObject, 0, bytes(4096, 9)));  // somebody's later write
  auto other_connection = connect(wire::kRoleClient);
  auto again = call<Method::kObjectWrite>(other_connection, q, data);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->wseq, first->wseq);
  EXPECT_EQ(again->changed, first->changed);
  EXPECT_EQ(read(kObject, 0, 4096)->payload.data()[0], bytes(4096, 9).data()[0]) << "not written a second time";
  q.offset = 4096;
  q.sums = wire::range_sums(kObject, 4096, data.span());
  EXPECT_EQ(call<Method::kObjectWrite>(client_, q, data).error().code, Errc::kProtocol);
  EXPECT_EQ(metric(status(), "repeated_writes"), 1u);
}

TEST_F(OssService, LimitsOfRequests) {
  start_serving();
  const Buffer data = bytes(8192, 1);
  auto code = [&](auto change) {
    auto q = write_request(kObject, 0, data);
    change(q);
    auto w = call<Method::kObjectWrite>(client_, std::move(q), data);
    return w ? Errc::kOk : w.error().code;
  };
  EXPECT_EQ(code([](auto& q) { q.length = 0; }), Errc::kInval);
  EXPECT_EQ(code([](auto& q) { q.length = 2 * MiB; }), Errc::kInval);
  EXPECT_EQ(code([](auto& q) { q.length = 4096; }), Errc::kProtocol);
  EXPECT_EQ(code([](auto& q) { q.sums.pop_back(); }), Errc::kProtocol);
  EXPECT_EQ(code([](auto& q) { q.offset = kMaxFileSize - 4096; }), Errc::kFBig);
  EXPECT_EQ(code([](auto& q) { q.offset = UINT64_MAX; }), Errc::kFBig);
  EXPECT_EQ(code([](auto& q) { q.object.reset(); }), Errc::kProtocol);
  EXPECT_EQ(read(kObject, 0, 0).error().code, Errc::kInval);
  EXPECT_EQ(read(kObject, 0, 2 * MiB).error().code, Errc::kInval);
  EXPECT_EQ(read(kObject, 0, 4096)->reply.size, 0u) << "nothing was stored";
  wire::ObjectStatRequestT stat;
  stat.objects.assign(50'001, to_ref(kObject));
  EXPECT_EQ(call<Method::kObjectStat>(as_mds(), stat).error().code, Errc::kTooBig);
  stat.objects.pop_back();
  EXPECT_TRUE(call<Method::kObjectStat>(as_mds(), stat));
}

TEST_F(OssService, SeekFindsDataAndHoles) {
  start_serving();
  ASSERT_TRUE(write(kObject, 1 * MiB, bytes(4096, 1)));
  wire::ObjectSeekRequestT q;
  q.object = std::make_unique<schema::ObjectRef>(to_ref(kObject));
  q.cap = cap(kObject);
  auto data = call<Method::kObjectSeek>(client_, q);
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->found);
  EXPECT_EQ(data->offset, 1 * MiB);
  EXPECT_EQ(data->size, 1 * MiB + 4096);
  q.cap = nullptr;
  EXPECT_EQ(call<Method::kObjectSeek>(client_, q).error().code, Errc::kCapInvalid);
}

TEST_F(OssService, DataAndIncarnationAfterARestart) {
  start_serving();
  ASSERT_TRUE(write(kObject, 0, bytes(300'000, 4)));
  const auto uuid = mds_->registrations[0].uuid;
  client_.reset();
  stop();
  start_serving();
  EXPECT_EQ(status().incarnation, 2u);
  auto r = read(kObject, 0, 300'000);
  ASSERT_TRUE(r) << r.error().message();
  EXPECT_EQ(std::memcmp(r->payload.data(), bytes(300'000, 4).data(), 300'000), 0);
  std::lock_guard lock(mds_->mutex);
  EXPECT_TRUE(mds_->registrations.back().clean);
  EXPECT_EQ(mds_->registrations.back().uuid, uuid);
  EXPECT_EQ(mds_->registrations.back().incarnation, 2u);
}

TEST_F(OssService, AfterAnUncleanStopNothingOlderIsSeenBeforeItsWritersHaveReported) {
  start_serving();
  ASSERT_TRUE(write(kObject, 0, bytes(kBlockSize, 4)));
  crash();
  EXPECT_EQ(read(kObject, 0, kBlockSize).error().code, Errc::kRecovering);
  EXPECT_EQ(write(kObject, 0, bytes(kBlockSize, 5)).error().code, Errc::kRecovering) << "a new write could merge with what is missing";
  wire::ObjectStatRequestT stat;
  stat.objects = {to_ref(kObject)};
  EXPECT_EQ(call<Method::kObjectStat>(as_mds(), stat).error().code, Errc::kRecovering);
  auto resend = write_request(kObject, 0, bytes(kBlockSize, 4));
  resend.wseq = 1;
  ASSERT_TRUE(call<Method::kObjectWrite>(client_, std::move(resend), bytes(kBlockSize, 4)));
  auto commit = [&](uint64_t session) { return on_loop(runtime_, 1, rpc::call<Method::kObjectCommit>(client_, {}, {.deadline = system_clock().boot() + 20 * kSecond, .session = session})); };
  ASSERT_TRUE(commit(8));
  EXPECT_EQ(read(kObject, 0, kBlockSize).error().code, Errc::kRecovering) << "session 8 was not waited for";
  ASSERT_TRUE(commit(7));
  auto r = read(kObject, 0, kBlockSize);
  ASSERT_TRUE(r) << r.error().message();
  EXPECT_EQ(std::memcmp(r->payload.data(), bytes(kBlockSize, 4).data(), kBlockSize), 0);
}

TEST_F(OssService, AWriterThatIsFencedIsNotWaitedFor) {
  start_serving();
  ASSERT_TRUE(write(kObject, 0, bytes(kBlockSize, 4)));
  crash();
  EXPECT_EQ(read(kObject, 0, kBlockSize, cap(kObject, 3, 8)).error().code, Errc::kRecovering);
  wire::FenceRequestT fence;
  fence.session = 7;
  fence.until = mds_->time() + 60 * kSecond;
  ASSERT_TRUE(call<Method::kObjectFence>(as_mds(), fence));
  EXPECT_TRUE(read(kObject, 0, kBlockSize, cap(kObject, 3, 8)));
}

TEST_F(OssService, RefusesToStartWithASentence) {
  start();
  auto second = try_start();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kInUse);
  EXPECT_THAT(second.error().detail, HasSubstr("in use by another"));
  EXPECT_EQ(format_target(cluster_, 3).error().code, Errc::kExist);
  EXPECT_THAT(format_target(cluster_, 4).error().detail, HasSubstr("no storage target 4"));
  stop();
  const auto id = cluster_.id;
  cluster_.id.fill(1);
  EXPECT_EQ(try_start().error().code, Errc::kNotOurs);
  cluster_.id.fill(0);
  EXPECT_THAT(format_target(cluster_, 3).error().detail, HasSubstr("has no id"));
  cluster_.id = id;
  cluster_.osts[0].address = mds_->address();  // taken
  EXPECT_FALSE(try_start());
  cluster_.osts[0].address = "127.0.0.1:0";
  start();  // the failed starts left nothing locked
}

TEST_F(OssService, ManyAtOnceOnSeveralConnections) {
  start_serving();
  constexpr size_t kConnections = 4, kWrites = 64;
  std::vector<rpc::PeerPtr> peers;
  for (size_t i = 0; i < kConnections; ++i) peers.push_back(connect(wire::kRoleClient));
  auto body = [this](std::vector<rpc::PeerPtr> all) -> Task<size_t> {
    std::vector<Task<Result<wire::ObjectWriteReplyT>>> tasks;
    for (size_t i = 0; i < kWrites; ++i) {
      const ObjectId o{Ino(100 + i % 8), Generation(1), 0, 0};
      const Buffer data = bytes(16 * KiB, static_cast<uint8_t>(i));
      tasks.push_back(rpc::call<Method::kObjectWrite>(all[i % kConnections], write_request(o, i / 8 * 16 * KiB, data), {.payload = data}));
    }
    size_t good = 0;
    for (auto& r : co_await when_all(std::move(tasks))) good += r.has_value();
    co_return good;
  };
  EXPECT_EQ(on_loop(runtime_, 1, body(peers)), kWrites);
  for (size_t i = 0; i < kWrites; ++i) {
    const ObjectId o{Ino(100 + i % 8), Generation(1), 0, 0};
    auto r = read(o, i / 8 * 16 * KiB, 16 * KiB);
    ASSERT_TRUE(r);
    EXPECT_EQ(std::memcmp(r->payload.data(), bytes(16 * KiB, static_cast<uint8_t>(i)).data(), 16 * KiB), 0) << i;
  }
  EXPECT_LE(metric(status(), "capabilities_verified"), kWrites * 2) << "a capability is verified once per connection";
}

}  // namespace
}  // namespace nacre::storage
