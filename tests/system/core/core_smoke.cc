// SPDX-License-Identifier: Apache-2.0
// The client core with real servers: data, names, truncation, appends, locks, and each server killed under load and started
// again, without an error that an application would see.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <future>
#include <set>
#include <thread>

#include "common/base/rng.h"
#include "common/runtime/loop.h"
#include "common/rpc/transport.h"
#include "tests/support/cluster.h"

namespace nacre::test {
namespace {

using client::Filesystem;
using client::HandlePtr;

Ino root_of(const Filesystem& f) { return Ino(f.root().ino); }

#define ASSERT_OK(expr)                                                \
  do {                                                                 \
    auto&& ok_result = (expr);                                         \
    ASSERT_TRUE(ok_result.has_value()) << ok_result.error().message(); \
  } while (0)

class CoreSmoke : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Cluster::make({.osts = 3, .settings = settings});
    ASSERT_OK(made);
    cluster = std::move(*made);
    ASSERT_OK(cluster->start_all());
    runtime.start();
    transport = rpc::tcp_transport(runtime);
    fs = mount();
    ASSERT_TRUE(fs);
  }
  void TearDown() override {
    for (auto& f : mounts) run(f->disconnect());
    runtime.stop();
    mounts.clear();
    if (HasFailure() && cluster)
      for (auto& s : cluster->servers()) std::fprintf(stderr, "--- %s ---\n%s\n", s.c_str(), cluster->log(s).c_str());
  }
  Filesystem* mount() {
    auto options = cluster->mount_options();
    if (!options) return nullptr;
    auto made = Filesystem::make(runtime, *transport, *options);
    if (!made) return nullptr;
    mounts.push_back(std::move(*made));
    auto done = run(mounts.back()->connect(runtime.clock().boot() + 20 * kSecond));
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return done ? mounts.back().get() : nullptr;
  }
  template <class T>
  std::future<T> start(Task<T> task, size_t loop = 0) {
    auto promise = std::make_shared<std::promise<T>>();
    auto future = promise->get_future();
    auto wrapper = [](std::shared_ptr<std::promise<T>> p, Task<T> t) -> Task<void> {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(t);
        p->set_value();
      } else {
        T value = co_await std::move(t);  // the task, and what it holds, is gone before anybody hears of its end
        p->set_value(std::move(value));
      }
    };
    runtime.loop(loop).spawn(wrapper(promise, std::move(task)));
    return future;
  }
  template <class T>
  T wait(std::future<T> f) {
    if (f.wait_for(std::chrono::seconds(100)) == std::future_status::ready) return f.get();
    for (auto& s : cluster->servers()) std::fprintf(stderr, "--- %s ---\n%s\n", s.c_str(), cluster->log(s).c_str());
    std::fprintf(stderr, "a task took more than 100 s; oldest wait: %s\n", fs->status().oldest_wait_text.c_str());
    std::abort();
  }
  template <class T>
  T run(Task<T> task, size_t loop = 0) { return wait(start(std::move(task), loop)); }

  static Buffer bytes(size_t size, uint64_t seed) {
    auto b = Buffer::allocate(std::max<size_t>(size, 1)).slice(0, size);
    SeededRng rng(seed);
    for (size_t i = 0; i < size; i += 8) {
      uint64_t x = rng.u64();
      std::memcpy(b.data() + i, &x, std::min<size_t>(8, size - i));
    }
    return b;
  }
  static std::string text(const Buffer& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
  static Buffer data(std::string_view s) { return Buffer::copy_of(std::as_bytes(std::span(s))); }
  Result<HandlePtr> create(Filesystem& f, const std::string& name, uint32_t flags = O_RDWR) {
    auto r = run(f.create(root_of(f), name, 0644, 0, flags | O_CREAT, {}));
    if (!r) return std::unexpected(r.error());
    return r->handle;
  }
  Result<std::string> read(Filesystem& f, HandlePtr h, uint64_t offset, size_t size) {
    std::string out;
    while (out.size() < size) {
      auto b = Buffer::allocate(std::min<size_t>(size - out.size(), kMaxIo)).slice(0, std::min<size_t>(size - out.size(), kMaxIo));
      auto got = run(f.read(h, offset + out.size(), b, {}));
      if (!got) return std::unexpected(got.error());
      out.append(reinterpret_cast<char*>(b.data()), *got);
      if (*got < b.size()) break;
    }
    return out;
  }
  static void settings(config::Settings& s) { s.layout_small = 1 * MiB; }

  Runtime runtime{RuntimeOptions{.loops = 2, .pin = false, .name = "client"}};
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<rpc::Transport> transport;
  std::vector<std::unique_ptr<Filesystem>> mounts;
  Filesystem* fs = nullptr;
};

