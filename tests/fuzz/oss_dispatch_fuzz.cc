// SPDX-License-Identifier: Apache-2.0
// Requests to a storage target: any sequence of any bytes and payloads, also at once, is answered within a minute with a message
// that decodes or an error that isn't the target's own fault. What is read matches its sums, and when all objects of the sequence
// are destroyed no block is left.
#include <cstdio>
#include <cstdlib>

#include <fuzzer/FuzzedDataProvider.h>

#include "common/base/rng.h"
#include "common/base/units.h"
#include "common/log/log.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"
#include "tests/fuzz/oss_world.h"

using namespace nacre;
using namespace nacre::storage;
using namespace nacre::storage::fuzz;
using rpc::Method;

namespace {
constexpr uint64_t kLastNumber = uint64_t{1} << 61;  // of commands here; those of the sweep are higher
constexpr size_t kMostRequests = 24;                 // of one input
constexpr size_t kMostBody = 4096;
constexpr int kMostInputs = 500;                     // between restarts of the target
constexpr Nanos kTwoTicks = 3 * kSecond;             // after which freed blocks are free

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "ERROR: %s\n", why.c_str());
  std::abort();
}

/// What has to be put back after an input.
struct Touched {
  std::set<ObjectId> objects;
  std::set<uint64_t> sessions;
  bool strange = false;  ///< a command's number is beyond ours: the sweep's destroys may come too late
};

class Sequence {
 public:
  Sequence(World& world, const uint8_t* data, size_t size, uint64_t base) : world_(world), in_(data, size), base_(base) {}

  void run() {
    for (size_t i = 0; i < kMostRequests && in_.remaining_bytes() > 0; ++i) {
      request();
      if (in_.ConsumeIntegralInRange(0, 3) == 0) finish();
    }
    finish();
  }
  const Touched& touched() const { return touched_; }

 private:
  struct Sent { CallPtr call; ObjectId object; uint64_t offset = 0; bool honest = false; };

  bool rarely() { return in_.ConsumeIntegralInRange(0, 15) == 15; }

