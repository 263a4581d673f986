// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/dispatch_requests.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "common/base/units.h"
#include "common/wire/bits.h"
#include "metadata/leases/lock_table.h"

namespace nacre::mds::fuzz {

Script parse(std::span<const uint8_t> bytes) {
  Script out;
  if (bytes.empty()) return out;
  out.options = bytes[0];
  bytes = bytes.subspan(1);
  while (bytes.size() >= 8 && out.steps.size() < kMaxSteps) {
    Step s{bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], {}};
    const size_t length = std::min<size_t>(bytes[6] | size_t{bytes[7]} << 8, bytes.size() - 8);
    s.body.assign(bytes.begin() + 8, bytes.begin() + 8 + static_cast<ptrdiff_t>(length));
    bytes = bytes.subspan(8 + length);
    out.steps.push_back(std::move(s));
  }
  return out;
}

Bytes print(const Script& script) {
  Bytes out{script.options};
  for (const Step& s : script.steps) {
    const size_t length = std::min<size_t>(s.body.size(), 0xffff);
    for (uint8_t b : {s.who, s.flags, s.method, s.slot, s.sequence, s.timeout, static_cast<uint8_t>(length), static_cast<uint8_t>(length >> 8)}) out.push_back(b);
    out.insert(out.end(), s.body.begin(), s.body.begin() + static_cast<ptrdiff_t>(length));
  }
  return out;
}

namespace {

/// Values that mean something, and some that should not.
struct Pick {
  std::minstd_rand& rng;
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> values) { return *(values.begin() + below(static_cast<uint32_t>(values.size()))); }

