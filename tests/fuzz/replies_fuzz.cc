// SPDX-License-Identifier: Apache-2.0
// Replies and pushes to a client: servers that answer with anything. Every operation ends within the soft limit, returns no more
// than was asked for and no name that is none; the client says goodbye and leaves nothing running.
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>

#include <fuzzer/FuzzedDataProvider.h>

#include "client/core/filesystem.h"
#include "common/log/log.h"
#include "common/testing/memory_transport.h"
#include "tests/unit/client/stand_in.h"
#include "tests/unit/common/runtime/hand.h"

namespace nacre::client::fuzz {
namespace {
using rpc::Method;
constexpr size_t kMostOperations = 24;               // of one input
constexpr Nanos kSoft = 20 * kSecond;
constexpr Nanos kLimit = 600 * kSecond;              // an operation may meet several waits, each as long as the soft limit
constexpr size_t kKept = 8;                          // earlier replies that may come again in the place of others

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "ERROR: %s\n", why.c_str());
  std::abort();
}

/// Makes a reply into something else.
class Liar {
 public:
  explicit Liar(FuzzedDataProvider& in) : in_(in) {}
  bool honest = true;                                ///< while the cluster is built and torn down

  void alter(const rpc::PeerPtr& peer, const rpc::Request& request, rpc::Reply& reply) {
    if (honest || in_.remaining_bytes() == 0) return;
    const uint8_t kind = in_.ConsumeIntegralInRange<uint8_t>(0, 23);
    if (kind < 12) lie(static_cast<Method>(request.header.method), kind, reply);
    else if (kind == 12) push(peer);
    kept_.push_back(reply.body);
    if (kept_.size() > kKept) kept_.erase(kept_.begin());
  }