TEST_F(CoreSmoke, DataOverAllTargetsIsTheSameForTheOtherClient) {
  auto h = create(*fs, "big");
  ASSERT_OK(h);
  auto b = bytes(20 * MiB + 4711, 1);
  for (uint64_t at = 0; at < b.size(); at += 1 * MiB) {
    auto w = run(fs->write(*h, at, b.slice(at, std::min<uint64_t>(1 * MiB, b.size() - at)), {.may_retain = true}, {}), at / MiB % 2);
    ASSERT_OK(w);
  }
  auto* other = mount();
  ASSERT_TRUE(other);
  auto st = run(other->lookup(root_of(*other), "big", {}));
  ASSERT_OK(st);
  EXPECT_EQ(st->size, b.size());
  auto theirs = run(other->open(Ino(st->ino), O_RDONLY, {}));
  ASSERT_OK(theirs);
  auto r = read(*other, theirs->handle, 0, 32 * MiB);
  ASSERT_OK(r);
  EXPECT_TRUE(*r == text(b));
  ASSERT_OK(run(fs->fsync(*h, false, {})));
  ASSERT_OK(run(fs->release(*h, 0)));
  st = run(other->getattr(Ino(st->ino), {}));
  ASSERT_OK(st);
  EXPECT_EQ(st->size, b.size());
  EXPECT_GE(st->allocated, b.size());
  ASSERT_OK(run(other->release(theirs->handle, 0)));
}

TEST_F(CoreSmoke, NamesAttributesAndPages) {
  const Ino root = root_of(*fs);
  auto d = run(fs->mkdir(root, "d", 0755, 022, {}));
  ASSERT_OK(d);
  for (int i = 0; i < 300; ++i) ASSERT_OK(run(fs->mknod(Ino(d->ino), "f" + std::to_string(i), S_IFREG | 0644, 0, 0, {}), i % 2));
  auto dir = run(fs->opendir(Ino(d->ino), O_RDONLY, {}));
  ASSERT_OK(dir);
  std::set<std::string> names;
  for (uint64_t cookie = 0;;) {
    auto page = run(fs->readdir(*dir, cookie, 4096, true, {}));
    ASSERT_OK(page);
    for (auto& e : page->entries) {
      EXPECT_TRUE(names.emplace(as_text(e->name)).second);
      ASSERT_TRUE(e->attr);
      EXPECT_EQ(e->attr->ino, e->ino);
      cookie = e->cookie;
    }
    if (page->end) break;
    ASSERT_FALSE(page->entries.empty());
  }
  EXPECT_EQ(names.size(), 300u);
  EXPECT_EQ(run(fs->rmdir(root, "d", {})).error().code, Errc::kNotEmpty);
  ASSERT_OK(run(fs->rename({Ino(d->ino), "f0", root, "moved", 0}, {})));
  EXPECT_EQ(run(fs->lookup(Ino(d->ino), "f0", {})).error().code, Errc::kNoEnt);
  auto moved = run(fs->lookup(root, "moved", {}));
  ASSERT_OK(moved);
  ASSERT_OK(run(fs->link(Ino(moved->ino), root, "second", {})));
  EXPECT_EQ(run(fs->getattr(Ino(moved->ino), {}))->nlink, 2u);
  auto link = run(fs->symlink(root, "s", "where/to", {}));
  ASSERT_OK(link);
  EXPECT_EQ(run(fs->readlink(Ino(link->ino), {})).value(), "where/to");
  ASSERT_OK(run(fs->xattr_set(Ino(moved->ino), "user.a", "value", 0, false, {})));
  EXPECT_EQ(run(fs->xattr_get(Ino(moved->ino), "user.a", {})).value(), "value");
  client::SetAttr change;
  change.valid = wire::kSetMode | wire::kSetMtime;
  change.mode = 0600;
  change.mtime = -5 * kSecond;
  auto changed = run(fs->setattr(Ino(moved->ino), change, {}));
  ASSERT_OK(changed);
  EXPECT_EQ(changed->mode & 07777, 0600u);
  EXPECT_EQ(changed->mtime, -5 * kSecond);
  ASSERT_OK(run(fs->unlink(root, "second", {})));
  ASSERT_OK(run(fs->statfs(root, {})));
}

