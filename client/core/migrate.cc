// SPDX-License-Identifier: Apache-2.0
// Moving a file's data to other objects (docs/protocol.md, "A migration"). This client reads the file as everybody does and
// writes the new objects itself. Objects are copied while the file is in use, those that have changed again, until little is left;
// then the metadata server has the old ones sealed, the rest is copied, made stable and committed. What meets a truncation, a restart
// of a server or the time limit begins anew; after a few such attempts the seal comes first, so that nothing can come between.
#include <fcntl.h>

#include <set>

#include "client/core/filesystem_impl.h"
#include "common/layout/layout.h"
#include "common/log/log.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"

namespace nacre::client {

namespace {
constexpr int kLiveAttempts = 3, kAttempts = 10;      // of one migration; the later ones with the seal first
constexpr int kLivePasses = 4;                        // over a file in use
constexpr uint64_t kLittle = 64 * MiB;                // left to copy: short enough to have the writers wait for
constexpr size_t kWindow = 8;                         // pieces of at most 1 MiB on their way
constexpr size_t kStatsPerCall = 10'000;
constexpr Nanos kGiveUpLimit = 10 * kSecond;

using Stats = std::map<ObjectId, wire::ObjectStat>;

bool same(const wire::ObjectStat& a, const wire::ObjectStat& b) {
  return a.exists() == b.exists() && a.size() == b.size() && a.allocated() == b.allocated() && a.wseq() == b.wseq() && a.changed() == b.changed();
}

class Mover {
 public:
  Mover(FilesystemImpl& fs, std::shared_ptr<Core> core, FileHandlePtr file, wire::MigrateRequestT wish, Caller caller)
      : fs_(fs), core_(std::move(core)), file_(std::move(file)), wish_(std::move(wish)), caller_(std::move(caller)) {}

  Task<Result<wire::MigrateReplyT>> run() {
    for (uint32_t attempt = 1;; ++attempt) {
      copied_.clear();
      made_.clear();
      wish_.token = 0;
      CO_TRY(state_, co_await step(1));
      if (state_.token == 0) co_return std::move(state_);
      if (!state_.source || !state_.target || !state_.target_cap) co_return Err(Errc::kProtocol, "the metadata server began a migration without layouts");
      wish_.token = state_.token;
      auto done = co_await fill(attempt <= kLiveAttempts);
      if (done) co_return std::move(state_);
      Error why = std::move(done).error();
      if (why.code == Errc::kStale && co_await arrived()) co_return std::move(state_);
      co_await give_up();
      const bool again = why.code == Errc::kStale || why.code == Errc::kStaleGeneration || why.code == Errc::kCapInvalid;
      if (!again) co_return Err(std::move(why));
      if (attempt == kAttempts) co_return Err(Errc::kBusy, fmt::format("inode {} could not be moved in {} attempts, the last one because: {}", file_->ino(), kAttempts, why.message()));
      CO_CHECK_OK(co_await pause_before_retry(op(), core_->mds.name(), attempt));
    }
  }

 private:
  OpPtr op() const { return make_op(core_, "migrate", caller_); }

  Task<Result<wire::MigrateReplyT>> step(uint8_t number) {
    wire::MigrateRequestT request;
    request.ino = file_->ino().v;
    request.step = number;
    request.token = wish_.token;
    if (number == 1) {
      request.avoid = wish_.avoid;
      if (wish_.layout) request.layout = std::make_unique<schema::LayoutT>(*wish_.layout);
    }
    CallExtra extra;
    extra.session = file_->session();
    co_return co_await core_->mds.call<rpc::Method::kMigrate>(std::move(request), op(), std::move(extra));
  }

  Task<Result<void>> fill(bool live) {
    for (int pass = 0; live && pass < kLivePasses; ++pass) {
      CO_TRY(uint64_t bytes, co_await copy_changed());
      if (bytes < kLittle) break;
    }
    CO_TRY(auto sealed, co_await step(2));
    if (!sealed.source || !sealed.target || !sealed.target_cap) co_return Err(Errc::kProtocol, "the metadata server sealed a file without layouts");
    state_ = std::move(sealed);
    CO_TRY(uint64_t rest, co_await copy_changed());
    (void)rest;
    CO_CHECK_OK(co_await make_stable());
    CO_TRY(auto committed, co_await step(3));
    state_.attr = std::move(committed.attr);
    co_return Result<void>{};
  }

  /// The commit was done although its answer was lost: the layout is the file's.
  Task<bool> arrived() {
    wire::LayoutGetRequestT request;
    request.ino = file_->ino().v;
    auto reply = co_await core_->mds.call<rpc::Method::kLayoutGet>(std::move(request), op());
    co_return reply && reply->layout && state_.target && reply->layout->generation == state_.target->generation;
  }

