// SPDX-License-Identifier: Apache-2.0
// See oss_world.h.
#include "tests/fuzz/oss_world.h"

#include <cstdio>
#include <cstdlib>

#include "common/base/units.h"
#include "common/wire/bits.h"
#include "tests/support/memory_dir.h"

namespace nacre::storage::fuzz {
namespace {
constexpr Nanos kAnswer = 60 * kSecond;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "ERROR: %s\n", why.c_str());
  std::abort();
}

/// Registers the target and hears its heartbeats.
Task<rpc::Reply> metadata_server(const Clock* clock, rpc::Request request) {
  if (request.header.method == static_cast<uint16_t>(rpc::Method::kOstRegister)) {
    wire::OstRegisterReplyT r;
    r.time = clock->real();
    r.epochs.emplace_back(1, 3);
    co_return rpc::ok(r);
  }
  if (request.header.method == static_cast<uint16_t>(rpc::Method::kOstHeartbeat)) {
    wire::OstHeartbeatReplyT r;
    r.time = clock->real();
    r.known = true;
    co_return rpc::ok(r);
  }
  co_return rpc::fail({Errc::kOpNotSupp, "stand-in"});
}

Task<void> ask(rpc::PeerPtr peer, CallPtr call, size_t& under_way) {
  const Nanos deadline = Loop::current()->clock().boot() + kAnswer;
  auto reply = co_await peer->call(static_cast<rpc::Method>(call->method), std::move(call->body), {.deadline = deadline, .payload = std::move(call->payload)});
  call->reply = std::move(reply);
  call->done = true;
  --under_way;
}
}  // namespace

World::World() : dir_(test::memory_dir() / fmt::format("nacre-oss-fuzz-{}", ::getpid())) {
  std::filesystem::remove_all(dir_);
  std::filesystem::create_directories(dir_);
  for (size_t i = 0; i < key_.size(); ++i) key_[i] = static_cast<uint8_t>(i * 7 + 1);
  cluster_.id.fill(0x5a);
  cluster_.file = dir_ / "cluster.toml";
  cluster_.mds.push_back({"mds", "mds:1", dir_ / "mds"});
  cluster_.osts.push_back({3, "oss", "oss:1", dir_ / "ost3", {"ssd"}, kCapacity});
  hand_.runtime.start();
  auto server = rpc::serve(hand_.runtime, *mds_host_, {.address = "mds:1", .cluster_id = cluster_.id, .key = key_, .incarnation = 1},
                           [this](rpc::PeerPtr, rpc::Request request) { return metadata_server(&hand_.clock, std::move(request)); });
  if (!server) give_up(server.error().message());
  mds_ = std::move(*server);
  if (auto formatted = format_target(cluster_, 3); !formatted) give_up(formatted.error().message());
  start();
}

World::~World() {
  stop();
  mds_->stop();
  hand_.runtime.stop(0);
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void World::start() {
  auto service = run(Service::start(hand_.runtime, *oss_host_, {.cluster = cluster_, .ost = 3, .key = key_, .fatal = [this](Error e) { fatal = std::move(e); }, .device = device_, .env = &env_}));
  if (!service) give_up("the target doesn't start: " + service.error().message());
  service_ = std::move(*service);
  until([this] { return service_->serving(); });
  client_ = connect(wire::kRoleClient);
  as_mds_ = connect(wire::kRoleMds);
}

void World::stop() {
  client_->close(Errc::kShutdown);
  as_mds_->close(Errc::kShutdown);
  client_.reset();
  as_mds_.reset();
  if (auto stopped = run(service_->stop()); !stopped) give_up("the target doesn't stop cleanly: " + stopped.error().message());
  service_.reset();
}

void World::restart() {
  stop();
  start();
}

rpc::PeerPtr World::connect(uint8_t role) {
  auto peer = run(rpc::connect(*client_host_, {.address = "oss:1", .cluster_id = cluster_.id, .key = key_, .role = role, .host = "client"}, nullptr));
  if (!peer) give_up("no connection to the target: " + peer.error().message());
  return *peer;
}

void World::send(CallPtr call) {
  ++under_way_;
  hand_.runtime.loop(0).spawn(ask(call->as_mds ? as_mds_ : client_, std::move(call), under_way_));
}

void World::wait() {
  until([this] { return under_way_ == 0; });
}

void World::pass(Nanos time) {
  const Nanos end = hand_.clock.boot() + time;
  hand_.run(time);
  if (hand_.clock.boot() < end) hand_.clock.advance(end - hand_.clock.boot());
}

template <class T>
T World::run(Task<T> task) {
  std::optional<T> out;
  auto body = [](std::optional<T>& o, Task<T> t) -> Task<void> {
    T value = co_await std::move(t);
    o.emplace(std::move(value));
  };
  hand_.runtime.loop(0).spawn(body(out, std::move(task)));
  until([&] { return out.has_value(); });
  return std::move(*out);
}

void World::until(const std::function<bool()>& done) {
  const Nanos limit = hand_.clock.boot() + 2 * kAnswer;
  for (;;) {
    hand_.settle();
    if (done()) return;
    const Nanos next = hand_.runtime.next_timer();
    if (next < 0 || next > limit) give_up("something waits for ever");
    if (next > hand_.clock.boot()) hand_.clock.advance(next - hand_.clock.boot());
    hand_.runtime.fire_timers();
  }
}

}  // namespace nacre::storage::fuzz
