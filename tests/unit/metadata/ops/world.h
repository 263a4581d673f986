// SPDX-License-Identifier: Apache-2.0
// A small world for tests of operations: a real store in a directory of its own, hooks that are tables, and a runner that
// commits each operation at once, without loops and locks.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>

#include <set>

#include "metadata/ops/common.h"
#include "metadata/ops/dir_layouts.h"
#include "metadata/ops/ops.h"
#include "tests/unit/metadata/ops/check_namespace.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {

/// Runs an operation and commits it.
class DirectRunner {
 public:
  template <class F>
  static auto run(OpContext& ctx, F op, const std::function<Result<void>(const Park&)>& resolve) {
    for (int i = 0;; ++i) {
      ctx.begin_run(Tier::kFull, nullptr, true);
      auto out = op(ctx);
      if (ctx.parked() && i < 100) {
        Park park = *ctx.park_;
        if (auto done = resolve(park); !done) return decltype(out)(std::unexpected(done.error()));
        if (park.kind == Park::Kind::kTruncate) ctx.note_truncated(park.inos[0], park.size);
        continue;
      }
      if (out) {
        for (auto& fn : ctx.staged_) fn();
        test::must(ctx.services().journal.commit(std::move(ctx.batch_)));
        for (auto& fn : ctx.committed_) fn();
      }
      return out;
    }
  }
  static void give(OpContext& ctx, const Glimpse& g) { ctx.glimpses_[g.ino] = g; }
};

}  // namespace nacre::mds

namespace nacre::mds::test {

class FakeHooks : public OpHooks {
 public:
  std::set<Ino> writers, kept;                       ///< open for writing; open at all, or in their grace
  std::map<Ino, std::set<uint64_t>> sessions;        ///< who has it open
  std::set<uint64_t> handles;
  std::map<Ino, Glimpse> objects;
  std::vector<Ino> destroyed;                        ///< objects of these
  std::vector<Ino> orphans;
  int glimpses = 0;
  std::function<Result<void>(Ino, uint64_t)> do_truncate;
  mutable std::mutex mutex;