  uint64_t number() {
    static constexpr uint64_t kSpecial[] = {0, 1, 4095, 4096, 4097, kChunkSize - 1, kChunkSize, kChunkSize + 1, kMaxFileSize - 4096, kMaxFileSize, kMaxFileSize + 1, INT64_MAX, UINT64_MAX - 4095, UINT64_MAX};
    switch (in_.ConsumeIntegralInRange(0, 3)) {
      case 0: return in_.PickValueInArray(kSpecial);
      case 1: return in_.ConsumeIntegral<uint64_t>();
      default: return in_.ConsumeIntegralInRange<uint64_t>(0, 3 * kChunkSize);
    }
  }
  uint64_t offset() { return rarely() ? number() : in_.ConsumeIntegralInRange<uint64_t>(0, 3 * kChunkSize); }
  uint32_t length() {
    static constexpr uint32_t kSizes[] = {1, 100, 4095, 4096, 4097, 8192, 65'536, 1 << 20};
    if (rarely()) return static_cast<uint32_t>(number());
    return in_.ConsumeBool() ? in_.PickValueInArray(kSizes) : in_.ConsumeIntegralInRange<uint32_t>(1, 20'000);
  }
  ObjectId object() {
    auto small = [this] { return in_.ConsumeIntegralInRange<uint16_t>(0, 1); };
    ObjectId o{Ino(base_ + small()), Generation(1u + small()), small(), small()};
    if (rarely()) o.ino = Ino(number());
    if (rarely()) o.generation = Generation(static_cast<uint32_t>(number()));
    return o;
  }
  std::unique_ptr<wire::CapabilityT> cap(const ObjectId& o, bool& honest) {
    if (rarely()) return nullptr;
    auto c = std::make_unique<wire::CapabilityT>();
    c->session = 7 + in_.ConsumeIntegralInRange<uint64_t>(0, 1);
    c->ino = o.ino.v;
    c->generation = o.generation.v;
    c->components = 3;
    c->mode = 3;
    c->fileset = 1;
    c->epoch = 3;
    c->expires = world_.store().now() + 30 * kSecond;
    if (rarely()) {
      honest = false;
      switch (in_.ConsumeIntegralInRange(0, 6)) {
        case 0: c->session = number(); break;
        case 1: c->mode = in_.ConsumeIntegral<uint8_t>(); break;
        case 2: c->fileset = static_cast<uint32_t>(number()); break;
        case 3: c->epoch = in_.ConsumeIntegralInRange<uint32_t>(0, 5); break;
        case 4: c->expires = static_cast<Nanos>(number()); break;
        case 5: c->components = number(); break;
        default: c->generation += 1; break;
      }
    }
    wire::sign(wire::capability_key(world_.key()), *c);
    if (rarely()) c->mac.resize(in_.ConsumeIntegralInRange<size_t>(0, 40)), honest = false;
    return c;
  }
  static Buffer payload(size_t size, uint64_t seed) {
    static const Buffer pool = [] {
      Buffer b = Buffer::allocate(2 * MiB + 64 * KiB);
      SeededRng(1).fill(b.span());
      return b;
    }();
    Buffer b = Buffer::allocate(std::max<size_t>(size, 1)).slice(0, size);
    std::memcpy(b.data(), pool.data() + seed % 1000 * 8, size);
    return b;
  }

  void request() {
    switch (in_.ConsumeIntegralInRange(0, 9)) {
      case 0: case 1: case 2: return write();
      case 3: return read();
      case 4: return commit_or_seek();
      case 5: return stat();
      case 6: case 7: return commands();
      case 8: return in_.ConsumeBool() ? fence() : list_or_scrub();
      default: return raw();
    }
  }
  void write() {
    Sent s{.object = object(), .honest = true};
    wire::ObjectWriteRequestT q;
    q.object = std::make_unique<schema::ObjectRef>(to_ref(s.object));
    q.offset = offset();
    q.length = length();
    Buffer data = payload(std::min<size_t>(q.length, wire::kMaxPayload), q.offset + q.length);
    q.sums = wire::range_sums(s.object, q.offset % kMaxFileSize, data.span());
    if (rarely()) s.honest = false, q.sums.resize(in_.ConsumeIntegralInRange<size_t>(0, 300));
    if (rarely() && !q.sums.empty()) s.honest = false, q.sums[in_.ConsumeIntegralInRange<size_t>(0, q.sums.size() - 1)] ^= 1;
    if (rarely()) data = data.slice(0, in_.ConsumeIntegralInRange<size_t>(0, data.size())), s.honest = false;
    q.cap = cap(s.object, s.honest);
    if (rarely()) q.wseq = number();
    q.write_id = in_.ConsumeBool() ? ++write_id_ : in_.ConsumeIntegralInRange<uint64_t>(0, write_id_);
    q.sync = rarely();
    send(std::move(s), Method::kObjectWrite, encode(q), std::move(data), false);
  }
  void read() {
    Sent s{.object = object(), .offset = offset(), .honest = true};
    wire::ObjectReadRequestT q;
    q.object = std::make_unique<schema::ObjectRef>(to_ref(s.object));
    q.offset = s.offset;
    q.length = length();
    q.cap = cap(s.object, s.honest);
    send(std::move(s), Method::kObjectRead, encode(q), {}, false);
  }
  void commit_or_seek() {
    if (in_.ConsumeBool()) {
      wire::ObjectCommitRequestT q;
      q.wseq = number();
      return send({}, Method::kObjectCommit, encode(q), {}, false);
    }
    Sent s{.object = object(), .honest = true};
    wire::ObjectSeekRequestT q;
    q.object = std::make_unique<schema::ObjectRef>(to_ref(s.object));
    q.offset = offset();
    q.hole = in_.ConsumeBool();
    q.cap = cap(s.object, s.honest);
    send(std::move(s), Method::kObjectSeek, encode(q), {}, false);
  }
  void stat() {
    wire::ObjectStatRequestT q;
    for (size_t n = in_.ConsumeIntegralInRange<size_t>(0, 5); n > 0; --n) q.objects.push_back(to_ref(object()));
    send({}, Method::kObjectStat, encode(q), {}, !rarely());
  }
  void commands() {
    wire::ObjectCommandRequestT q;
    for (size_t n = in_.ConsumeIntegralInRange<size_t>(0, 4); n > 0; --n) {
      auto c = std::make_unique<wire::ObjectCommandT>();
      if (!rarely()) c->object = std::make_unique<schema::ObjectRef>(to_ref(object()));
      c->kind = rarely() ? in_.ConsumeIntegral<uint8_t>() : in_.ConsumeIntegralInRange<uint8_t>(wire::kCmdDestroy, wire::kCmdUnseal);
      c->offset = offset();
      c->length = rarely() ? number() : in_.ConsumeIntegralInRange<uint64_t>(0, 2 * kChunkSize);
      c->command = rarely() ? number() % kLastNumber : in_.ConsumeIntegralInRange<uint64_t>(0, 50);
      c->fileset = in_.ConsumeIntegralInRange<uint32_t>(0, 2);
      q.commands.push_back(std::move(c));
    }
    q.sync = in_.ConsumeBool();
    send({}, Method::kObjectCommands, encode(q), {}, !rarely());
  }
  void fence() {
    wire::FenceRequestT q;
    q.session = rarely() ? number() : 7;
    q.until = in_.ConsumeBool() ? 0 : rarely() ? static_cast<Nanos>(number()) : world_.store().now() + kSecond;
    send({}, Method::kObjectFence, encode(q), {}, !rarely());
  }
  void list_or_scrub() {
    std::unique_ptr<schema::ObjectRef> from;
    if (!rarely()) from = std::make_unique<schema::ObjectRef>(to_ref(object()));
    if (in_.ConsumeBool()) {
      wire::ObjectListRequestT q;
      q.after = std::move(from);
      q.limit = in_.ConsumeIntegral<uint32_t>();
      return send({}, Method::kObjectList, encode(q), {}, !rarely());
    }
    wire::ObjectScrubRequestT q;
    q.after = std::move(from);
    q.chunk = rarely() ? number() : in_.ConsumeIntegralInRange<uint64_t>(0, 4);
    q.max_bytes = number();
    send({}, Method::kObjectScrub, encode(q), {}, !rarely());
  }
  void raw() {
    static constexpr Method kMethods[] = {Method::kObjectWrite, Method::kObjectRead, Method::kObjectCommit, Method::kObjectSeek, Method::kObjectStat, Method::kObjectCommands, Method::kObjectFence, Method::kOssStatus, Method::kObjectList, Method::kObjectScrub};
    const auto method = rarely() ? static_cast<Method>(in_.ConsumeIntegral<uint16_t>()) : in_.PickValueInArray(kMethods);
    const size_t size = rarely() ? in_.ConsumeIntegralInRange<size_t>(0, wire::kMaxPayload) : in_.ConsumeIntegralInRange<size_t>(0, 64);
    const bool as_mds = in_.ConsumeBool();
    const std::string body = in_.ConsumeRandomLengthString(kMostBody);
    send({}, method, Bytes(body.begin(), body.end()), payload(size, size), as_mds);
  }

  void send(Sent s, Method method, Bytes body, Buffer data, bool as_mds) {
    if (!body.empty() && rarely()) {
      s.honest = false;
      for (int n = in_.ConsumeIntegralInRange(1, 4); n > 0; --n) body[in_.ConsumeIntegralInRange<size_t>(0, body.size() - 1)] = in_.ConsumeIntegral<uint8_t>();
    }
    note(method, body);
    s.call = std::make_shared<Call>();
    s.call->as_mds = as_mds;
    s.call->method = static_cast<uint16_t>(method);
    s.call->body = std::move(body);
    s.call->payload = std::move(data);
    world_.send(s.call);
    sent_.push_back(std::move(s));
  }
  /// What the message may leave behind, if it is one.
  void note(Method method, const Bytes& body) {
    if (method == Method::kObjectWrite) {
      if (auto m = decode<wire::ObjectWriteRequestT>(body); m && m->object) touched_.objects.insert(to_id(*m->object));
    } else if (method == Method::kObjectFence) {
      if (auto m = decode<wire::FenceRequestT>(body)) touched_.sessions.insert(m->session);
    } else if (method == Method::kObjectCommands) {
      auto m = decode<wire::ObjectCommandRequestT>(body);
      if (!m) return;
      for (const auto& c : m->commands) {
        if (c && c->object) touched_.objects.insert(to_id(*c->object));
        if (c && c->command >= kLastNumber) touched_.strange = true;
      }
    }
  }

  void finish() {
    world_.wait();
    for (const Sent& s : sent_) check(s);
    sent_.clear();
    if (world_.fatal) fail("the target gave up: " + world_.fatal->message());
  }
  static void check(const Sent& s) {
    const auto method = static_cast<Method>(s.call->method);
    const auto& reply = s.call->reply;
    if (!reply) {
      switch (reply.error().code) {
        case Errc::kOk: case Errc::kIo: case Errc::kCorrupt: case Errc::kDisconnected: case Errc::kDeadline: case Errc::kShutdown: case Errc::kIncomplete: case Errc::kRecovering:
          fail(fmt::format("{} got {}", rpc::method_name(s.call->method), reply.error().message()));
        case Errc::kChecksum:
          if (s.honest || method != Method::kObjectWrite) fail(fmt::format("{} with right sums got {}", rpc::method_name(s.call->method), reply.error().message()));
          break;
        default: break;
      }
      return;
    }
    bool decodes = false;
    switch (s.call->method) {
#define NACRE_METHOD(name, number, req, rep, flags) \
  case number: decodes = decode<wire::rep##T>(reply->body).has_value(); break;
#include "common/rpc/methods.def"
#undef NACRE_METHOD
      default: break;
    }
    if (!decodes) fail(fmt::format("the answer to {} doesn't decode", rpc::method_name(s.call->method)));
    if (method == Method::kObjectRead && s.honest) check_read(s, *decode<wire::ObjectReadReplyT>(reply->body), reply->payload);
  }
  static void check_read(const Sent& s, const wire::ObjectReadReplyT& reply, const Buffer& data) {
    if (data.size() % kBlockSize != 0 || reply.sums.size() != data.size() / kBlockSize) fail("a read's payload and sums don't belong together");
    for (size_t i = 0; i < reply.sums.size(); ++i) {
      const auto block = data.span().subspan(i * kBlockSize, kBlockSize);
      const bool zero = std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
      if (reply.sums[i] == 0 ? !zero : wire::block_sum(s.object, s.offset / kBlockSize + i, block) != reply.sums[i]) fail("a block that was read doesn't match its sum");
    }
  }

  World& world_;
  FuzzedDataProvider in_;
  const uint64_t base_;
  Touched touched_;
  std::vector<Sent> sent_;
  uint64_t write_id_ = 0;
};

/// Destroys what an input made and lifts its fences. False: something is left that can't be told from a leak.
bool sweep(World& world, const Touched& touched) {
  static uint64_t next = kLastNumber;
  std::vector<CallPtr> calls;
  auto send = [&](Method method, Bytes body) {
    calls.push_back(std::make_shared<Call>());
    calls.back()->as_mds = true;
    calls.back()->method = static_cast<uint16_t>(method);
    calls.back()->body = std::move(body);
    world.send(calls.back());
  };
  wire::ObjectCommandRequestT q;
  q.sync = true;
  for (const ObjectId& o : touched.objects) {
    auto c = std::make_unique<wire::ObjectCommandT>();
    c->object = std::make_unique<schema::ObjectRef>(to_ref(o));
    c->kind = wire::kCmdDestroy;
    c->command = ++next;
    q.commands.push_back(std::move(c));
  }
  send(Method::kObjectCommands, encode(q));
  for (uint64_t session : touched.sessions) {
    wire::FenceRequestT lift;
    lift.session = session;
    send(Method::kObjectFence, encode(lift));
  }
  world.wait();
  for (const auto& c : calls)
    if (!c->reply) fail(fmt::format("the sweep's {} got {}", rpc::method_name(c->method), c->reply.error().message()));
  world.pass(kTwoTicks);
  const Usage left = world.store().usage();
  const bool clean = left.used == 0 && left.objects == 0 && world.store().fences().empty();
  if (!clean && !touched.strange)
    fail(fmt::format("{} bytes, {} objects and {} fences are left when everything is destroyed and lifted", left.used, left.objects, world.store().fences().size()));
  return clean;
}

/// Memory that outlives an input is no leak here, and to look for it after each input takes nine tenths of the time: once, at the end.
bool ending = false;
struct Place {
  std::unique_ptr<World> world = std::make_unique<World>();
  ~Place() {
    world.reset();
    ending = true;
  }
};
}  // namespace

extern "C" int __lsan_is_turned_off() { return !ending; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = [] { log::set_level(log::Level::kError); return true; }();
  static Place place;  // made here, so that it ends before RocksDB's own statics, which it has woken
  auto& world = place.world;
  static uint64_t inputs = 0;
  (void)quiet;
  Sequence sequence(*world, data, size, 1000 + 16 * ++inputs);
  sequence.run();
  if (!sweep(*world, sequence.touched())) {
    world.reset();  // its directory first
    world = std::make_unique<World>();
  } else if (inputs % kMostInputs == 0) world->restart();
  return 0;
}
