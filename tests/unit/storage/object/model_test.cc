// SPDX-License-Identifier: Apache-2.0
// Random operations on several objects at once against arrays of bytes, with power cuts, kills and clean stops in between.
// After a power cut each block must hold one of its versions since the last stable one, never a mixture, never another's bytes.
// Then the clients resend what they kept and repeat what they got no answer to, and everything must be as acknowledged.
#include <set>

#include "tests/unit/storage/object/rig.h"

namespace nacre::storage::testing {
namespace {

constexpr uint64_t kMaxSize = 5 * kChunkSize / 2;
constexpr size_t kObjects = 4;

/// What one client knows of one object it alone writes.
class Actor {
 public:
  Actor(uint64_t ino, uint64_t seed) : rng_(seed), id_(Rig::object(ino)), ino_(ino) {}

  const ObjectId& id() const { return id_; }

  Task<void> work(Rig& rig) {
    while (!rig.power->off() && operations_-- > 0) {
      if (!co_await step(rig)) break;
    }
    done_ = true;
  }
  void begin(int operations) { operations_ = operations, done_ = false; }
  bool done() const { return done_; }

  /// A stop that lost nothing: all that was acknowledged is there.
  void check_all(Rig& rig) { check(rig, true); }
  /// A power cut: versions since the last stable one.
  void check_versions(Rig& rig) { check(rig, false); }

  /// Resends in order, then repeats the operation that wasn't answered.
  void recover(Rig& rig) {
    for (const Kept& k : kept_) {
      auto w = rig.write(id_, k.offset, Buffer::copy_of(std::as_bytes(std::span(k.data.data(), k.data.size()))), k.wseq);
      // A destroy that wasn't answered may have happened: then its object takes no resends.
      if (!w && w.error().code == Errc::kStaleGeneration && pending_ && pending_->destroy) continue;
      ASSERT_TRUE(w) << w.error().message();
      ASSERT_TRUE(w->is_stable);
    }
    kept_.clear();
    if (pending_) {
      auto again = std::move(*pending_);
      pending_.reset();
      auto ok = rig.run(again.run(rig));
      ASSERT_TRUE(ok) << ok.error().message();
      if (again.destroy) return renew();
      now_ = again.after;
      size_ = again.size;
    }
    settle();
    check(rig, true);
  }
  uint64_t allocated(Rig& rig) const { return rig.stat(id_).allocated; }

 private:
  struct Kept { WSeq wseq; uint64_t offset; std::string data; uint64_t op; };
  struct Version { uint64_t op; std::string bytes; };
  struct Pending {
    std::string after;  ///< content if it happened
    uint64_t size = 0;
    bool destroy = false;
    std::function<Task<Result<void>>(Rig&)> run;
  };

  std::string block_of(const std::string& content, uint64_t block) const {
    std::string b = block * kBlockSize < content.size() ? content.substr(block * kBlockSize, kBlockSize) : std::string();
    b.resize(kBlockSize, '\0');
    return b;
  }

  /// What block `b` may hold after a cut: its last stable version, later ones, and what was under way.
  std::vector<std::string> allowed(uint64_t b) const {
    std::vector<std::string> out;
    auto it = history_.find(b);
    if (it == history_.end()) out.push_back(block_of(now_, b));
    else
      for (const Version& v : it->second) out.push_back(v.bytes);
    if (pending_) out.push_back(block_of(pending_->after, b));
    if (pending_ && pending_->destroy) out.push_back(std::string(kBlockSize, '\0'));
    return out;
  }