  Task<void> give_up() {
    Caller nobody = caller_;
    nobody.cancel = nullptr;  // who interrupted us wants an end of it
    auto last = make_op(core_, "migrate", std::move(nobody));
    last->unlimited();
    last->limit(core_->clock().boot() + kGiveUpLimit);
    wire::MigrateRequestT request;
    request.ino = file_->ino().v;
    request.step = 4;
    request.token = wish_.token;
    (void)co_await core_->mds.call<rpc::Method::kMigrate>(std::move(request), last);  // the server finds out by itself
  }

  // ---- what has changed

  Task<Result<Stats>> stats() {
    std::map<OstId, std::vector<ObjectId>> by_target;
    for (const auto& o : layout::used_objects(*state_.source, file_->ino())) by_target[o.ost].push_back(o.object);
    Stats out;
    for (auto& [ost, objects] : by_target) {
      CO_TRY(TargetPtr target, target_of(ost));
      for (size_t at = 0; at < objects.size(); at += kStatsPerCall) {
        const size_t n = std::min(kStatsPerCall, objects.size() - at);
        wire::ObjectStatRequestT request;
        for (size_t i = 0; i < n; ++i) request.objects.push_back(to_ref(objects[at + i]));
        CO_TRY(auto raw, co_await target->call(rpc::Method::kObjectStat, encode(request), {}, {}, op()));
        CO_TRY(auto reply, decode<wire::ObjectStatReplyT>(raw.body));
        if (reply.stats.size() != n) co_return Err(Errc::kProtocol, fmt::format("ost{} answered {} stats for {} objects", ost, reply.stats.size(), n));
        for (size_t i = 0; i < n; ++i) out[objects[at + i]] = reply.stats[i];
      }
    }
    co_return out;
  }

  Result<TargetPtr> target_of(OstId ost) const {
    auto target = core_->target(ost);
    if (!target) return Err(Errc::kIo, fmt::format("inode {}: ost{} is not in the cluster map", file_->ino(), ost));
    return target;
  }

  /// Copies every object that is not as it was when it was copied last. Returns the bytes copied.
  Task<Result<uint64_t>> copy_changed() {
    CO_TRY(Stats now, co_await stats());
    std::set<ObjectId> wanted;
    for (const auto& [object, stat] : now) {
      auto before = copied_.find(object);
      if (before == copied_.end() ? stat.exists() : !same(before->second, stat)) wanted.insert(object);
    }
    complete_ = true;
    CO_TRY(uint64_t bytes, co_await copy(std::move(wanted)));
    if (complete_) copied_ = std::move(now);
    else copied_.clear();
    co_return bytes;
  }

  // ---- copying

  Task<Result<uint64_t>> copy(std::set<ObjectId> wanted) {
    uint64_t bytes = 0, at = 0;
    while (!wanted.empty()) {
      auto data = co_await fs_.lseek(file_, at, Seek::kData, caller_);
      if (!data && data.error().code == Errc::kNxio) break;
      if (!data) co_return data;
      auto hole = co_await fs_.lseek(file_, *data, Seek::kHole, caller_);
      if (!hole && hole.error().code == Errc::kNxio) break;  // cut in the meantime
      CO_TRY(uint64_t end, std::move(hole));
      for (at = *data; at < end;) {
        const uint64_t n = std::min<uint64_t>(end - at, kWindow * kMaxIo);
        CO_TRY(auto pieces, layout::split(*state_.source, at, n, kMaxIo));
        std::vector<Task<Result<uint64_t>>> tasks;
        for (const auto& p : pieces) {
          if (!wanted.contains(ObjectId{file_->ino(), Generation(state_.source->generation), p.component, p.stripe})) continue;
          tasks.push_back(copy_piece(p.file_offset, p.length));
          if (tasks.size() == kWindow) CO_CHECK_OK(co_await finish(std::exchange(tasks, {}), bytes));
        }
        CO_CHECK_OK(co_await finish(std::move(tasks), bytes));
        at += n;
      }
    }
    co_return bytes;
  }

  static Task<Result<void>> finish(std::vector<Task<Result<uint64_t>>> tasks, uint64_t& bytes) {
    if (tasks.empty()) co_return Result<void>{};
    Result<void> out;
    for (auto& done : co_await when_all(std::move(tasks))) {
      if (done) bytes += *done;
      else if (out) out = std::unexpected(std::move(done).error());
    }
    co_return out;
  }