TEST_F(CoreSmoke, TruncationHolesAndSeeks) {
  auto h = create(*fs, "t");
  ASSERT_OK(h);
  auto b = bytes(5 * MiB, 7);
  for (uint64_t at = 0; at < b.size(); at += 1 * MiB) ASSERT_OK(run(fs->write(*h, at, b.slice(at, 1 * MiB), {}, {})));
  client::SetAttr cut;
  cut.valid = wire::kSetSize;
  cut.size = 2 * MiB + 12345;
  cut.handle = *h;
  ASSERT_OK(run(fs->setattr((*h)->ino(), cut, {})));
  ASSERT_OK(run(fs->write(*h, 6 * MiB, data("tail"), {}, {})));
  std::string model = text(b).substr(0, cut.size) + std::string(6 * MiB - cut.size, '\0') + "tail";
  auto r = read(*fs, *h, 0, 8 * MiB);
  ASSERT_OK(r);
  EXPECT_TRUE(*r == model);
  EXPECT_EQ(run(fs->lseek(*h, cut.size + 4096, client::Seek::kData, {})).value(), 6 * MiB);
  // The hole begins where the data ends or, seen in whole blocks, at the next block: which of them depends on the object's end.
  const uint64_t hole = run(fs->lseek(*h, 0, client::Seek::kHole, {})).value();
  EXPECT_TRUE(hole == cut.size || hole == round_up(cut.size, kBlockSize)) << hole;
  ASSERT_OK(run(fs->fallocate(*h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 1 * MiB, {})));
  model.replace(100, 1 * MiB, std::string(1 * MiB, '\0'));
  r = read(*fs, *h, 0, 8 * MiB);
  ASSERT_OK(r);
  EXPECT_TRUE(*r == model);
  cut.size = 0;
  ASSERT_OK(run(fs->setattr((*h)->ino(), cut, {})));
  ASSERT_OK(run(fs->write(*h, 0, data("new"), {}, {})));
  r = read(*fs, *h, 0, 8 * MiB);
  ASSERT_OK(r);
  EXPECT_EQ(*r, "new");
  ASSERT_OK(run(fs->release(*h, 0)));
  EXPECT_EQ(run(fs->getattr((*h)->ino(), {}))->size, 3u);
}

Task<int> append_lines(Filesystem* fs, HandlePtr handle, char c, int lines) {
  int good = 0;
  for (int i = 0; i < lines; ++i) {
    std::string line(31, c);
    line.back() = '\n';
    auto w = co_await fs->write(handle, 0, Buffer::copy_of(std::as_bytes(std::span(line))), {}, {});
    EXPECT_TRUE(w) << "line " << i << " of " << c << ": " << w.error().message();
    good += w && w->written == line.size();
  }
  co_return good;
}

TEST_F(CoreSmoke, AppendsOfTwoClientsWhileATargetIsPaused) {
  auto h = create(*fs, "log", O_WRONLY | O_APPEND);
  ASSERT_OK(h);
  auto* other = mount();
  ASSERT_TRUE(other);
  auto theirs = run(other->open((*h)->ino(), O_WRONLY | O_APPEND, {}));
  ASSERT_OK(theirs);
  auto a = start(append_lines(fs, *h, 'a', 200), 0), b = start(append_lines(other, theirs->handle, 'b', 200), 1);
  cluster->pause("ost0");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the fault's length, not a wait for something
  cluster->resume("ost0");
  EXPECT_EQ(wait(std::move(a)), 200);
  EXPECT_EQ(wait(std::move(b)), 200);
  auto reader = run(fs->open((*h)->ino(), O_RDONLY, {}));
  ASSERT_OK(reader);
  auto r = read(*fs, reader->handle, 0, 1 * MiB);
  ASSERT_OK(r);
  ASSERT_EQ(r->size(), 400u * 31);
  for (size_t i = 0; i < r->size(); i += 31) EXPECT_EQ(r->substr(i, 31), std::string(30, (*r)[i]) + "\n") << i;
  EXPECT_EQ(std::count(r->begin(), r->end(), 'a'), 200 * 30);
}

Task<Error> write_blocks(Filesystem* fs, HandlePtr handle, Buffer b) {
  for (uint64_t at = 0; at < b.size(); at += 128 * KiB) {
    auto w = co_await fs->write(handle, at, b.slice(at, std::min<uint64_t>(128 * KiB, b.size() - at)), {}, {});
    if (!w) co_return w.error();
  }
  co_return Error(Errc::kOk);
}

