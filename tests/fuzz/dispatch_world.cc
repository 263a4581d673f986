// SPDX-License-Identifier: Apache-2.0
// See dispatch_world.h.
#include "tests/fuzz/dispatch_world.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>

#include "common/base/units.h"
#include "common/layout/layout.h"
#include "tests/unit/metadata/ops/check_namespace.h"

namespace nacre::mds::fuzz {
namespace {
constexpr Nanos kAnswerLimit = 300 * kSecond;  ///< of the clock: no request may take longer, whatever is down
constexpr uint64_t kCapacity = 100 * GiB;

[[noreturn]] void fault(const std::string& what) {
  std::fprintf(stderr, "dispatch_fuzz: %s\n", what.c_str());
  std::abort();
}
bool tracing() {
  static const bool on = std::getenv("NACRE_TRACE") != nullptr;
  return on;
}

CoreOptions core_options(const std::string& directory) {
  CoreOptions o;
  o.cluster.name = "fuzz";
  o.cluster.id.fill(9);
  o.cluster.mds.push_back({"mds", "mds:1", directory});
  auto& s = o.cluster.settings;
  s.mds_session_slots = 16;
  s.mds_block_cache = 8 << 20;
  o.key.fill(7);
  o.data = directory;
  o.host = "mds";
  o.fatal = [](Error e) { fault("the journal failed: " + e.message()); };
  return o;
}

// ---------------------------------------------------------------- storage targets

wire::ObjectStat stat_of(const Targets& t, const ObjectId& id) {
  auto it = t.objects.find(id);
  if (it == t.objects.end()) return {};
  const auto& o = it->second;
  return {o.size, o.allocated, o.changed, o.wseq, true};
}

rpc::Reply carry_out(Targets& t, const wire::ObjectCommandRequestT& q, Nanos now) {
  wire::ObjectCommandReplyT reply;
  for (const auto& c : q.commands) {
    const ObjectId id = to_id(*c->object);
    if (c->kind == wire::kCmdAllocate && t.no_space) return rpc::fail(Error(Errc::kNoSpc));
    if (c->kind == wire::kCmdDestroy) t.objects.erase(id);
    if (c->kind == wire::kCmdAllocate) t.objects.try_emplace(id);
    auto it = t.objects.find(id);
    if (it != t.objects.end() && it->second.command < c->command) {
      it->second.command = c->command;
      it->second.changed = std::max(it->second.changed, now);
      if (c->kind == wire::kCmdTruncate) it->second.size = std::min(it->second.size, c->offset);
    }
    reply.done.push_back(c->command);
    reply.stats.push_back(stat_of(t, id));
  }
  return rpc::ok(reply);
}

Task<rpc::Reply> serve_target(std::shared_ptr<Targets> t, rpc::Request q) {
  switch (static_cast<rpc::Method>(q.header.method)) {
    case rpc::Method::kObjectStat: {
      auto asked = decode<wire::ObjectStatRequestT>(q.body);
      if (!asked) fault("a malformed question to a storage target");
      wire::ObjectStatReplyT reply;
      for (const auto& ref : asked->objects) reply.stats.push_back(stat_of(*t, to_id(ref)));
      co_return rpc::ok(reply);
    }
    case rpc::Method::kObjectCommands: {
      auto asked = decode<wire::ObjectCommandRequestT>(q.body);
      if (!asked || asked->commands.size() > 1000) fault("a malformed command to a storage target");
      co_return carry_out(*t, *asked, Loop::current()->clock().real());
    }
    case rpc::Method::kObjectFence: co_return rpc::ok(wire::EmptyT{});
    case rpc::Method::kOssStatus: {
      wire::OssStatusReplyT status;
      status.objects = t->objects.size();
      co_return rpc::ok(status);
    }
    case rpc::Method::kObjectList: {
      auto asked = decode<wire::ObjectListRequestT>(q.body);
      if (!asked || asked->limit == 0 || asked->limit > 10'000) fault("a malformed question for a target's objects");
      wire::ObjectListReplyT reply;
      auto it = asked->after ? t->objects.upper_bound(to_id(*asked->after)) : t->objects.begin();
      for (; it != t->objects.end() && reply.objects.size() < asked->limit; ++it) reply.objects.emplace_back(to_ref(it->first), stat_of(*t, it->first), 1);
      reply.end = it == t->objects.end();
      reply.total = t->objects.size();
      co_return rpc::ok(reply);
    }
    case rpc::Method::kObjectScrub: {
      wire::ObjectScrubReplyT reply;
      reply.last = std::make_unique<schema::ObjectRef>();
      reply.end = true;
      for (const auto& [id, object] : t->objects) reply.bad.emplace_back(to_ref(id), 4096, 4096);  // whatever it is, the answer names it
      co_return rpc::ok(reply);
    }
    default: fault(fmt::format("a storage target was sent {}", rpc::method_name(q.header.method)));
  }
}

/// Does an answer decode as what the method promises?
bool decodes(uint16_t method, const Bytes& body) {
  switch (method) {
#define NACRE_METHOD(name, number, req, rep, flags) \
  case number: return decode<wire::rep##T>(body).has_value();
#include "common/rpc/methods.def"
#undef NACRE_METHOD
    default: return false;
  }
}
}  // namespace

// ---------------------------------------------------------------- callers

/// A connection as the server sees it. What the server calls is checked and answered.
class Caller final : public rpc::Peer {
 public:
  Caller(Loop& loop, uint8_t role, bool trusted, uint32_t uid) : loop_(loop) {
    info_.role = role;
    info_.trusted = trusted;
    info_.uid = uid;
    info_.host = "fuzz";
    info_.address = "fuzz:1";
  }
  Task<Result<rpc::Reply>> call(rpc::Method method, Bytes body, rpc::CallOptions) override { return answer(std::static_pointer_cast<Caller>(shared_from_this()), method, std::move(body)); }
  void close(Error why) override {
    if (std::exchange(closed_, true)) return;
    loop_.post([callbacks = std::move(on_close_), why] {
      for (auto& fn : callbacks) fn(why);
    });
  }
  bool closed() const override { return closed_; }
  Loop& loop() override { return loop_; }
  const rpc::PeerInfo& info() const override { return info_; }
  void on_close(std::function<void(Error)> fn) override { on_close_.push_back(std::move(fn)); }