  void check(Rig& rig, bool exact) {
    const bool may_be_gone = pending_ && pending_->destroy;
    for (uint64_t offset = 0; offset < kMaxSize + kChunkSize; offset += kChunkSize) {
      auto got = rig.read(id_, offset, kChunkSize);
      if (!got && may_be_gone && got.error().code == Errc::kStaleGeneration) return;
      ASSERT_TRUE(got) << got.error().message();
      std::string bytes = *got;
      bytes.resize(kChunkSize, '\0');
      for (uint64_t i = 0; i < kBlocksPerChunk; ++i) {
        const uint64_t b = offset / kBlockSize + i;
        const std::string have = bytes.substr(i * kBlockSize, kBlockSize);
        if (exact && !pending_) {
          ASSERT_TRUE(have == block_of(now_, b)) << "object " << id_.ino.v << " block " << b << " isn't what was acknowledged: " << differ(have, block_of(now_, b));
          continue;
        }
        std::vector<std::string> may = exact ? std::vector<std::string>{block_of(now_, b), block_of(pending_->after, b)} : allowed(b);
        bool found = false;
        for (const std::string& m : may) found = found || m == have;
        ASSERT_TRUE(found) << "object " << id_.ino.v << " block " << b << " holds none of its " << may.size() << " possible versions (exact: " << exact << ")";
      }
    }
    if (exact && !pending_) ASSERT_EQ(rig.stat(id_).size, size_);
  }

  /// Where and how two blocks differ.
  static std::string differ(const std::string& have, const std::string& want) {
    size_t first = 0, last = kBlockSize;
    while (first < kBlockSize && have[first] == want[first]) ++first;
    while (last > first && have[last - 1] == want[last - 1]) --last;
    const auto zeros = [&](const std::string& s) { return s.find_first_not_of('\0', first) >= last; };
    return fmt::format("bytes {} to {} differ, {} there{}", first, last, zeros(have) ? "zeros" : "something else", zeros(want) ? " instead of zeros" : "");
  }

  /// All that was acknowledged is stable.
  void settle() {
    history_.clear();
    kept_.clear();
  }

  void prune(WSeq stable) {
    uint64_t upto = 0;
    while (!kept_.empty() && kept_.front().wseq <= stable) {
      upto = kept_.front().op;
      kept_.erase(kept_.begin());
    }
    if (upto == 0) return;
    for (auto it = history_.begin(); it != history_.end();) {
      auto& versions = it->second;
      size_t first = 0;
      for (size_t i = 0; i < versions.size(); ++i)
        if (versions[i].op <= upto) first = i;
      versions.erase(versions.begin(), versions.begin() + static_cast<std::ptrdiff_t>(first));
      if (versions.size() == 1) it = history_.erase(it);
      else ++it;
    }
  }

  void renew() {
    ino_ += 1000;
    id_ = Rig::object(ino_);
    now_.clear();
    size_ = 0;
    settle();
  }

  Task<bool> step(Rig& rig) {
    const uint64_t dice = rng_.below(100);
    if (dice < 62) co_return co_await write(rig);
    if (dice < 78) co_return co_await read(rig);
    if (dice < 94) co_return co_await command(rig);
    if (dice < 95) co_return co_await destroy(rig);
    auto stable = co_await rig.store->commit(WSeq());
    if (!stable) co_return false;
    prune(*stable);
    co_return true;
  }