  bool open_for_write(Ino ino) const override {
    std::lock_guard lock(mutex);
    return writers.contains(ino);
  }
  bool open_elsewhere(Ino ino, SessionId self) const override {
    std::lock_guard lock(mutex);
    auto it = sessions.find(ino);
    return it != sessions.end() && std::any_of(it->second.begin(), it->second.end(), [&](uint64_t s) { return s != self.v; });
  }
  bool sole_quiet_writer(Ino ino, SessionId session) const override {
    std::lock_guard lock(mutex);
    auto it = sessions.find(ino);
    return it != sessions.end() && it->second == std::set<uint64_t>{session.v};
  }
  bool writable_handle(SessionId, Ino, uint64_t handle) const override { return handles.contains(handle); }
  bool keep_unlinked(const schema::InodeRecordT& r, bool) const override {
    std::lock_guard lock(mutex);
    return kept.contains(Ino(r.ino));
  }
  Result<void> created(OpContext&, schema::InodeRecordT& record, const wire::CreateRequestT& q) override {
    if (q.handle == 0) return {};  // tests that want no open
    auto& c = record.layout->components.at(0);
    c->instantiated = true;
    c->osts = {0};
    c->stripes_used = 1;
    return {};
  }
  Result<void> destroy_objects(OpContext& ctx, const schema::InodeRecordT& r) override {
    ctx.on_staged([this, ino = Ino(r.ino)] {
      std::lock_guard lock(mutex);
      destroyed.push_back(ino);
    });
    return {};
  }
  void orphaned(OpContext& ctx, const schema::InodeRecordT& r) override {
    ctx.on_staged([this, ino = Ino(r.ino)] {
      std::lock_guard lock(mutex);
      orphans.push_back(ino);
    });
  }
  schema::LayoutT cluster_layout() const override {
    schema::LayoutT layout;
    auto c = std::make_unique<schema::ComponentT>();
    c->stripe_size = 1 << 20;
    c->stripe_count = 1;
    layout.components.push_back(std::move(c));
    return layout;
  }
  Glimpse glimpse_now(Ino ino) {
    std::lock_guard lock(mutex);
    ++glimpses;
    Glimpse g = objects[ino];
    g.ino = ino;
    return g;
  }
  Task<Result<std::vector<Glimpse>>> glimpse(std::vector<Ino> inos) override {
    std::vector<Glimpse> out;
    for (Ino ino : inos) out.push_back(glimpse_now(ino));
    co_return out;
  }
  Task<Result<void>> finish_intent(Ino) override { co_return Result<void>{}; }
  Task<Result<void>> truncate(Ino ino, uint64_t size) override { co_return do_truncate(ino, size); }
};

inline wire::CredT user(uint32_t uid, uint32_t gid, std::vector<uint32_t> groups = {}, bool known = true) {
  wire::CredT c;
  c.uid = uid;
  c.gid = gid;
  c.groups = std::move(groups);
  c.groups_known = known;
  return c;
}
inline const wire::CredT kRoot = user(0, 0);
inline const wire::CredT kAlice = user(1000, 100), kBob = user(2000, 200);

struct World {
  explicit World(Journal::Options journal_options = {}) : journal_options_(std::move(journal_options)) {
    must(Store::format(options));
    start();
  }
  void start() {
    store = must(Store::open(options));
    journal = must(Journal::open(*store, journal_options_));
    inos = must(RangeAllocator::open(*journal, "ino", 2, 65'536));
    must(inos->refill_now());
    services.emplace(Services{*store, *journal, *inos, hooks, dir_layouts, clock});
  }
  void stop() {
    services.reset();
    inos.reset();
    journal.reset();
    store.reset();
  }

  TempDir dir;
  Store::Options options = options_for(dir / "mds");
  Journal::Options journal_options_;
  ManualClock clock;
  FakeHooks hooks;
  DirLayouts dir_layouts;
  std::unique_ptr<Store> store;
  std::unique_ptr<Journal> journal;
  std::unique_ptr<RangeAllocator> inos;
  std::optional<Services> services;
  SessionId session{1};

  template <class F>
  auto run(const wire::CredT& cred, F op) {
    clock.advance(kMicrosecond);
    OpContext ctx(*services, cred, Identity{session, 0, 0, 0});
    return DirectRunner::run(ctx, op, [&](const Park& park) -> Result<void> {
      switch (park.kind) {
        case Park::Kind::kGlimpse:
          for (Ino ino : park.inos) DirectRunner::give(ctx, hooks.glimpse_now(ino));
          return {};
        case Park::Kind::kTruncate: return hooks.do_truncate ? hooks.do_truncate(park.inos[0], park.size) : Err(Errc::kIo, "no truncate");
        case Park::Kind::kNumbers: return inos->refill_now();
        case Park::Kind::kIntent: return Err(Errc::kBusy, "an intent");
      }
      return {};
    });
  }
  View view() const { return View(*store, Tier::kFull); }
  schema::InodeRecordT record(Ino ino) const {
    auto r = must(view().inode(ino));
    EXPECT_TRUE(r) << "inode " << ino.v << " is missing";
    return r ? std::move(*r) : schema::InodeRecordT();
  }
  bool exists(Ino ino) const { return must(view().inode(ino)).has_value(); }
  void change(Ino ino, const std::function<void(schema::InodeRecordT&)>& fn) {
    auto before = record(ino), after = before;
    fn(after);
    Batch b;
    b.put_inode(after);
    b.account(&before, &after);
    must(journal->commit(std::move(b)));
  }

  // --- operations; 0 or an ino on success is `ok`
  Result<Ino> entry(Result<wire::EntryReplyT> r) {
    if (!r) return std::unexpected(r.error());
    return Ino(r->attr->ino);
  }
  Result<Ino> make(const wire::CredT& cred, Ino parent, std::string_view name, uint32_t mode, uint32_t umask = 0, uint64_t rdev = 0, std::string_view target = "") {
    wire::MknodRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    q.mode = mode;
    q.umask = umask;
    q.rdev = rdev;
    q.symlink = as_bytes(target);
    return entry(run(cred, [&](OpContext& c) { return ops::mknod(c, q); }));
  }
  Result<Ino> mkdir(const wire::CredT& cred, Ino parent, std::string_view name, uint32_t mode = 0755, uint32_t umask = 0) { return make(cred, parent, name, S_IFDIR | mode, umask); }
  Result<Ino> symlink(const wire::CredT& cred, Ino parent, std::string_view name, std::string_view target) { return make(cred, parent, name, S_IFLNK | 0777, 0, 0, target); }
  Result<wire::OpenReplyT> open_new(const wire::CredT& cred, Ino parent, std::string_view name, uint32_t mode, uint32_t umask, uint32_t flags, uint64_t handle) {
    wire::CreateRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    q.mode = mode;
    q.umask = umask;
    q.flags = flags;
    q.handle = handle;
    return run(cred, [&](OpContext& c) { return ops::create(c, q); });
  }
  Result<Ino> create(const wire::CredT& cred, Ino parent, std::string_view name, uint32_t mode = 0644, uint32_t umask = 0, uint32_t flags = O_EXCL, uint64_t handle = 0) {
    auto r = open_new(cred, parent, name, mode, umask, flags, handle);
    if (!r) return std::unexpected(r.error());
    return Ino(r->attr->ino);
  }
  Result<Ino> lookup(const wire::CredT& cred, Ino parent, std::string_view name) {
    wire::LookupRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    return entry(run(cred, [&](OpContext& c) { return ops::lookup(c, q); }));
  }
  Result<wire::AttrT> getattr(Ino ino) {
    wire::GetattrRequestT q;
    q.ino = ino.v;
    auto r = run(kRoot, [&](OpContext& c) { return ops::getattr(c, q); });
    if (!r) return std::unexpected(r.error());
    return *r->attr;
  }
  Result<wire::EmptyT> unlink(const wire::CredT& cred, Ino parent, std::string_view name) {
    wire::UnlinkRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    return run(cred, [&](OpContext& c) { return ops::unlink(c, q); });
  }
  Result<wire::EmptyT> rmdir(const wire::CredT& cred, Ino parent, std::string_view name) {
    wire::UnlinkRequestT q;
    q.parent = parent.v;
    q.name = as_bytes(name);
    return run(cred, [&](OpContext& c) { return ops::rmdir(c, q); });
  }
  Result<wire::EmptyT> rename(const wire::CredT& cred, Ino from, std::string_view name, Ino to, std::string_view new_name, uint32_t flags = 0) {
    wire::RenameRequestT q;
    q.parent = from.v;
    q.name = as_bytes(name);
    q.new_parent = to.v;
    q.new_name = as_bytes(new_name);
    q.flags = flags;
    return run(cred, [&](OpContext& c) { return ops::rename(c, q); });
  }
  Result<Ino> link(const wire::CredT& cred, Ino ino, Ino parent, std::string_view name) {
    wire::LinkRequestT q;
    q.ino = ino.v;
    q.new_parent = parent.v;
    q.new_name = as_bytes(name);
    return entry(run(cred, [&](OpContext& c) { return ops::link(c, q); }));
  }
  Result<wire::SetattrReplyT> setattr(const wire::CredT& cred, Ino ino, uint32_t valid, const std::function<void(wire::SetattrRequestT&)>& fill) {
    wire::SetattrRequestT q;
    q.ino = ino.v;
    q.valid = valid;
    fill(q);
    return run(cred, [&](OpContext& c) { return ops::setattr(c, q); });
  }
  Result<wire::SetattrReplyT> chmod(const wire::CredT& cred, Ino ino, uint32_t mode) {
    return setattr(cred, ino, wire::kSetMode, [&](auto& q) { q.mode = mode; });
  }
  Result<wire::SetattrReplyT> truncate(const wire::CredT& cred, Ino ino, uint64_t size, uint64_t handle = 0) {
    return setattr(cred, ino, wire::kSetSize, [&](auto& q) {
      q.size = size;
      q.handle = handle;
    });
  }
  Result<wire::EmptyT> access(const wire::CredT& cred, Ino ino, uint32_t mask) {
    wire::AccessRequestT q;
    q.ino = ino.v;
    q.mask = mask;
    return run(cred, [&](OpContext& c) { return ops::access(c, q); });
  }
  Result<wire::EmptyT> xattr_set(const wire::CredT& cred, Ino ino, std::string name, Bytes value, uint32_t flags = 0) {
    wire::XattrSetRequestT q;
    q.ino = ino.v;
    q.name = std::move(name);
    q.value = std::move(value);
    q.flags = flags;
    return run(cred, [&](OpContext& c) { return ops::xattr_set(c, q); });
  }
  Result<Bytes> xattr_get(const wire::CredT& cred, Ino ino, std::string name) {
    wire::XattrGetRequestT q;
    q.ino = ino.v;
    q.name = std::move(name);
    auto r = run(cred, [&](OpContext& c) { return ops::xattr_get(c, q); });
    if (!r) return std::unexpected(r.error());
    return std::move(r->value);
  }
  Result<std::vector<std::string>> xattr_list(const wire::CredT& cred, Ino ino) {
    wire::XattrListRequestT q;
    q.ino = ino.v;
    auto r = run(cred, [&](OpContext& c) { return ops::xattr_list(c, q); });
    if (!r) return std::unexpected(r.error());
    return std::move(r->names);
  }
  Result<wire::EmptyT> xattr_remove(const wire::CredT& cred, Ino ino, std::string name) {
    wire::XattrRemoveRequestT q;
    q.ino = ino.v;
    q.name = std::move(name);
    return run(cred, [&](OpContext& c) { return ops::xattr_remove(c, q); });
  }
  Result<wire::ReaddirReplyT> readdir(const wire::CredT& cred, Ino dir_ino, uint64_t cookie = 0, bool plus = false, uint32_t max_bytes = 1 << 20) {
    wire::ReaddirRequestT q;
    q.dir = dir_ino.v;
    q.cookie = cookie;
    q.plus = plus;
    q.max_bytes = max_bytes;
    return run(cred, [&](OpContext& c) { return ops::readdir(c, q); });
  }
  void add_fileset(uint32_t id, Ino root) {
    schema::FilesetRecordT f;
    f.id = id;
    f.root = root.v;
    f.parent = 1;
    Batch b;
    b.put_record(Family::kFileset, fileset_key(FilesetId(id)), f);
    must(journal->commit(std::move(b)));
    change(root, [&](auto& r) { r.fileset = id; });
    stop();
    start();
  }
};

template <class T>
Errc code(const Result<T>& r) {
  return r ? Errc::kOk : r.error().code;
}
#define EXPECT_CODE(expr, errc) EXPECT_EQ(name_of(::nacre::mds::test::code(expr)), name_of(Errc::errc)) << #expr

/// Adds a failure for each thing that isn't as it must be in a namespace at rest.
inline void check_namespace(const Store& store, const Journal& journal) {
  for (const std::string& fault : namespace_faults(store, journal)) ADD_FAILURE() << fault;
}

}  // namespace nacre::mds::test