TEST_F(CoreSmoke, EachTargetIsKilledWhileItIsWrittenTo) {
  auto h = create(*fs, "k");
  ASSERT_OK(h);
  auto b = bytes(48 * MiB, 3);
  auto writing = start(write_blocks(fs, *h, b));
  for (auto& ost : {"ost0", "ost1", "ost2"}) {
    auto before = fs->status().written_bytes;
    while (fs->status().written_bytes < before + 2 * MiB && writing.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {}
    cluster->kill9(ost);
    ASSERT_OK(cluster->start(ost));
  }
  auto failed = wait(std::move(writing));
  EXPECT_EQ(failed.code, Errc::kOk) << failed.message();
  ASSERT_OK(run(fs->fsync(*h, false, {})));
  auto r = read(*fs, *h, 0, 64 * MiB);
  ASSERT_OK(r);
  EXPECT_TRUE(*r == text(b));
}

Task<Error> make_files(Filesystem* fs, std::string prefix, int count) {
  for (int i = 0; i < count; ++i) {
    auto made = co_await fs->create(root_of(*fs), prefix + std::to_string(i), 0644, 0, O_RDWR | O_CREAT | O_EXCL, {});
    if (!made) co_return made.error();
    auto w = co_await fs->write(made->handle, 0, Buffer::copy_of(std::as_bytes(std::span(prefix))), {}, {});
    if (!w) co_return w.error();
    if (auto renamed = co_await fs->rename({root_of(*fs), prefix + std::to_string(i), root_of(*fs), prefix + std::to_string(i) + ".done", 0}, {}); !renamed) co_return renamed.error();
    if (auto closed = co_await fs->release(made->handle, 0); !closed) co_return closed.error();
  }
  co_return Error(Errc::kOk);
}

TEST_F(CoreSmoke, TheMetadataServerIsKilledUnderLoad) {
  auto held = create(*fs, "held");
  ASSERT_OK(held);
  wire::LockSpecT lock;
  lock.owner = 1;
  lock.type = 1;
  lock.end = 99;
  ASSERT_OK(run(fs->lock_set(*held, lock, false, {})));
  constexpr int kFiles = 150;
  auto a = start(make_files(fs, "a", kFiles), 0), b = start(make_files(fs, "b", kFiles), 1);
  for (int i = 0; i < 3; ++i) {
    auto before = fs->status().written_bytes;
    while (fs->status().written_bytes < before + 20 && a.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {}
    cluster->kill9("mds");
    ASSERT_OK(cluster->start("mds"));
  }
  auto failed_a = wait(std::move(a)), failed_b = wait(std::move(b));
  EXPECT_EQ(failed_a.code, Errc::kOk) << failed_a.message();
  EXPECT_EQ(failed_b.code, Errc::kOk) << failed_b.message();
  for (int i = 0; i < kFiles; ++i) {
    for (auto p : {"a", "b"}) {
      auto st = run(fs->lookup(root_of(*fs), p + std::to_string(i) + ".done", {}));
      ASSERT_OK(st);
      EXPECT_EQ(st->size, 1u);
    }
  }
  auto* other = mount();
  ASSERT_TRUE(other);
  auto theirs = run(other->open((*held)->ino(), O_RDWR, {}));
  ASSERT_OK(theirs);
  EXPECT_EQ(run(other->lock_set(theirs->handle, lock, false, {})).error().code, Errc::kAgain);
  auto waiting = start(other->lock_set(theirs->handle, lock, true, {}), 1);
  ASSERT_OK(run(fs->flush(*held, 1, {})));
  ASSERT_OK(wait(std::move(waiting)));
}

TEST_F(CoreSmoke, UnlinkedButOpen) {
  auto h = create(*fs, "gone");
  ASSERT_OK(h);
  auto b = bytes(1 * MiB, 5);
  ASSERT_OK(run(fs->write(*h, 0, b, {}, {})));
  ASSERT_OK(run(fs->unlink(root_of(*fs), "gone", {})));
  EXPECT_EQ(run(fs->lookup(root_of(*fs), "gone", {})).error().code, Errc::kNoEnt);
  ASSERT_OK(run(fs->write(*h, 1 * MiB, data("more"), {}, {})));
  auto r = read(*fs, *h, 0, 2 * MiB);
  ASSERT_OK(r);
  EXPECT_TRUE(*r == text(b) + "more");
  auto st = run(fs->getattr((*h)->ino(), {}));
  ASSERT_OK(st);
  EXPECT_EQ(st->nlink, 0u);
  EXPECT_EQ(st->size, 1 * MiB + 4);
  ASSERT_OK(run(fs->release(*h, 0)));
}

}  // namespace
}  // namespace nacre::test