  Task<bool> write(Rig& rig) {
    static constexpr uint64_t kSizes[] = {1, 100, 4095, 4096, 4097, 8192, 20'000, 65'536, 300'000, 1 << 20};
    const uint64_t length = rng_.below(2) ? kSizes[rng_.below(10)] : 1 + rng_.below(10'000);
    uint64_t offset = rng_.below(3) == 0 ? size_ : rng_.below(kMaxSize);
    if (rng_.below(2)) offset = round_down(offset, kBlockSize);
    if (offset + length > kMaxSize) offset = kMaxSize - length;
    std::string data(length, '\0');
    test_bytes(std::as_writable_bytes(std::span(data.data(), data.size())), rng_.u64());
    const bool sync = rng_.below(20) == 0;

    Pending p;
    p.after = now_;
    if (p.after.size() < offset + length) p.after.resize(offset + length, '\0');
    p.after.replace(offset, length, data);
    p.size = std::max(size_, offset + length);
    const ObjectId id = id_;
    p.run = [id, offset, data](Rig& r) -> Task<Result<void>> {
      WriteArgs again = Rig::args(id, offset, Buffer::copy_of(std::as_bytes(std::span(data.data(), data.size()))));
      again.sync = true;
      auto w = co_await r.store->write(std::move(again));
      if (!w) co_return std::unexpected(w.error());
      co_return Result<void>{};
    };
    pending_ = std::move(p);
    WriteArgs args = Rig::args(id_, offset, Buffer::copy_of(std::as_bytes(std::span(data.data(), data.size()))));
    args.sync = sync;
    auto w = co_await rig.store->write(std::move(args));
    if (!w) {
      EXPECT_TRUE(rig.power->off()) << w.error().message();
      co_return false;
    }
    EXPECT_EQ(w->size, pending_->size);
    const uint64_t op = ++op_;
    for (uint64_t b = offset / kBlockSize; b <= (offset + length - 1) / kBlockSize; ++b) {
      auto& versions = history_[b];
      if (versions.empty()) versions.push_back({0, block_of(now_, b)});
      versions.push_back({op, block_of(pending_->after, b)});
    }
    kept_.push_back({w->wseq, offset, std::move(data), op});
    now_ = std::move(pending_->after);
    size_ = pending_->size;
    pending_.reset();
    if (w->is_stable) prune(w->wseq);
    prune(rig.store->stable());
    co_return true;
  }

  Task<bool> read(Rig& rig) {
    const uint64_t offset = rng_.below(kMaxSize);
    const auto length = static_cast<uint32_t>(1 + rng_.below(200'000));
    auto r = co_await rig.store->read(id_, offset, length);
    if (!r) {
      EXPECT_TRUE(rig.power->off()) << r.error().message();
      co_return false;
    }
    EXPECT_EQ(r->size, size_);
    const uint64_t begin = round_down(offset, kBlockSize);
    for (size_t i = 0; i < r->sums.size(); ++i) {
      const uint64_t b = begin / kBlockSize + i;
      const std::string have(reinterpret_cast<const char*>(r->payload.data()) + i * kBlockSize, kBlockSize);
      EXPECT_TRUE(have == block_of(now_, b)) << "object " << id_.ino.v << " block " << b << " reads wrong";
      if (r->sums[i]) EXPECT_EQ(wire::block_sum(id_, b, r->payload.span().subspan(i * kBlockSize, kBlockSize)), r->sums[i]);
    }
    co_return true;
  }

  Task<bool> command(Rig& rig) {
    const auto kind = static_cast<uint8_t>(wire::kCmdTruncate + rng_.below(4));
    const uint64_t offset = rng_.below(kMaxSize - 1), length = 1 + rng_.below(std::min<uint64_t>(kMaxSize - offset, 500'000));
    const Command c{id_, kind, rng_.below(2) ? offset : round_down(offset, kBlockSize), length, CmdSeq(++sequence_), kRootFileset};
    Pending p;
    p.after = now_;
    p.size = size_;
    if (kind == wire::kCmdTruncate) {
      if (p.after.size() > c.offset) p.after.resize(c.offset);
      p.size = std::min(size_, c.offset);
    } else if (kind != wire::kCmdAllocate && c.offset < p.after.size()) {
      std::fill_n(p.after.begin() + static_cast<std::ptrdiff_t>(c.offset), std::min(length, p.after.size() - c.offset), '\0');
    }
    p.run = [c](Rig& r) -> Task<Result<void>> { co_return co_await issue(r, c); };
    pending_ = std::move(p);
    auto ok = co_await issue(rig, c);
    if (!ok) {
      EXPECT_TRUE(rig.power->off()) << ok.error().message();
      co_return false;
    }
    now_ = std::move(pending_->after);
    size_ = pending_->size;
    pending_.reset();
    settle();
    co_return true;
  }

  Task<bool> destroy(Rig& rig) {
    const Command c{id_, wire::kCmdDestroy, 0, 0, CmdSeq(++sequence_), kRootFileset};
    Pending p;
    p.after = now_;
    p.destroy = true;
    p.run = [c](Rig& r) -> Task<Result<void>> { co_return co_await issue(r, c); };
    pending_ = std::move(p);
    auto ok = co_await issue(rig, c);
    if (!ok) {
      EXPECT_TRUE(rig.power->off()) << ok.error().message();
      co_return false;
    }
    pending_.reset();
    renew();
    co_return true;
  }

  static Task<Result<void>> issue(Rig& rig, Command c) {
    std::vector<Command> list(1, c);
    auto done = co_await rig.store->commands(std::move(list), true);
    if (!done) co_return std::unexpected(done.error());
    co_return Result<void>{};
  }

  SeededRng rng_;
  ObjectId id_;
  uint64_t ino_;
  std::string now_;
  uint64_t size_ = 0;
  uint64_t op_ = 0, sequence_ = 0;
  std::map<uint64_t, std::vector<Version>> history_;
  std::vector<Kept> kept_;
  std::optional<Pending> pending_;
  int operations_ = 0;
  bool done_ = true;
};

enum class Stop { kPower, kKill, kClean };

void life(uint64_t seed, int boots) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  SeededRng rng(seed);
  Rig rig(48 * MiB);
  std::vector<std::unique_ptr<Actor>> actors;
  for (size_t i = 0; i < kObjects; ++i) actors.push_back(std::make_unique<Actor>(10 + i, rng.u64()));
  Stop last = Stop::kClean;
  for (int boot = 0; boot < boots; ++boot) {
    SCOPED_TRACE(fmt::format("boot {} after a {}", boot, last == Stop::kPower ? "power cut" : last == Stop::kKill ? "kill" : "clean stop"));
    // Now and then the power goes again while the target is opening.
    while (rng.below(4) == 0) {
      rig.power->cut_after(static_cast<int64_t>(rng.below(30)));
      if (rig.open()) (void)rig.run(rig.store->commit(WSeq()));
      rig.power_cut(rng);
      if (last != Stop::kPower) last = last == Stop::kKill ? Stop::kPower : last;
    }
    auto opened = rig.open();
    ASSERT_TRUE(opened) << opened.error().message();
    for (auto& a : actors) {
      if (last == Stop::kPower) a->check_versions(rig);
      else a->check_all(rig);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (auto& a : actors) {
      a->recover(rig);
      if (::testing::Test::HasFatalFailure()) return;
    }
    uint64_t allocated = 0;
    for (auto& a : actors) allocated += a->allocated(rig);
    ASSERT_TRUE(rig.run(rig.store->commit(WSeq())));
    rig.pass(3 * kSecond);
    ASSERT_EQ(rig.store->usage().used, allocated) << "blocks leaked, or are used twice";

    last = static_cast<Stop>(rng.below(3));
    rig.device->jitter(rng.u64(), 3);
    if (last == Stop::kPower) rig.power->cut_after(static_cast<int64_t>(10 + rng.below(600)));
    for (auto& a : actors) {
      a->begin(last == Stop::kPower ? 1'000'000 : static_cast<int>(20 + rng.below(100)));
      rig.runtime->loop(0).spawn(a->work(rig));
    }
    rig.until([&] {
      bool all = true;
      for (auto& a : actors) all = all && a->done();
      return all;
    });
    if (::testing::Test::HasFailure()) return;
    switch (last) {
      case Stop::kPower: rig.power_cut(rng); break;
      case Stop::kKill: rig.kill(); break;
      case Stop::kClean: ASSERT_TRUE(rig.close()); break;
    }
  }
}

TEST(Model, LivesWithPowerCutsKillsAndCleanStops) {
  const char* given = std::getenv("NACRE_SEED");
  const char* count = std::getenv("NACRE_SEEDS");
  const uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1, n = count ? std::strtoull(count, nullptr, 10) : long_form() ? 60 : 3;
  for (uint64_t seed = first; seed < first + n; ++seed) {
    life(seed, 8);
    ASSERT_FALSE(HasFailure()) << "repeat with NACRE_SEED=" << seed << " NACRE_SEEDS=1";
  }
}

}  // namespace
}  // namespace nacre::storage::testing