 private:
  uint64_t number() {
    static constexpr uint64_t kSpecial[] = {0, 1, 4095, 4096, 65'535, 65'536, 1 << 20, kMaxFileSize, kMaxFileSize + 1, UINT32_MAX, INT64_MAX, uint64_t{1} << 63, UINT64_MAX - 4095, UINT64_MAX};
    return in_.ConsumeBool() ? in_.PickValueInArray(kSpecial) : in_.ConsumeIntegralInRange<uint64_t>(0, 300'000);
  }
  void lie(Method method, uint8_t kind, rpc::Reply& reply) {
    switch (kind) {
      case 0: reply.status = static_cast<Errc>(in_.ConsumeIntegralInRange<uint16_t>(0, 80)); break;
      case 1: reply = rpc::fail(Error(static_cast<Errc>(in_.ConsumeIntegralInRange<uint16_t>(1, 80)), in_.ConsumeRandomLengthString(600))); break;
      case 2:
        for (int n = in_.ConsumeIntegralInRange(1, 4); n > 0 && !reply.body.empty(); --n) reply.body[number() % reply.body.size()] = static_cast<decltype(reply.body)::value_type>(in_.ConsumeIntegral<uint8_t>());
        break;
      case 3: reply.body.resize(std::min<size_t>(reply.body.size(), number())); break;
      case 4: if (!kept_.empty()) reply.body = kept_[in_.ConsumeIntegralInRange<size_t>(0, kept_.size() - 1)]; break;
      case 5: payload(reply, std::min<uint64_t>(number(), 2 * MiB)); break;
      case 6: if (!reply.payload.empty()) payload(reply, reply.payload.size()), reply.payload.span()[number() % reply.payload.size()] ^= std::byte{4}; break;
      default: fields(method, reply); break;
    }
  }
  static void payload(rpc::Reply& reply, uint64_t size) {
    Buffer b = Buffer::allocate(std::max<uint64_t>(size, 1)).slice(0, size);
    std::memset(b.data(), 0, size);
    if (!reply.payload.empty()) std::memcpy(b.data(), reply.payload.data(), std::min<size_t>(size, reply.payload.size()));
    reply.payload = b;
  }

  // ---- fields of well-formed messages
  template <class T, class F>
  void with(rpc::Reply& reply, F change) {
    auto m = decode<T>(reply.body);
    if (!m) return;
    change(*m);
    reply.body = encode(*m);
  }
  void attr(std::unique_ptr<wire::AttrT>& a) {
    if (!a || in_.ConsumeIntegralInRange(0, 9) == 0) return a.reset();
    switch (in_.ConsumeIntegralInRange(0, 6)) {
      case 0: a->ino = number(); break;
      case 1: a->size = number(); break;
      case 2: a->mode = static_cast<uint32_t>(number()); break;
      case 3: a->allocated = number(); break;
      case 4: a->atime = a->mtime = static_cast<int64_t>(number()); break;
      case 5: a->flags = static_cast<uint32_t>(number()); break;
      default: a->generation = static_cast<uint32_t>(number()); break;
    }
  }
  void layout(std::unique_ptr<schema::LayoutT>& l) {
    if (!l || in_.ConsumeIntegralInRange(0, 9) == 0) return l.reset();
    if (in_.ConsumeIntegralInRange(0, 5) == 0) l->generation = static_cast<uint32_t>(number());
    if (in_.ConsumeIntegralInRange(0, 9) == 0) return l->components.clear();
    if (l->components.empty() || !l->components.front()) return;
    auto& c = *l->components[number() % l->components.size()];
    switch (in_.ConsumeIntegralInRange(0, 7)) {
      case 0: c.start = number(); break;
      case 1: c.end = number(); break;
      case 2: c.stripe_size = static_cast<uint32_t>(number()); break;
      case 3: c.stripe_count = static_cast<uint16_t>(number()); break;
      case 4: c.osts.assign(number() % 20, static_cast<uint32_t>(number())); break;
      case 5: c.instantiated = !c.instantiated; break;
      case 6: c.stripes_used = static_cast<uint16_t>(number()); break;
      default: l->components.push_back(std::make_unique<schema::ComponentT>(c)); break;
    }
  }
  void cap(std::unique_ptr<wire::CapabilityT>& c) {
    if (!c || in_.ConsumeIntegralInRange(0, 9) == 0) return c.reset();
    switch (in_.ConsumeIntegralInRange(0, 4)) {
      case 0: c->expires = static_cast<int64_t>(number()); break;
      case 1: c->generation = static_cast<uint32_t>(number()); break;
      case 2: c->components = number(); break;
      case 3: c->mode = in_.ConsumeIntegral<uint8_t>(); break;
      default: c->mac.resize(number() % 40); break;
    }
  }
  template <class T>
  void rights(T& m) {
    switch (in_.ConsumeIntegralInRange(0, 2)) {
      case 0: return attr(m.attr);
      case 1: return layout(m.layout);
      default: return cap(m.cap);
    }
  }
  void fields(Method method, rpc::Reply& reply) {
    switch (method) {
      case Method::kLookup: case Method::kMknod: case Method::kLink: return with<wire::EntryReplyT>(reply, [&](auto& m) { attr(m.attr); });
      case Method::kGetattr: case Method::kClose: return with<wire::AttrReplyT>(reply, [&](auto& m) { attr(m.attr); });
      case Method::kSetattr: case Method::kFallocate: return with<wire::SetattrReplyT>(reply, [&](auto& m) { rights(m); });
      case Method::kCreate: case Method::kOpen: return with<wire::OpenReplyT>(reply, [&](auto& m) { rights(m); });
      case Method::kLayoutGrant: return with<wire::LayoutReplyT>(reply, [&](auto& m) { rights(m); });
      case Method::kAppendBegin:
        return with<wire::AppendBeginReplyT>(reply, [&](auto& m) { if (in_.ConsumeBool()) m.size = number(); else if (in_.ConsumeBool()) layout(m.layout); else cap(m.cap); });
      case Method::kReaddir: return with<wire::ReaddirReplyT>(reply, [&](auto& m) { entries(m); });
      case Method::kSessionOpen:
        return with<wire::SessionOpenReplyT>(reply, [&](auto& m) {
          switch (in_.ConsumeIntegralInRange(0, 5)) {
            case 0: m.session = number(); break;
            case 1: m.slots = static_cast<uint16_t>(number()); break;
            case 2: m.keepalive_ms = static_cast<uint32_t>(number()); break;
            case 3: m.incarnation = number(); break;
            case 4: m.map.reset(); break;
            default: attr(m.root); break;
          }
        });
      case Method::kObjectWrite:
        return with<wire::ObjectWriteReplyT>(reply, [&](auto& m) { m.wseq = number(), m.stable = number(), m.size = number(), m.allocated = number(), m.incarnation += in_.ConsumeIntegralInRange(0, 1); });
      case Method::kObjectRead:
        return with<wire::ObjectReadReplyT>(reply, [&](auto& m) {
          if (in_.ConsumeBool()) m.size = number();
          if (in_.ConsumeBool()) m.sums.resize(number() % 600);
          if (!m.sums.empty()) m.sums[number() % m.sums.size()] = static_cast<uint32_t>(number());
        });
      case Method::kObjectSeek: return with<wire::ObjectSeekReplyT>(reply, [&](auto& m) { m.found = in_.ConsumeBool(), m.offset = number(), m.size = number(); });
      case Method::kObjectCommit: return with<wire::ObjectCommitReplyT>(reply, [&](auto& m) { m.stable = number(), m.incarnation = number(); });
      case Method::kLockTest: return with<wire::LockTestReplyT>(reply, [&](auto& m) { if (m.lock) m.lock->type = in_.ConsumeIntegral<uint8_t>(), m.lock->start = number(), m.lock->end = number(); });
      default: reply.body.resize(number() % 200); return;
    }
  }
  void entries(wire::ReaddirReplyT& m) {
    if (in_.ConsumeBool()) m.end = !m.end;
    auto e = std::make_unique<wire::DirEntryT>();
    e->ino = number();
    e->cookie = number();
    const std::string name = in_.ConsumeRandomLengthString(260);
    e->name.resize(name.size());
    if (!name.empty()) std::memcpy(e->name.data(), name.data(), name.size());
    if (in_.ConsumeBool()) attr(e->attr = std::make_unique<wire::AttrT>());
    m.entries.push_back(std::move(e));
    if (in_.ConsumeIntegralInRange(0, 7) == 0) m.entries.resize(std::min<size_t>(m.entries.size() + number() % 50, 100));
  }

  // ---- requests of a server
  static Task<void> ask(rpc::PeerPtr peer, Method method, Bytes body) { (void)co_await peer->call(method, std::move(body), {.deadline = Loop::current()->clock().boot() + kSoft}); }
  void push(const rpc::PeerPtr& peer) {
    Bytes body;
    Method method = Method::kLockGranted;
    if (in_.ConsumeBool()) {
      wire::LockGrantedCallT m;
      m.ino = 100 + number() % 4, m.waiter = number() % 8, m.status = static_cast<uint16_t>(number());
      body = encode(m);
    } else {
      wire::SizeGrewCallT m;
      m.ino = 100 + number() % 4, m.size = number();
      body = encode(m);
      method = Method::kSizeGrew;
    }
    if (in_.ConsumeIntegralInRange(0, 3) == 0) body.resize(number() % 64);
    if (in_.ConsumeIntegralInRange(0, 7) == 0) method = static_cast<Method>(in_.ConsumeIntegralInRange<uint16_t>(0, 120));
    peer->loop().spawn(ask(peer, method, std::move(body)));
  }

  FuzzedDataProvider& in_;
  std::vector<Bytes> kept_;
};

class World {
 public:
  World(const uint8_t* data, size_t size) : in_(data, size), liar_(in_) {
    hand_.runtime.start();
    auto tell = [this](const rpc::PeerPtr& p, const rpc::Request& q, rpc::Reply& r) { liar_.alter(p, q, r); };
    std::vector<test::StandInOst*> targets;
    for (uint32_t i = 0; i < 2; ++i) {
      osts_.push_back(std::make_unique<test::StandInOst>(hand_.runtime, *server_host_, i));
      osts_.back()->use_address(fmt::format("server:{}", 10 + i));
      osts_.back()->alter = tell;
      osts_.back()->max_object = 16 * MiB;
      osts_.back()->start();
      targets.push_back(osts_.back().get());
    }
    mds_ = std::make_unique<test::StandInMds>(hand_.runtime, *server_host_, targets);
    mds_->stripe_count = 2;
    mds_->use_address("server:1");
    mds_->alter = tell;
    mds_->start();
    client::MountOptions o;
    o.mds = {"server:1"};
    o.cluster_id = test::kClusterId;
    o.key = test::kKey;
    o.soft = kSoft;
    o.host = "client";
    o.client_uuid.fill(7);
    auto made = client::Filesystem::make(hand_.runtime, *client_host_, std::move(o));
    if (!made) fail("the client can't be made: " + made.error().message());
    fs_ = std::move(*made);
  }