 private:
  static Task<Result<rpc::Reply>> answer(std::shared_ptr<Caller> self, rpc::Method method, Bytes body) {
    const bool known = method == rpc::Method::kLockGranted ? decode<wire::LockGrantedCallT>(body).has_value()
                       : method == rpc::Method::kSizeGrew  ? decode<wire::SizeGrewCallT>(body).has_value()
                                                           : false;
    if (!known) fault("the server called what no client serves");
    co_await yield_now();
    if (self->closed_) co_return Err(Errc::kDisconnected);
    co_return rpc::ok(wire::EmptyT{});
  }
  Loop& loop_;
  rpc::PeerInfo info_;
  bool closed_ = false;
  std::vector<std::function<void(Error)>> on_close_;
};

static std::shared_ptr<Caller> make_caller(Loop& loop, uint8_t who) {
  switch (who) {
    case kTool: return std::make_shared<Caller>(loop, wire::kRoleAdmin, true, 0);
    case kStorage: return std::make_shared<Caller>(loop, wire::kRoleOss, true, 0);
    case kUser: return std::make_shared<Caller>(loop, wire::kRoleClient, false, 1000);
    default: return std::make_shared<Caller>(loop, wire::kRoleClient, true, 0);
  }
}

// ---------------------------------------------------------------- start and stop

World::World(std::string directory, Bare) : directory_(std::move(directory)), options_(core_options(directory_)) {}

World::World(std::string directory, std::unique_ptr<Store> store) : World(std::move(directory), Bare{}) {
  clock_.advance(3600 * kSecond);  // later than what the template holds
  open(std::move(store));
  sessions_ = {1, 2, 3};
  join_all(true);
  auto open_file = [&](uint8_t who, uint64_t handle, uint32_t flags) {
    wire::OpenRequestT q;
    q.cred = std::make_unique<wire::CredT>();
    q.ino = kFile;
    q.handle = handle;
    q.flags = flags;
    must(who, rpc::Method::kOpen, encode(q));
  };
  open_file(kClientA, 1, O_RDWR);
  open_file(kClientA, 2, O_WRONLY | O_APPEND);
  open_file(kClientB, 1, O_RDWR);
  open_file(kUser, 1, O_RDONLY);
}

World::~World() { (void)close(false); }
std::unique_ptr<Store> World::take_store() { return close(false); }

void World::open(std::unique_ptr<Store> store) {
  RuntimeOptions ro;
  ro.loops = 1;
  ro.workers = 0;
  ro.threads = false;
  ro.clock = &clock_;
  runtime_ = std::make_unique<Runtime>(ro);
  runtime_->start();
  mds_host_ = network_.host("mds");
  ost_host_ = network_.host("ost");
  core_ = std::make_unique<Core>(*runtime_, *mds_host_, options_);
  if (auto opened = core_->open(std::move(store)); !opened) fault("the server doesn't start: " + opened.error().message());
  dispatcher_ = std::make_unique<Dispatcher>(*core_);
  core_->spawn_background();
  for (uint8_t who = 0; who < kCallers; ++who) callers_[who] = make_caller(runtime_->loop(0), who);
  serve_targets(true);
}

std::unique_ptr<Store> World::close(bool clean) {
  if (!core_) return nullptr;
  stopping_ = true;
  for (auto& s : servers_) s.reset();
  up_ = false;
  core_->channels->close();
  for (auto& c : callers_) c->close(Error(Errc::kShutdown));
  runtime_->stop();
  if (clean)
    if (auto closed = core_->close_clean(); !closed) fault("a clean stop fails: " + closed.error().message());
  for (auto& c : callers_) c.reset();
  pending_.clear();
  dispatcher_.reset();
  std::unique_ptr<Store> store = std::move(core_->store);
  core_.reset();
  mds_host_.reset();
  ost_host_.reset();
  runtime_.reset();
  stopping_ = false;
  return store;
}

/// Both targets appear, or vanish.
void World::serve_targets(bool up) {
  if (std::exchange(up_, up) == up) return;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    servers_[i].reset();
    if (!up) continue;
    rpc::ServerOptions so;
    so.address = fmt::format("ost:{}", i + 1);
    so.cluster_id = options_.cluster.id;
    so.key = options_.key;
    so.incarnation = incarnation_ + 1;
    auto server = rpc::serve(*runtime_, *ost_host_, so, [t = targets_](rpc::PeerPtr, rpc::Request q) { return serve_target(t, std::move(q)); });
    if (!server) fault("a storage target can't listen: " + server.error().message());
    servers_[i] = std::move(*server);
    wire::OstRegisterRequestT q;
    q.ost = i;
    q.uuid.assign(16, static_cast<uint8_t>(0x40 + i));
    q.address = so.address;
    q.host = "ost";
    q.capacity = q.available = kCapacity;
    q.incarnation = so.incarnation;
    must(kStorage, rpc::Method::kOstRegister, encode(q));
  }
  incarnation_ += up;
}

/// A client comes, or comes back over a new connection.
void World::join(uint8_t who, bool reclaim) {
  wire::SessionOpenRequestT q;
  q.client_uuid.assign(16, who);
  q.host = "fuzz";
  q.mount = "/mnt";
  q.resume = sessions_[who];
  auto reply = decode<wire::SessionOpenReplyT>(must(who, rpc::Method::kSessionOpen, encode(q)));
  if (reply->session != sessions_[who]) std::erase_if(sequences_, [who](const auto& s) { return s.first.first == who; });
  sessions_[who] = reply->session;
  if (!reclaim) return;
  wire::ReclaimRequestT done;
  done.done = true;
  must(who, rpc::Method::kReclaim, encode(done));
}

void World::join_all(bool reclaim) {
  for (uint8_t who : {kClientA, kClientB, kUser}) join(who, reclaim);
}

/// A client whose session or connection has ended begins anew.
void World::revive(uint8_t who) {
  const auto* context = std::any_cast<PeerContext>(&callers_[who]->context);
  if (context && core_->sessions->find(context->session->id()) && context->session->state() != Session::State::kEvicting) return;
  callers_[who]->close(Error(Errc::kDisconnected));
  callers_[who] = make_caller(runtime_->loop(0), who);
  join(who, true);
}

std::unique_ptr<Store> World::open_store(const std::string& directory) {
  Store::Options so;
  so.path = directory;
  so.cluster_id.fill(9);
  so.block_cache = 8 << 20;
  so.write_buffer = 1 << 20;
  auto store = Store::open(so);
  if (!store) fault("the store doesn't open: " + store.error().message());
  return std::move(*store);
}

void World::make_template(const std::string& directory) {
  SeededRng rng(1);
  ManualClock clock;
  Store::Options so;
  so.path = directory;
  so.cluster_id.fill(9);
  so.clock = &clock;
  so.rng = &rng;
  so.write_buffer = 1 << 20;
  if (auto made = Store::format(so); !made) fault("the template can't be made: " + made.error().message());
  World world(directory, Bare{});
  world.open();
  world.join_all(false);
  world.populate();
  world.check();
  (void)world.close(true);
}

void World::populate() {
  auto cred = [] { return std::make_unique<wire::CredT>(); };
  auto node = [&](uint64_t parent, std::string_view name, uint32_t mode, std::string_view target = "") {
    wire::MknodRequestT q;
    q.cred = cred();
    q.parent = parent;
    q.name = as_bytes(name);
    q.mode = mode;
    q.symlink = as_bytes(target);
    must(kClientA, rpc::Method::kMknod, encode(q));
  };
  node(1, "d", S_IFDIR | 0777);
  node(kDir, "sub", S_IFDIR | 0755);
  node(1, "f", S_IFREG | 0666);
  node(kDir, "g", S_IFREG | 0644);
  node(1, "l", S_IFLNK | 0777, "f");
  node(1, "p", S_IFIFO | 0644);
  wire::LinkRequestT link;
  link.cred = cred();
  link.ino = kFile;
  link.new_parent = 1;
  link.new_name = as_bytes("f2");
  must(kClientA, rpc::Method::kLink, encode(link));
  wire::XattrSetRequestT attribute;
  attribute.cred = cred();
  attribute.ino = kFile;
  attribute.name = "user.a";
  attribute.value = as_bytes("value");
  must(kClientA, rpc::Method::kXattrSet, encode(attribute));
}

// ---------------------------------------------------------------- time

bool World::wait(const std::function<bool()>& what, Nanos limit) {
  const Nanos end = clock_.boot() + limit;
  for (;;) {
    while (runtime_->run_ready() != 0) continue;
    if (what()) return true;
    const Nanos next = runtime_->next_timer();
    if (next < 0 || next > end) {
      if (tracing()) std::fprintf(stderr, "  nothing more: now %ld next %ld end %ld\n", clock_.boot(), next, end);
      return false;
    }
    if (next > clock_.boot()) clock_.advance(next - clock_.boot());
    for (uint32_t i = 0; up_ && i < servers_.size(); ++i) {
      wire::OstHeartbeatRequestT beat;
      beat.ost = i;
      beat.incarnation = incarnation_;
      beat.capacity = beat.available = kCapacity;
      (void)core_->registry->heartbeat(beat);
    }
    runtime_->fire_timers();
  }
}

void World::pass(Nanos time) {
  const Nanos end = clock_.boot() + time;
  wait([] { return false; }, time);
  if (clock_.boot() < end) clock_.advance(end - clock_.boot());
}

// ---------------------------------------------------------------- requests

std::shared_ptr<Answer> World::send(uint8_t who, const Step& step) {
  rpc::Request q;
  q.header.method = step.method;
  q.header.timeout_ms = uint32_t{step.timeout} * 100;
  if (step.flags & kWrongSession) q.header.session = 12345;
  if (step.sequence != kUnslotted) {
    uint32_t& last = sequences_[{who, step.slot}];
    if (step.sequence == kNext) ++last;
    q.header.slot = step.slot;
    q.header.sequence = step.sequence == kNext || step.sequence == kRepeat ? last : step.sequence;
  }
  q.header.body_size = static_cast<uint32_t>(step.body.size());
  q.body = step.body;
  if (rpc::Method(step.method) == rpc::Method::kMdsBackup) {  // it may name any place of this machine: one that is refused instead
    if (auto named = decode<wire::MdsBackupRequestT>(q.body); named && named->directory.starts_with('/')) {
      named->directory = directory_ + "/backup";
      q.body = encode(*named);
    }
    q.header.body_size = static_cast<uint32_t>(q.body.size());
  }
  auto answer = std::make_shared<Answer>();
  auto run = [](World& w, rpc::PeerPtr peer, rpc::Request request, std::shared_ptr<Answer> to) -> Task<void> {
    const uint16_t method = request.header.method;
    to->reply = co_await w.dispatcher_->handle(std::move(peer), std::move(request));
    to->done = true;
    w.answered(method, to->reply);
  };
  runtime_->loop(0).spawn(run(*this, callers_[who], std::move(q), answer));
  return answer;
}

void World::answered(uint16_t method, const rpc::Reply& reply) {
  if (tracing()) std::fprintf(stderr, "  %s: %s %s\n", rpc::method_name(method), std::string(name_of(reply.status)).c_str(), reply.detail.c_str());
  if (stopping_) return;
  if (reply.body.size() > wire::kMaxBody) fault(fmt::format("the answer to {} has {} bytes", rpc::method_name(method), reply.body.size()));
  if (reply.status == Errc::kOk) {
    if (!decodes(method, reply.body)) fault(fmt::format("the answer to {} doesn't decode", rpc::method_name(method)));
    return;
  }
  const bool impossible = method == static_cast<uint16_t>(rpc::Method::kOstRegister);  // it reports numbers that no object can have
  const Errc c = reply.status;
  if ((c == Errc::kCorrupt && !impossible) || c == Errc::kIo || c == Errc::kIncomplete || c == Errc::kVersion || c == Errc::kShutdown)
    fault(fmt::format("{} is answered with {}: {}", rpc::method_name(method), name_of(c), reply.detail));
}

rpc::Reply World::ask(uint8_t who, rpc::Method method, Bytes body) {
  Step s;
  s.method = static_cast<uint8_t>(method);
  s.body = std::move(body);
  auto answer = send(who, s);
  if (!wait([&] { return answer->done; }, kAnswerLimit)) fault(fmt::format("{} is never answered", rpc::method_name(s.method)));
  return answer->reply;
}

/// A request that can't fail.
Bytes World::must(uint8_t who, rpc::Method method, Bytes body) {
  rpc::Reply reply = ask(who, method, std::move(body));
  if (reply.status != Errc::kOk) fault(fmt::format("{} fails: {} {}", rpc::method_name(static_cast<uint16_t>(method)), name_of(reply.status), reply.detail));
  return std::move(reply.body);
}

void World::write_object(std::span<const uint8_t> bytes) {
  wire::ObjectReport r;
  if (bytes.size() < sizeof r) return;
  std::memcpy(&r, bytes.data(), sizeof r);
  auto& o = targets_->objects[to_id(r.object())];
  o.size = r.size();
  o.allocated = r.allocated();
  o.wseq = r.wseq();
  o.changed = r.changed();
}

void World::play(const Step& step) {
  const uint8_t who = step.who % kCallers;
  if (tracing()) std::fprintf(stderr, "%u %s\n", who, step.method < kWriteObject ? rpc::method_name(step.method) : fmt::format("event {}", step.method).c_str());
  switch (step.method) {
    case kWriteObject: return write_object(step.body);
    case kTargetsDown:
    case kTargetsUp: return serve_targets(step.method == kTargetsUp);
    case kNoSpace: targets_->no_space = !targets_->no_space; return;
    case kHangUp:
      callers_[who]->close(Error(Errc::kDisconnected));
      callers_[who] = make_caller(runtime_->loop(0), who);
      return;
    case kKill:
    case kStop:
      (void)close(step.method == kStop);
      open();
      return join_all(step.slot % 2 == 0);
    default: break;
  }
  if (who <= kUser && !(step.flags & kForlorn) && step.method >= 20) revive(who);
  auto answer = send(who, step);
  pending_.push_back(answer);
  if (!(step.flags & kHold) && !wait([&] { return answer->done; }, kAnswerLimit)) fault(fmt::format("{} is never answered", rpc::method_name(step.method)));
  if (step.flags & kPause) pass(200 * kMillisecond);
  if (step.flags & kLongPause) pass(40 * kSecond);
}

// ---------------------------------------------------------------- what must be

static void check_store(const Store& store, const Journal& journal) {
  const auto faults = test::namespace_faults(store, journal);
  for (const auto& f : faults) std::fprintf(stderr, "dispatch_fuzz: %s\n", f.c_str());
  if (!faults.empty()) fault("the namespace is damaged");
  (void)View(store, Tier::kFull).scan(Family::kInode, "", "", [](std::string_view key, std::string_view) {
    if (auto ino = parse_inode_key(key); !ino || ino->v >= kInoLimit) fault("an inode number of another metadata target");
    return true;
  });
}

void World::check() {
  if (!wait([&] { return std::all_of(pending_.begin(), pending_.end(), [](const auto& p) { return p->done; }); }, kAnswerLimit)) fault("a request is never answered");
  pending_.clear();
  check_store(*core_->store, *core_->journal);
  size_t records = 0;
  View view(*core_->store, Tier::kFull);
  (void)view.scan(Family::kSession, "", "", [&](std::string_view, std::string_view) { return ++records, true; });
  if (records != core_->sessions->size()) fault(fmt::format("{} sessions on record, {} in memory", records, core_->sessions->size()));
  (void)view.scan(Family::kReply, "", "", [&](std::string_view key, std::string_view) {
    if (auto reply = parse_reply_key(key); !reply || !core_->sessions->find(reply->session)) fault("a stored reply of no session");
    return true;
  });
}

/// No request has registered other targets, moved one, or taken one out of service.
bool World::targets_untouched() const {
  if (core_->registry->size() != servers_.size()) return false;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    auto e = core_->registry->endpoint(OstId(i));
    if (!e || e->state != wire::kOstActive || e->address != fmt::format("ost:{}", i + 1)) return false;
  }
  return true;
}