  uint64_t ino() { return one_in(12) ? of<uint64_t>({0, UINT64_MAX, uint64_t{1} << 48, 999'999}) : 1 + below(9); }
  uint64_t dir() { return one_in(4) ? ino() : of<uint64_t>({1, kDir, kSub}); }
  uint64_t file() { return one_in(10) ? ino() : of<uint64_t>({kFile, kFile, kFile, kFile, kOther, 8, 9}); }
  uint64_t handle() { return one_in(20) ? of<uint64_t>({0, UINT64_MAX, 77}) : of<uint64_t>({1, 1, 1, 1, 2, 2, 3, 4}); }
  uint64_t offset() { return of<uint64_t>({0, 1, 4095, 64 * KiB, 4 * MiB, 4 * MiB + 1, 5 * MiB, GiB, kMaxFileSize - 1, kMaxFileSize, UINT64_MAX}); }
  uint64_t length() { return of<uint64_t>({0, 1, 4096, 100'000, 6 * MiB, 100 * MiB, kMaxFileSize, UINT64_MAX}); }
  int64_t time() { return of<int64_t>({0, 1, -1, 1'000'000'000, 1'700'000'000'000'000'000, INT64_MAX, INT64_MIN}); }
  uint32_t id() { return of<uint32_t>({0, 1000, 2000, 100, UINT32_MAX}); }
  uint32_t small() { return one_in(8) ? UINT32_MAX : below(8); }
  Bytes name() {
    if (one_in(10)) return as_bytes(of<std::string>({"", ".", "..", "a/b", ".snapshot", std::string(255, 'x'), std::string(256, 'x'), std::string("\0", 1)}));
    return as_bytes(of<std::string>({"d", "sub", "f", "f2", "g", "l", "p", "n0", "n1", "n2"}));
  }
  /// A name in a directory: mostly one that is there, at least at first.
  void entry(uint64_t& parent, Bytes& n) {
    static const std::pair<uint64_t, const char*> kThere[] = {{1, "d"}, {1, "f"}, {1, "f2"}, {1, "l"}, {1, "p"}, {kDir, "sub"}, {kDir, "g"}, {1, "n0"}, {1, "n1"}, {kDir, "n0"}, {kSub, "n0"}};
    if (one_in(4)) {
      parent = dir();
      n = name();
      return;
    }
    const auto& [at, text] = kThere[below(std::size(kThere))];
    parent = at;
    n = as_bytes(text);
  }
  std::string attribute() { return of<std::string>({"user.a", "user.b", "user.nacre.x", "trusted.t", "security.capability", "system.posix_acl_access", "system.posix_acl_default", "user.", "other"}); }
  Bytes acl() {
    Bytes out{2, 0, 0, 0};
    auto entry = [&](uint8_t tag, uint32_t id) {
      for (uint8_t b : {tag, uint8_t{0}, static_cast<uint8_t>(below(9)), uint8_t{0}, static_cast<uint8_t>(id), static_cast<uint8_t>(id >> 8), uint8_t{0}, uint8_t{0}}) out.push_back(b);
    };
    entry(0x01, 0);
    if (one_in(2)) entry(0x02, 1000);
    entry(0x04, 0);
    if (one_in(2)) entry(0x08, 100);
    if (!one_in(3)) entry(0x10, 0);
    entry(0x20, 0);
    return out;
  }
  uint32_t flags() { return of<uint32_t>({O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_TRUNC, O_WRONLY | O_APPEND, O_RDONLY | O_TRUNC, O_RDWR | O_EXCL, 3}); }
  std::unique_ptr<wire::CredT> cred() {
    if (one_in(16)) return nullptr;
    auto c = std::make_unique<wire::CredT>();
    c->uid = one_in(3) ? id() : 0;
    c->gid = one_in(3) ? id() : 0;
    if (one_in(4)) c->groups = {100, 2000};
    c->groups_known = !one_in(4);
    return c;
  }
  std::unique_ptr<wire::LockSpecT> lock() {
    auto l = std::make_unique<wire::LockSpecT>();
    l->flock = one_in(2);
    l->owner = below(3);
    l->type = static_cast<uint8_t>(below(4));
    l->start = one_in(4) ? offset() : below(20);
    l->end = one_in(4) ? kLockEnd : l->start + below(20);
    l->handle = handle();
    return l;
  }
  std::unique_ptr<schema::LayoutT> layout() {
    auto out = std::make_unique<schema::LayoutT>();
    uint64_t at = 0;
    for (uint32_t n = below(4); n > 0; --n) {
      auto c = std::make_unique<schema::ComponentT>();
      c->start = at;
      c->end = at = n == 1 ? 0 : at + (1 + below(80)) * 64 * KiB;
      c->stripe_size = one_in(8) ? small() : (1 + below(20)) * static_cast<uint32_t>(64 * KiB);
      c->stripe_count = static_cast<uint16_t>(below(4));
      c->first_ost = static_cast<int32_t>(below(4)) - 1;
      if (one_in(16)) c->osts = {0, 1};
      if (one_in(16)) c->pool = "gold";
      out->components.push_back(std::move(c));
    }
    return out;
  }
  schema::ObjectRef object() { return {file(), 1 + below(3), static_cast<uint16_t>(below(3)), static_cast<uint16_t>(below(3))}; }
  wire::ObjectReport report() { return {object(), length(), length(), below(100), time()}; }
};

template <class T>
void fill(T&, Pick&) {}

void fill(wire::SessionOpenRequestT& q, Pick& p) {
  q.client_uuid.assign(p.one_in(8) ? 3 : 16, static_cast<uint8_t>(p.below(4)));
  q.host = "h";
  q.mount = "/m";
  q.subdir = p.of<std::string>({"", "/", "/d", "/d/sub", "d//sub/", "/l", "/f", "/d/..", "/nowhere"});
  q.read_only = p.one_in(4);
  q.resume = p.below(5);
}
void fill(wire::SessionBindRequestT& q, Pick& p) { q.session = p.below(6); }
void fill(wire::KeepaliveRequestT& q, Pick& p) {
  q.oldest_wait_ms = p.small();
  q.oldest_wait = std::string(p.below(400), 'w');
  for (uint32_t n = p.below(4); n > 0; --n) q.atimes.emplace_back(p.ino(), p.time());
}
void fill(wire::ReclaimRequestT& q, Pick& p) {
  for (uint32_t n = p.below(3); n > 0; --n) {
    auto o = std::make_unique<wire::ReclaimOpenT>();
    o->ino = p.ino();
    o->handle = p.handle();
    o->flags = p.flags();
    q.opens.push_back(std::move(o));
  }
  for (uint32_t n = p.below(3); n > 0; --n) {
    auto l = std::make_unique<wire::ReclaimLockT>();
    l->ino = p.file();
    l->lock = p.one_in(8) ? nullptr : p.lock();
    q.locks.push_back(std::move(l));
  }
  q.done = p.one_in(2);
}
void fill(wire::LookupRequestT& q, Pick& p) { p.entry(q.parent, q.name); }
void fill(wire::GetattrRequestT& q, Pick& p) { q.ino = p.ino(); }
void fill(wire::SetattrRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.valid = p.below(512);
  q.mode = p.below(010000);
  q.uid = p.id();
  q.gid = p.id();
  q.size = p.offset();
  q.atime = p.time();
  q.mtime = p.time();
  q.handle = p.handle();
  q.kill_priv = p.one_in(4);
  q.kill_capability = p.one_in(4);
}
void fill(wire::MknodRequestT& q, Pick& p) {
  q.parent = p.dir();
  q.name = p.name();
  q.mode = p.of<uint32_t>({S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFDIR, 0, S_IFMT}) | p.below(010000);
  q.umask = p.below(01000);
  q.rdev = p.small();
  if (!p.one_in(4)) q.symlink = as_bytes(p.one_in(8) ? std::string(4096, 's') : "d/sub");
}
void fill(wire::CreateRequestT& q, Pick& p) {
  p.entry(q.parent, q.name);
  q.mode = p.below(010000);
  q.umask = p.below(01000);
  q.flags = p.flags() | O_CREAT;
  q.handle = p.handle();
}
void fill(wire::OpenRequestT& q, Pick& p) {
  q.ino = p.file();
  q.flags = p.flags();
  q.handle = p.handle();
}
void fill(wire::CloseRequestT& q, Pick& p) {
  q.ino = p.file();
  q.handle = p.handle();
  for (uint32_t n = p.below(3); n > 0; --n) q.objects.push_back(p.report());
  q.flush_only = p.one_in(4);
  q.lock_owner = p.below(3);
  q.unlock_flock = p.one_in(3);
  q.atime = p.time();
  q.unsure = p.one_in(3);
}
void fill(wire::UnlinkRequestT& q, Pick& p) {
  p.entry(q.parent, q.name);
  q.rmdir = p.one_in(3);
}
void fill(wire::RenameRequestT& q, Pick& p) {
  p.entry(q.parent, q.name);
  p.entry(q.new_parent, q.new_name);
  q.flags = p.one_in(3) ? p.below(5) : 0;
}
void fill(wire::LinkRequestT& q, Pick& p) {
  q.ino = p.file();
  q.new_parent = p.dir();
  q.new_name = p.name();
}
void fill(wire::ReadlinkRequestT& q, Pick& p) { q.ino = p.one_in(2) ? kSymlink : p.ino(); }
void fill(wire::ReaddirRequestT& q, Pick& p) {
  q.dir = p.dir();
  q.cookie = p.one_in(3) ? p.length() : 0;
  q.max_bytes = p.of<uint32_t>({0, 1, 4096, UINT32_MAX});
  q.plus = p.one_in(2);
}
void fill(wire::AccessRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.mask = p.below(9);
}
void fill(wire::XattrGetRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.name = p.attribute();
}
void fill(wire::XattrSetRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.name = p.attribute();
  q.value = q.name.starts_with("system.") ? p.acl() : Bytes(p.of<size_t>({0, 1, 100, 65'000}), 7);
  q.flags = p.below(4);
  q.kill_sgid = p.one_in(2);
}
void fill(wire::XattrListRequestT& q, Pick& p) { q.ino = p.ino(); }
void fill(wire::XattrRemoveRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.name = p.attribute();
}
void fill(wire::LayoutRequestT& q, Pick& p) {
  q.ino = p.file();
  q.handle = p.handle();
  q.offset = p.offset();
  q.length = p.length();
  q.write = !p.one_in(3);
}
void fill(wire::FallocateRequestT& q, Pick& p) {
  q.ino = p.file();
  q.handle = p.handle();
  q.mode = p.of<uint32_t>({0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, 8});
  q.offset = p.offset();
  q.length = p.length();
}
void fill(wire::AppendBeginRequestT& q, Pick& p) {
  q.ino = p.file();
  q.handle = p.handle();
  q.length = p.length();
}
void fill(wire::AppendEndRequestT& q, Pick& p) {
  q.ino = p.file();
  q.token = p.below(5);
  q.size = p.offset();
}
void fill(wire::LayoutSetRequestT& q, Pick& p) {
  q.ino = p.ino();
  if (!p.one_in(8)) q.layout = p.layout();
}
void fill(wire::LayoutGetRequestT& q, Pick& p) { q.ino = p.ino(); }
void fill(wire::LockRequestT& q, Pick& p) {
  q.ino = p.file();
  if (!p.one_in(16)) q.lock = p.lock();
  q.wait = p.one_in(2);
  q.waiter = p.below(6);
}
void fill(wire::LockTestRequestT& q, Pick& p) {
  q.ino = p.file();
  if (!p.one_in(16)) q.lock = p.lock();
}
void fill(wire::LockCancelRequestT& q, Pick& p) {
  q.ino = p.file();
  q.waiter = p.below(6);
}
void fill(wire::PathOfRequestT& q, Pick& p) {
  q.ino = p.ino();
  q.max_paths = p.small();
}
void fill(wire::ClientListRequestT& q, Pick& p) { q.after = p.below(3); }
void fill(wire::ClientEvictRequestT& q, Pick& p) { q.session = p.below(6); }
void fill(wire::OstSetStateRequestT& q, Pick& p) {
  q.ost = p.below(3);
  q.state = static_cast<uint8_t>(p.below(4));
}
void fill(wire::FsckRequestT& q, Pick& p) {
  q.phase = static_cast<uint8_t>(p.one_in(16) ? p.small() : 1 + p.below(5));
  q.ost = p.below(3);
  q.budget = p.of<uint64_t>({1, 2, 1000, UINT64_MAX});
  q.repair = p.one_in(2);
  if (p.one_in(4)) q.cursor.assign(p.of<size_t>({1, 8, 20, 24, 5000}), static_cast<uint8_t>(p.below(4)));
}
void fill(wire::MigrateRequestT& q, Pick& p) {
  q.ino = p.file();
  q.step = static_cast<uint8_t>(p.one_in(16) ? p.small() : 1 + p.below(4));
  q.token = q.step == 1 && !p.one_in(8) ? 0 : p.below(6);  // generations count from 1
  if (p.one_in(4)) q.layout = p.layout();
  if (p.one_in(2)) q.avoid = {p.below(3)};
}
void fill(wire::OstFilesRequestT& q, Pick& p) {
  q.ost = p.below(4);
  q.after = p.one_in(8) ? UINT64_MAX : p.below(10);
  q.limit = p.of<uint32_t>({0, 1, 3, UINT32_MAX});
}
void fill(wire::OstRegisterRequestT& q, Pick& p) {
  q.ost = p.one_in(4) ? p.small() : p.below(3);
  q.uuid.assign(p.one_in(8) ? 5 : 16, static_cast<uint8_t>(0x40 + p.below(3)));
  q.address = p.of<std::string>({"ost:1", "ost:2", "nowhere:1", ""});
  q.host = "ost";
  if (p.one_in(4)) q.pools = {"gold", "silver"};
  q.capacity = p.length();
  q.used = p.length();
  q.available = p.length();
  q.incarnation = p.below(4);
  q.max_ino = p.one_in(4) ? p.of<uint64_t>({(uint64_t{1} << 40) - 1, uint64_t{1} << 40, UINT64_MAX}) : p.below(20);
  q.max_command = p.one_in(4) ? p.of<uint64_t>({(uint64_t{1} << 62) - 1, UINT64_MAX}) : p.below(20);
  q.max_session = p.one_in(4) ? p.of<uint64_t>({(uint64_t{1} << 62) - 1, UINT64_MAX}) : p.below(20);
  q.max_epoch = p.one_in(8) ? UINT32_MAX : 1;
}
void fill(wire::MdsStatusRequestT& q, Pick& p) { q.abort_recovery = p.one_in(4); }
void fill(wire::ChangelogControlRequestT& q, Pick& p) {
  q.action = static_cast<uint8_t>(p.one_in(8) ? p.below(256) : 1 + p.below(4));
  q.reader = p.below(4);
  if (p.one_in(2)) q.name = p.of<std::string>({"a", "b", std::string(65, 'x')});
  q.sequence = p.one_in(8) ? UINT64_MAX : p.below(30);
}
void fill(wire::ChangelogReadRequestT& q, Pick& p) {
  q.reader = p.below(4);
  q.after = p.one_in(8) ? p.of<uint64_t>({UINT64_MAX, UINT64_MAX - 1}) : p.below(30);
  q.limit = p.one_in(8) ? UINT32_MAX : p.below(10);
}
void fill(wire::OstHeartbeatRequestT& q, Pick& p) {
  q.ost = p.below(3);
  q.incarnation = p.below(4);
  q.capacity = p.length();
  q.used = p.length();
  q.available = p.length();
  q.objects = p.small();
}

template <class T>
Bytes body_of(Pick& p) {
  T q;
  fill(q, p);
  if constexpr (requires { q.cred; }) q.cred = p.cred();
  return encode(q);
}
Bytes body_for(uint8_t method, Pick& p) {
  switch (method) {
#define NACRE_METHOD(name, number, req, rep, flags) \
  case number: return body_of<wire::req##T>(p);
#include "common/rpc/methods.def"
#undef NACRE_METHOD
    case kWriteObject: {
      const wire::ObjectReport r = p.report();
      const auto* b = reinterpret_cast<const uint8_t*>(&r);
      return Bytes(b, b + sizeof r);
    }
    default: return {};
  }
}
const std::vector<uint8_t>& methods() {
  static const std::vector<uint8_t> all = {
#define NACRE_METHOD(name, number, req, rep, flags) number,
#include "common/rpc/methods.def"
#undef NACRE_METHOD
      kWriteObject, kKill, kStop, kTargetsDown, kTargetsUp, kHangUp, kNoSpace};
  return all;
}
/// How often a random step is this: what changes names and files most, what ends a session or is served by nobody least.
uint32_t weight(uint8_t method) {
  if (method >= 20 && method <= 44) return 10;
  if (method >= 50 && method <= 52) return 10;
  if (method == 67) return 10;
  if (method == kWriteObject) return 20;
  if (method == 6 || method == 7 || method == 80 || method == 81 || method == kTargetsUp) return 3;
  return 1;
}
uint8_t some_method(Pick& p) {
  static const std::vector<uint8_t> bag = [] {
    std::vector<uint8_t> out;
    for (uint8_t m : methods()) out.insert(out.end(), weight(m), m);
    return out;
  }();
  return bag[p.below(static_cast<uint32_t>(bag.size()))];
}
/// Who may ask this.
uint8_t caller_of(uint8_t method, Pick& p) {
  if (p.one_in(16)) return static_cast<uint8_t>(p.below(kCallers));
  if (method >= 80 && method < 100) return kStorage;
  if (method >= 61 && method < 72 && method != 67) return kTool;
  if (method == 3 || method == 4) return p.one_in(2) ? kStranger : kUser;
  return static_cast<uint8_t>(p.below(3));
}

Step step_of(uint8_t method, Pick& p) {
  Step s;
  s.method = method;
  s.who = caller_of(method, p);
  s.slot = static_cast<uint8_t>(p.one_in(16) ? 200 : p.below(3));
  s.sequence = p.one_in(4) ? static_cast<uint8_t>(p.below(4)) : kNext;
  s.flags = static_cast<uint8_t>((p.one_in(4) ? kHold : 0) | (p.one_in(8) ? kPause : 0) | (p.one_in(100) ? kLongPause : 0) | (p.one_in(40) ? kWrongSession : 0) | (p.one_in(8) ? kForlorn : 0));
  s.timeout = p.one_in(8) ? 20 : 0;
  s.body = body_for(method, p);
  return s;
}
}  // namespace

Step random_step(std::minstd_rand& rng) {
  Pick p{rng};
  return step_of(some_method(p), p);
}

std::vector<std::pair<std::string, Script>> seeds() {
  std::vector<std::pair<std::string, Script>> out;
  std::minstd_rand rng(7);
  Pick p{rng};
  constexpr size_t kMethodsPerSeed = 6;
  for (size_t from = 0; from < methods().size(); from += kMethodsPerSeed) {
    Script s;
    for (size_t m = from; m < std::min(from + kMethodsPerSeed, methods().size()); ++m)
      for (int i = 0; i < 3; ++i) s.steps.push_back(step_of(methods()[m], p));
    out.emplace_back(fmt::format("methods-{}", methods()[from]), std::move(s));
  }
  for (auto [name, of] : {std::pair<std::string, std::vector<uint8_t>>{"names", {23, 24, 27, 28, 29, 31, 20}},
                          {"files", {24, 25, 26, 22, 39, 38, 27, kWriteObject}},
                          {"locks", {25, 50, 50, 51, 52, 26}},
                          {"appends", {25, 40, 41, 26, kWriteObject}},
                          {"layouts", {43, 44, 24, 38, 22, kWriteObject}},
                          {"attributes", {35, 34, 36, 37, 22, 23}},
                          {"moves", {24, 25, 67, 67, 67, 38, 22, 26, 27, 68, kWriteObject}},
                          {"sessions", {3, 4, 5, 6, 7, 61, 62, kKill, 24, 50}},
                          {"targets", {80, 81, 63, 24, 22, 26, kTargetsDown, kTargetsUp, kKill, kWriteObject}}})
    for (int n = 0; n < 2; ++n) {
      Script s;
      s.options = name == "targets" ? kToTheEnd | kReopen : kToTheEnd;
      for (int i = 0; i < 24; ++i) s.steps.push_back(step_of(of[p.below(static_cast<uint32_t>(of.size()))], p));
      out.emplace_back(fmt::format("{}-{}", name, n), std::move(s));
    }
  return out;
}

}  // namespace nacre::mds::fuzz