  ~World() {
    handles_.clear();
    finish("disconnect", [this]() -> Task<void> { co_await fs_->disconnect(5 * kSecond); });
    fs_.reset();
    mds_->stop();
    for (auto& o : osts_) o->stop();
    mds_.reset();
    osts_.clear();
    hand_.settle();
    hand_.runtime.stop(0);
  }

  void run() {
    liar_.honest = in_.ConsumeBool();
    bool mounted = false;
    finish("connect", [&]() -> Task<void> { mounted = (co_await fs_->connect(hand_.clock.boot() + 60 * kSecond)).has_value(); });
    liar_.honest = false;
    for (size_t i = 0; mounted && i < kMostOperations && in_.remaining_bytes() > 0; ++i) operation();
    for (auto& h : handles_) finish("release", [&]() -> Task<void> { (void)co_await (h->is_directory() ? fs_->releasedir(h) : fs_->release(h, 0)); });
    liar_.honest = true;
  }

 private:
  template <class F>
  void finish(const char* what, F f) {
    bool done = false;
    auto body = [](F& f, bool& done) -> Task<void> {
      co_await f();
      done = true;
    };
    hand_.runtime.loop(0).spawn(body(f, done));
    const Nanos limit = hand_.clock.boot() + kLimit;
    for (;;) {
      hand_.settle();
      if (done) return;
      const Nanos next = hand_.runtime.next_timer();
      if (next < 0 || next > limit) fail(std::string(what) + " never ends");
      if (next > hand_.clock.boot()) hand_.clock.advance(next - hand_.clock.boot());
      hand_.runtime.fire_timers();
    }
  }
  std::string name() { return fmt::format("f{}", in_.ConsumeIntegralInRange(0, 3)); }
  Ino ino() { return Ino(in_.ConsumeBool() ? kRootIno.v : 100 + in_.ConsumeIntegralInRange<uint64_t>(0, 3)); }
  client::HandlePtr file() {
    std::vector<client::HandlePtr> files;
    for (auto& h : handles_)
      if (!h->is_directory()) files.push_back(h);
    if (!files.empty() && in_.ConsumeIntegralInRange(0, 7) != 0) return files[in_.ConsumeIntegralInRange<size_t>(0, files.size() - 1)];
    client::HandlePtr out;
    const uint32_t flags = O_RDWR | (in_.ConsumeIntegralInRange(0, 3) == 0 ? O_APPEND : 0);
    const bool known = in_.ConsumeBool();
    const std::string n = name();
    const Ino i = ino();
    finish("open", [&]() -> Task<void> {
      auto opened = known ? co_await fs_->open(i, flags, {}) : co_await fs_->create(kRootIno, n, 0644, 0, flags, {});
      if (opened) out = opened->handle;
    });
    if (out) handles_.push_back(out);
    return out;
  }