void World::evict_all() {
  for (;;) {
    auto some = core_->sessions->after(SessionId(0), 1);
    if (some.empty()) return;
    const uint64_t id = some[0]->id().v;
    const bool going = some[0]->state() == Session::State::kEvicting;
    some.clear();
    if (going) {
      if (!wait([&] { return !core_->sessions->find(SessionId(id)); }, kAnswerLimit)) fault(fmt::format("the eviction of session {} doesn't end", id));
      continue;
    }
    wire::ClientEvictRequestT q;
    q.session = id;
    const rpc::Reply reply = ask(kTool, rpc::Method::kClientEvict, encode(q));
    if (reply.status != Errc::kOk && reply.status != Errc::kNoSession) fault(fmt::format("session {} can't be evicted: {} {}", id, name_of(reply.status), reply.detail));
  }
}

void World::check_end() {
  check();
  targets_->no_space = false;
  serve_targets(true);
  evict_all();
  if (core_->locks.total() != 0) fault(fmt::format("{} locks of nobody", core_->locks.total()));
  if (!targets_untouched()) return check();
  auto over = [&] { return core_->opens.total() == 0 && core_->orphans->size() == 0 && core_->owed->count() == 0 && core_->migrations->size() == 0; };
  if (!wait(over, 120 * kSecond))
    fault(fmt::format("without sessions: {} opens, {} orphans, {} commands owed, {} migrations", core_->opens.total(), core_->orphans->size(), core_->owed->count(), core_->migrations->size()));
  check();
}

void World::check_disk() {
  (void)close(false);
  auto store = open_store(directory_);
  auto journal = Journal::open(*store, {});
  if (!journal) fault("after a kill the journal doesn't open: " + journal.error().message());
  check_store(*store, **journal);
}

}  // namespace nacre::mds::fuzz