  Task<Result<uint64_t>> copy_piece(uint64_t offset, uint64_t length) {
    auto buffer = Buffer::allocate(length).slice(0, length);
    CO_TRY(uint64_t got, co_await read_range(core_, file_, offset, buffer, op()));
    if (got == 0) co_return 0;
    // The file has grown since: where its end goes is known under the seal.
    if (!layout::is_instantiated(*state_.target, offset, got)) {
      complete_ = false;
      co_return 0;
    }
    CO_TRY(auto pieces, layout::split(*state_.target, offset, got, kMaxIo));
    for (const auto& p : pieces) CO_CHECK_OK(co_await write_piece(p, buffer.slice(p.file_offset - offset, p.length)));
    co_return got;
  }

  Task<Result<void>> write_piece(layout::Piece piece, Buffer data) {
    const ObjectId object{file_->ino(), Generation(state_.target->generation), piece.component, piece.stripe};
    CO_TRY(TargetPtr target, target_of(piece.ost));
    wire::ObjectWriteRequestT request;
    request.object = std::make_unique<schema::ObjectRef>(to_ref(object));
    request.offset = piece.object_offset;
    request.length = static_cast<uint32_t>(data.size());
    request.sums = wire::range_sums(object, piece.object_offset, data.span());
    request.write_id = core_->next_write_id();
    for (int tries = 0;; ++tries) {
      CO_CHECK_OK(co_await refresh_right(tries > 0));
      request.cap = std::make_unique<wire::CapabilityT>(*state_.target_cap);
      auto raw = co_await target->call(rpc::Method::kObjectWrite, encode(request), data, {}, op());
      if (!raw) {
        const Errc code = raw.error().code;
        const bool right = code == Errc::kCapExpired || code == Errc::kCapInvalid || code == Errc::kStaleEpoch;
        if (right && tries < kMaxRightsRetries) continue;
        co_return std::unexpected(std::move(raw).error());
      }
      CO_TRY(auto reply, decode<wire::ObjectWriteReplyT>(raw->body));
      target->note(reply.stable, reply.incarnation);
      co_return note_incarnation(piece.ost, reply.incarnation);
    }
  }

  /// Nothing that is written here is kept for sending it again: a target that restarts in between has the whole copied anew.
  Result<void> note_incarnation(OstId ost, uint64_t incarnation) {
    auto [known, fresh] = made_.emplace(ost, incarnation);
    if (known->second != incarnation) return Err(Errc::kStale, fmt::format("ost{} has restarted while data was moved to it", ost));
    return {};
  }

  Task<Result<void>> refresh_right(bool now) {
    const Nanos left = left_of(*state_.target_cap, core_->mds.now());
    if (!now && left > kRenewBelow) co_return Result<void>{};
    CO_TRY(auto fresh, co_await step(1));
    if (!fresh.target_cap) co_return Err(Errc::kProtocol, "the metadata server renewed no right to write");
    state_.target_cap = std::move(fresh.target_cap);
    co_return Result<void>{};
  }

  Task<Result<void>> make_stable() {
    auto all = made_;
    for (auto& [ost, incarnation] : all) {
      CO_TRY(TargetPtr target, target_of(ost));
      CO_TRY(auto raw, co_await target->call(rpc::Method::kObjectCommit, encode(wire::ObjectCommitRequestT{}), {}, {}, op()));
      CO_TRY(auto reply, decode<wire::ObjectCommitReplyT>(raw.body));
      CO_CHECK_OK(note_incarnation(ost, reply.incarnation));
    }
    co_return Result<void>{};
  }

  static constexpr Nanos kRenewBelow = 500 * kMillisecond;

  FilesystemImpl& fs_;
  std::shared_ptr<Core> core_;
  FileHandlePtr file_;
  wire::MigrateRequestT wish_;
  Caller caller_;
  wire::MigrateReplyT state_;
  Stats copied_;                            // the objects as they were before they were copied
  std::map<OstId, uint64_t> made_;          // incarnations of the targets that hold new objects
  bool complete_ = true;
};
}  // namespace

Task<Result<Bytes>> FilesystemImpl::migrate(wire::MigrateRequestT wish, Caller caller) {
  const Ino ino(wish.ino);
  {
    std::lock_guard lock(mutex_);
    if (!moved_.insert(ino.v).second) co_return Err(Errc::kBusy, fmt::format("the data of inode {} is being moved already", ino));
  }
  Result<Bytes> out = Err(Errc::kIo);
  auto opened = co_await open(ino, O_RDONLY | O_NOATIME, caller);
  if (opened) {
    auto file = as_file(opened->handle);
    Mover mover(*this, core_, file, std::move(wish), caller);
    auto done = co_await mover.run();
    if (done) out = encode(*done);
    else out = std::unexpected(std::move(done).error());
    (void)co_await core_->close_handle(core_, file, 0);
  } else {
    out = std::unexpected(std::move(opened).error());
  }
  std::lock_guard lock(mutex_);
  moved_.erase(ino.v);
  co_return out;
}

}  // namespace nacre::client