  void operation() {
    switch (in_.ConsumeIntegralInRange(0, 13)) {
      case 0: case 1: return read();
      case 2: case 3: return write();
      case 4: return finish("lookup", [&]() -> Task<void> { (void)co_await fs_->lookup(kRootIno, name(), {}); });
      case 5: return finish("getattr", [&]() -> Task<void> { (void)co_await fs_->getattr(ino(), {}); });
      case 6: return setattr();
      case 7: return readdir();
      case 8: if (auto h = file()) finish("fsync", [&]() -> Task<void> { (void)co_await fs_->fsync(h, in_.ConsumeBool(), {}); }); return;
      case 9: if (auto h = file()) finish("flush", [&]() -> Task<void> { (void)co_await fs_->flush(h, 5, {}); }); return;
      case 10: return lock();
      case 11: return range();
      case 12: return names();
      default: return finish("statfs", [&]() -> Task<void> { (void)co_await fs_->statfs(kRootIno, {}); });
    }
  }
  void read() {
    auto h = file();
    if (!h) return;
    const size_t size = in_.ConsumeIntegralInRange<size_t>(1, 300'000);
    Buffer into = Buffer::allocate(size).slice(0, size);
    const uint64_t at = in_.ConsumeIntegralInRange<uint64_t>(0, 300'000);
    finish("read", [&]() -> Task<void> {
      auto got = co_await fs_->read(h, at, into, {});
      if (got && *got > size) fail("a read returns more than was asked for");
    });
  }
  void write() {
    auto h = file();
    if (!h) return;
    const size_t size = in_.ConsumeIntegralInRange<size_t>(1, 200'000);
    Buffer from = Buffer::allocate(size).slice(0, size);
    std::memset(from.data(), 0x61, size);
    const uint64_t at = in_.ConsumeIntegralInRange<uint64_t>(0, 300'000);
    const client::WriteOptions how{.may_retain = in_.ConsumeBool(), .kill_priv = in_.ConsumeBool(), .from_page_cache = in_.ConsumeIntegralInRange(0, 7) == 0};
    finish("write", [&]() -> Task<void> {
      auto done = co_await fs_->write(h, at, from, how, {});
      if (done && done->written > size) fail("a write says that more was written than there was");
    });
  }
  void setattr() {
    client::SetAttr change;
    change.valid = in_.ConsumeBool() ? wire::kSetSize : wire::kSetMode | wire::kSetMtimeNow;
    change.size = in_.ConsumeIntegralInRange<uint64_t>(0, 500'000);
    const Ino i = ino();
    finish("setattr", [&]() -> Task<void> { (void)co_await fs_->setattr(i, change, {}); });
  }
  void readdir() {
    finish("readdir", [&]() -> Task<void> {
      auto dir = co_await fs_->opendir(kRootIno, O_RDONLY | O_DIRECTORY, {});
      if (!dir) co_return;
      auto page = co_await fs_->readdir(*dir, 0, 64 * 1024, true, {});
      (void)co_await fs_->releasedir(*dir);
      if (!page) co_return;
      for (const auto& e : page->entries) {
        if (!e) fail("a directory entry that is none");
        const std::string_view n(reinterpret_cast<const char*>(e->name.data()), e->name.size());
        if (n.empty() || n.size() > 255 || n.find('/') != n.npos || n.find('\0') != n.npos) fail("a directory has a name that is none");
      }
    });
  }
  void lock() {
    auto h = file();
    if (!h) return;
    wire::LockSpecT spec;
    spec.owner = in_.ConsumeIntegralInRange<uint64_t>(1, 2);
    spec.type = in_.ConsumeIntegralInRange<uint8_t>(0, 2);
    spec.flock = in_.ConsumeBool();
    spec.end = INT64_MAX;
    const bool test = in_.ConsumeBool();
    finish("lock", [&]() -> Task<void> { test ? (void)co_await fs_->lock_test(h, spec, {}) : (void)co_await fs_->lock_set(h, spec, false, {}); });
  }
  void range() {
    auto h = file();
    if (!h) return;
    const uint64_t at = in_.ConsumeIntegralInRange<uint64_t>(0, 300'000);
    switch (in_.ConsumeIntegralInRange(0, 2)) {
      case 0: return finish("lseek", [&]() -> Task<void> { (void)co_await fs_->lseek(h, at, client::Seek::kData, {}); });
      case 1: return finish("fallocate", [&]() -> Task<void> { (void)co_await fs_->fallocate(h, 0, at, 5000, {}); });
      default: return finish("copy_file_range", [&]() -> Task<void> { (void)co_await fs_->copy_file_range(h, h, {at, at + 100'000, 50'000}, {}); });
    }
  }
  void names() {
    const std::string n = name(), m = name();
    switch (in_.ConsumeIntegralInRange(0, 5)) {
      case 0: return finish("mkdir", [&]() -> Task<void> { (void)co_await fs_->mkdir(kRootIno, n, 0755, 0, {}); });
      case 1: return finish("unlink", [&]() -> Task<void> { (void)co_await fs_->unlink(kRootIno, n, {}); });
      case 2: return finish("rename", [&]() -> Task<void> { (void)co_await fs_->rename({kRootIno, n, kRootIno, m, 0}, {}); });
      case 3: return finish("readlink", [&]() -> Task<void> { (void)co_await fs_->readlink(Ino(100), {}); });
      case 4: return finish("xattr_list", [&]() -> Task<void> { (void)co_await fs_->xattr_list(Ino(100), {}); });
      default: return finish("sync", [&]() -> Task<void> { (void)co_await fs_->sync_all({}); });
    }
  }

  FuzzedDataProvider in_;
  Liar liar_;
  nacre::testing::Hand hand_;
  nacre::testing::MemoryNetwork net_{1};
  std::unique_ptr<rpc::Transport> server_host_ = net_.host("server"), client_host_ = net_.host("client");
  std::vector<std::unique_ptr<test::StandInOst>> osts_;
  std::unique_ptr<test::StandInMds> mds_;
  std::unique_ptr<client::Filesystem> fs_;
  std::vector<client::HandlePtr> handles_;
};
}  // namespace
}  // namespace nacre::client::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool quiet = [] {
    nacre::log::set_level(nacre::log::Level::kError);
    return true;
  }();
  nacre::client::fuzz::World world(data, size);
  world.run();
  return 0;
}
