// SPDX-License-Identifier: Apache-2.0
#include "storage/service/enrollment.h"

#include <fmt/format.h>

#include "common/log/log.h"
#include "common/wire/bits.h"

namespace nacre::storage {
namespace {
constexpr Nanos kRegisterTimeout = 10 * kSecond;
constexpr Nanos kHeartbeatTimeout = 5 * kSecond;
constexpr Nanos kLastHeartbeatTimeout = 500 * kMillisecond;
constexpr Nanos kRefreshTimeout = 5 * kSecond;
}  // namespace

void TimeOffset::add(Nanos sent_real, Nanos received_real, Nanos server) {
  const Nanos trip = std::max<Nanos>(received_real - sent_real, 0);
  const Nanos offset = server - sent_real - trip / 2;
  // Further off than the trips explain: one of the clocks was set, and what was known before is wrong.
  if (count_ != 0 && std::abs(offset - value()) > trip + samples_[best()].trip + kStep) count_ = next_ = 0;
  samples_[next_] = {trip, offset};
  next_ = (next_ + 1) % kSamples;
  count_ = std::min(count_ + 1, kSamples);
}

size_t TimeOffset::best() const {
  size_t at = 0;
  for (size_t i = 1; i < count_; ++i)
    if (samples_[i].trip < samples_[at].trip) at = i;
  return at;
}

Nanos TimeOffset::value() const { return count_ == 0 ? 0 : samples_[best()].offset; }

struct Enrollment::State : std::enable_shared_from_this<Enrollment::State> {
  Runtime& runtime;
  rpc::Transport& transport;
  ObjectStore& store;
  Metrics& metrics;
  Options options;
  rpc::Handler from_mds;
  std::atomic<bool> serving{false};
  // Loop 0 only:
  std::unique_ptr<rpc::Channel> channel;
  CancelPtr cancel = std::make_shared<Cancel>();
  TimeOffset time;
  std::string last_complaint;
  bool refreshing = false;
  std::vector<Completion<bool>> refreshers;
  Gate tasks;

  State(Runtime& r, rpc::Transport& t, ObjectStore& s, Metrics& m, Options o, rpc::Handler h)
      : runtime(r), transport(t), store(s), metrics(m), options(std::move(o)), from_mds(std::move(h)) {}

  Loop& home() { return runtime.loop(0); }
  Clock& clock() { return runtime.clock(); }
  std::string name() const { return fmt::format("ost{}", store.registration().ost.v); }

  void complain(const Error& e) {
    const std::string text = e.message();
    if (text != last_complaint) log::warn("{} can't register with the metadata server: {}; it goes on trying", name(), text);
    last_complaint = text;
  }

  void heard(Nanos sent_real, Nanos server_time) {
    time.add(sent_real, clock().real(), server_time);
    store.set_time_offset(time.value());
  }

  wire::OstRegisterRequestT request() const {
    const Registration r = store.registration();
    const Usage u = store.usage();
    wire::OstRegisterRequestT q;
    q.ost = r.ost.v;
    q.uuid.assign(r.uuid.begin(), r.uuid.end());
    q.address = options.address;
    q.host = options.host;
    q.pools = options.pools;
    q.capacity = u.capacity, q.used = u.used, q.available = u.available;
    q.incarnation = r.incarnation;
    q.clean = r.clean;
    q.max_ino = r.max_ino.v;
    q.max_command = r.max_command.v;
    q.wseq = r.wseq.v;
    q.max_session = r.max_session.v;
    q.max_epoch = r.max_epoch.v;
    return q;
  }

  static Task<Result<void>> enroll(std::shared_ptr<State> s, rpc::PeerPtr peer) {
    const Nanos sent = s->clock().real();
    auto reply = co_await rpc::call<rpc::Method::kOstRegister>(peer, s->request(), {.deadline = s->clock().boot() + kRegisterTimeout, .cancel = s->cancel});
    Result<void> done = reply ? Result<void>{} : Result<void>(Err(reply.error()));
    if (reply) done = co_await keep(s, sent, *reply);
    if (!done) {
      s->complain(done.error());
      co_return done;
    }
    s->last_complaint.clear();
    count(s->metrics.registrations);
    if (!s->serving.exchange(true)) log::info("{} serves: registered with the metadata server at {}, incarnation {}", s->name(), peer->info().address, s->store.registration().incarnation);
    else log::info("{} registered again", s->name());
    if (reply->state == 1) log::warn("{} is marked inactive by the administrator: clients get EIO for it", s->name());
    co_return done;
  }

  static Task<Result<void>> keep(std::shared_ptr<State> s, Nanos sent, const wire::OstRegisterReplyT& reply) {
    s->heard(sent, reply.time);
    std::vector<std::pair<FilesetId, Epoch>> epochs;
    for (const auto& e : reply.epochs) epochs.emplace_back(FilesetId(e.fileset()), Epoch(e.epoch()));
    std::vector<FenceEntry> fences;
    for (const auto& f : reply.fences) fences.push_back({SessionId(f.session()), f.until()});
    CO_CHECK_OK(co_await s->store.set_epochs(std::move(epochs)));
    if (!fences.empty()) CO_CHECK_OK(co_await s->store.set_fences(std::move(fences)));
    co_return Result<void>{};
  }

  static Task<Result<void>> beat(std::shared_ptr<State> s, rpc::PeerPtr peer, Nanos timeout) {
    const Usage u = s->store.usage();
    wire::OstHeartbeatRequestT q;
    q.ost = s->store.registration().ost.v;
    q.incarnation = s->store.registration().incarnation;
    q.capacity = u.capacity, q.used = u.used, q.available = u.available, q.objects = u.objects;
    const Nanos sent = s->clock().real();
    auto reply = co_await rpc::call<rpc::Method::kOstHeartbeat>(peer, std::move(q), {.deadline = s->clock().boot() + timeout, .cancel = s->cancel});
    if (!reply) co_return Err(reply.error());
    s->heard(sent, reply->time);
    if (!reply->known) co_return co_await enroll(s, peer);  // the metadata server has forgotten this target
    co_return Result<void>{};
  }

  static Task<Result<void>> connected(std::shared_ptr<State> s, rpc::PeerPtr peer) {
    if (!s) co_return Err(Errc::kShutdown);
    co_return co_await enroll(std::move(s), std::move(peer));
  }

  /// Until the next heartbeat, stop() or the end of the runtime; false for the last.
  static Task<bool> pause(std::shared_ptr<State> s) {
    auto woken = co_await Signal().wait(s->clock().boot() + s->options.heartbeat, s->cancel);
    co_return s->cancel->fired() || woken.error().code == Errc::kDeadline;
  }

  /// The life of the tie: connect (which registers), beat until the connection ends, again.
  static Task<void> live(std::shared_ptr<State> s) {
    rpc::Channel::Options o;
    o.addresses = s->options.mds;
    o.connect.cluster_id = s->options.cluster_id;
    o.connect.key = s->options.key;
    o.connect.role = wire::kRoleOss;
    o.connect.host = s->options.host;
    o.on_connected = [weak = s->weak_from_this()](rpc::PeerPtr peer) { return connected(weak.lock(), std::move(peer)); };
    s->channel = std::make_unique<rpc::Channel>(s->transport, std::move(o), s->from_mds);
    Nanos warned = s->clock().boot();
    while (!s->cancel->fired()) {
      auto peer = co_await s->channel->get(s->clock().boot() + kRegisterTimeout, s->cancel);
      if (!peer && !s->cancel->fired() && s->clock().boot() - warned >= kRegisterTimeout) {
        s->complain(peer.error());
        warned = s->clock().boot();
      }
      if (peer) {
        auto beaten = co_await beat(s, *peer, kHeartbeatTimeout);
        if (!beaten && !s->cancel->fired()) log::debug("{}: heartbeat: {}", s->name(), beaten.error().message());
      }
      if (!co_await pause(s)) break;
    }
    s->tasks.leave();
  }

  static Task<void> run_refresh(std::shared_ptr<State> s) {
    while (!s->refreshers.empty()) {
      auto mine = std::exchange(s->refreshers, {});
      Result<bool> outcome = Err(Errc::kUnavailable, "the metadata server is away");
      if (s->channel) {
        auto peer = co_await s->channel->get(s->clock().boot() + kRefreshTimeout, s->cancel);
        if (peer) {
          auto done = co_await enroll(s, *peer);
          if (done) outcome = true;
          else outcome = Err(done.error());
        }
      }
      for (auto& m : mine) m.set(outcome);
    }
    s->refreshing = false;
    s->tasks.leave();
  }
};

Enrollment::Enrollment(Runtime& runtime, rpc::Transport& transport, ObjectStore& store, Metrics& metrics, Options options, rpc::Handler from_mds)
    : state_(std::make_shared<State>(runtime, transport, store, metrics, std::move(options), std::move(from_mds))) {}
Enrollment::~Enrollment() = default;

void Enrollment::start() {
  if (state_->tasks.enter()) state_->home().spawn(State::live(state_));
}

bool Enrollment::serving() const { return state_->serving.load(std::memory_order_acquire); }

Task<Result<void>> Enrollment::refresh() {
  Completion<bool> done;
  state_->home().post([s = state_, done] {
    s->refreshers.push_back(done);
    if (s->refreshing) return;
    if (!s->tasks.enter()) {
      for (auto& r : std::exchange(s->refreshers, {})) r.set(Err(Errc::kShutdown));
      return;
    }
    s->refreshing = true;
    s->home().spawn(State::run_refresh(s));
  });
  auto outcome = co_await done.wait();
  if (!outcome) co_return Err(outcome.error());
  co_return Result<void>{};
}

Task<void> Enrollment::stop() {
  Signal ended;
  state_->home().spawn([](std::shared_ptr<State> s, Signal signal) -> Task<void> {
    if (auto peer = s->channel ? s->channel->peek() : nullptr) (void)co_await State::beat(s, peer, kLastHeartbeatTimeout);
    s->cancel->fire(Errc::kShutdown);
    if (s->channel) s->channel->close();
    co_await s->tasks.close();
    s->channel.reset();
    signal.set();
  }(state_, ended));
  (void)co_await ended.wait();
}

}  // namespace nacre::storage
