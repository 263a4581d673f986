// SPDX-License-Identifier: Apache-2.0
// The life of a write in the client: rights for the range → pieces by layout, ≤ 1 MiB → sums while the data is hot → all
// pieces to their targets in parallel → acknowledged → kept until stable. A write returns after every target concerned has
// acknowledged. Pieces that meet a newer generation are cut again by the new layout.
#include <fcntl.h>

#include "client/core/filesystem_impl.h"
#include "common/layout/layout.h"
#include "common/log/log.h"
#include "common/wire/checksum.h"

namespace nacre::client {

namespace {
constexpr uint64_t kReferFrom = 256 * KiB;  // smaller data is copied for keeping: a reference would hold a whole request buffer
constexpr Nanos kModeBelieved = 1 * kSecond;

struct PieceDone {
  uint64_t file_offset = 0, length = 0;
  uint32_t generation = 0;
  Result<void> result;
};

/// One piece to one object, until it is acknowledged or refused. kStaleGeneration: cut again by a newer layout.
class PieceWriter {
 public:
  PieceWriter(std::shared_ptr<Core> core, WriteJob job, GrantPtr grant, layout::Piece piece) : core_(std::move(core)), job_(std::move(job)), grant_(std::move(grant)), piece_(piece) {}

  Task<Result<void>> run() {
    object_ = ObjectId{job_.inode->ino, grant_->generation(), piece_.component, piece_.stripe};
    data_ = job_.data.slice(piece_.file_offset - job_.offset, piece_.length);
    target_ = core_->target(piece_.ost);
    if (!target_) {
      CO_CHECK_OK(co_await core_->mds.refresh_map(job_.op));
      target_ = core_->target(piece_.ost);
    }
    if (!target_) co_return Err(Errc::kIo, fmt::format("inode {} lies on ost{}, which is not in the cluster map", job_.inode->ino, piece_.ost));
    sums_ = wire::range_sums(object_, piece_.object_offset, data_.span());
    write_id_ = core_->next_write_id();
    for (;;) {
      auto raw = co_await target_->call(rpc::Method::kObjectWrite, request(), data_, {}, job_.op);
      if (!raw) {
        CO_CHECK_OK(co_await cure(std::move(raw).error()));
        continue;
      }
      CO_TRY(auto reply, decode<wire::ObjectWriteReplyT>(raw->body));
      target_->note(reply.stable, reply.incarnation);
      if (wseq_ == 0) job_.inode->wrote(object_, piece_.ost, reply);
      if (reply.is_stable) co_return Result<void>{};
      if (wseq_ != 0) co_return co_await target_->commit(0, job_.op);  // a resend: its number says nothing about stability
      if (reply.wseq <= reply.stable) co_return Result<void>{};
      if (target_->retain(reply.wseq, reply.incarnation, kept())) co_return Result<void>{};
      wseq_ = reply.wseq;  // the target has restarted since: what it acknowledged may be gone
    }
  }

 private:
  Bytes request() const {
    wire::ObjectWriteRequestT r;
    r.object = std::make_unique<schema::ObjectRef>(to_ref(object_));
    r.offset = piece_.object_offset;
    r.length = static_cast<uint32_t>(data_.size());
    r.sums = sums_;
    r.cap = std::make_unique<wire::CapabilityT>(grant_->cap);
    r.wseq = wseq_;
    r.write_id = write_id_;
    r.sync = job_.handle->flags() & (O_DSYNC | O_SYNC);
    return encode(r);
  }

  Retained kept() const {
    bool refer = job_.may_retain && data_.size() >= kReferFrom;
    return Retained{object_, piece_.object_offset, refer ? data_ : Buffer::copy_of(data_.span()), sums_, write_id_, job_.inode};
  }

  /// Success: try again. Otherwise the error to end with.
  Task<Result<void>> cure(Error why) {
    switch (why.code) {
      case Errc::kStale:
      case Errc::kStaleGeneration: co_return Err(Errc::kStaleGeneration, std::move(why.detail));
      case Errc::kCapExpired:
      case Errc::kCapInvalid:
      case Errc::kStaleEpoch: {
        if (++rights_retries_ > kMaxRightsRetries) co_return Err(std::move(why));
        GrantWanted wanted{.write = true, .offset = piece_.file_offset, .length = piece_.length, .refused = grant_};
        CO_TRY(GrantPtr fresh, co_await core_->granted(job_.inode, job_.handle, wanted, job_.op));
        if (fresh->generation() != grant_->generation()) co_return Err(Errc::kStaleGeneration);
        grant_ = std::move(fresh);
        co_return Result<void>{};
      }
      case Errc::kChecksum: {
        target_->count_checksum_error();
        log::error("{}: data for object {} at {} arrived damaged: {}", target_->name, object_, piece_.object_offset, why.message());
        if (checksum_retried_) co_return Err(Errc::kIo, fmt::format("{}: data for object {} at {} arrived damaged twice", target_->name, object_, piece_.object_offset));
        checksum_retried_ = true;
        co_return Result<void>{};
      }
      default: co_return Err(std::move(why));
    }
  }

  std::shared_ptr<Core> core_;
  WriteJob job_;
  GrantPtr grant_;
  layout::Piece piece_;
  ObjectId object_;
  Buffer data_;
  TargetPtr target_;
  std::vector<uint32_t> sums_;
  uint64_t write_id_ = 0, wseq_ = 0;
  int rights_retries_ = 0;
  bool checksum_retried_ = false;
};

Task<PieceDone> write_piece(std::shared_ptr<Core> core, WriteJob job, GrantPtr grant, layout::Piece piece) {
  PieceDone done{piece.file_offset, piece.length, grant->layout.generation, {}};
  PieceWriter writer(core, std::move(job), std::move(grant), piece);
  done.result = co_await writer.run();
  co_return done;
}

/// Keeps what this client retains within its limit: the target that holds most is asked to commit.
Task<void> relieve(std::shared_ptr<Core> core, OpPtr op) {
  for (int round = 0; round < 4 && core->retained_total.load() > core->options.retained && !op->cancelled(); ++round) {
    TargetPtr fullest;
    for (auto& t : core->targets())
      if (!fullest || t->retained_bytes() > fullest->retained_bytes()) fullest = t;
    if (!fullest || fullest->retained_bytes() == 0) co_return;
    co_await fullest->relieve(op);
  }
}
}  // namespace

Task<Result<uint64_t>> write_range(std::shared_ptr<Core> core, WriteJob job) {
  struct Range { uint64_t offset, length; uint32_t refused; };
  job.inode->ever_written.store(true);
  std::vector<Range> todo{{job.offset, job.data.size(), 0}};
  const uint64_t end = job.offset + job.data.size();
  uint64_t good_until = end;
  Error failure(Errc::kIo);
  auto failed = [&](uint64_t at, Error why) {
    if (at >= good_until) return;
    good_until = at;
    failure = std::move(why);
  };
  for (int round = 0; !todo.empty(); ++round) {
    std::vector<Task<PieceDone>> tasks;
    for (auto& range : todo) {
      GrantWanted wanted{.write = true, .offset = range.offset, .length = range.length, .refused_generation = range.refused};
      auto grant = round < kMaxLayoutRounds ? co_await core->granted(job.inode, job.handle, wanted, job.op)
                                            : Result<GrantPtr>(Err(Errc::kIo, "the file's layout keeps changing under this write"));
      auto pieces = grant ? layout::split((*grant)->layout, range.offset, range.length, kMaxIo) : Result<std::vector<layout::Piece>>(std::unexpected(grant.error()));
      if (!pieces) {
        failed(range.offset, std::move(pieces).error());
        continue;
      }
      for (auto& p : *pieces) tasks.push_back(write_piece(core, job, *grant, p));
    }
    todo.clear();
    std::vector<PieceDone> done;
    if (tasks.size() == 1) done.push_back(co_await std::move(tasks.front()));
    else done = co_await when_all(std::move(tasks));
    for (auto& d : done) {
      if (d.result) continue;
      if (d.result.error().code == Errc::kStaleGeneration) {
        todo.push_back({d.file_offset, d.length, d.generation});
        continue;
      }
      job.inode->mark_unsure();  // it may have been done all the same
      failed(d.file_offset, std::move(d.result).error());
    }
  }
  if (core->retained_total.load(std::memory_order_relaxed) > core->options.retained) co_await relieve(core, job.op);
  uint64_t written = good_until - job.offset;
  core->written_bytes.fetch_add(written, std::memory_order_relaxed);
  if (written == 0 && good_until != end) co_return Err(std::move(failure));
  co_return written;
}

/// The kernel says with each write of an unprivileged user that suid and sgid must go; file capabilities go with every
/// write, also of root (FUSE_HANDLE_KILLPRIV_V2 in linux/fuse.h). The server is only asked if what was seen last has such
/// marks, or was seen too long ago.
Task<Result<void>> FilesystemImpl::clear_privileges(FileHandlePtr file, bool suid_too, OpPtr op) {
  auto seen = file->inode()->seen();
  const bool may_have = suid_too ? seen.may_have_privileges() : seen.may_have_capability();
  if (!may_have && core_->clock().boot() - seen.at < kModeBelieved) co_return Result<void>{};
  wire::SetattrRequestT request;
  request.ino = file->ino().v;
  (suid_too ? request.kill_priv : request.kill_capability) = true;
  request.handle = file->number();
  CallExtra extra;
  extra.session = file->session();
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kSetattr>(std::move(request), op, std::move(extra)));
  (void)core_->shown(std::move(reply.attr));
  co_return Result<void>{};
}

Task<Result<WriteResult>> FilesystemImpl::write(HandlePtr handle, uint64_t offset, Buffer data, WriteOptions options, Caller caller) {
  auto file = as_file(handle);
  CO_CHECK_OK(may_change());
  if (file->is_directory() || (!file->writable() && !options.from_page_cache)) co_return Err(Errc::kBadF);
  if (data.empty()) co_return WriteResult{offset, 0};
  auto op = begin("write", std::move(caller));
  if (options.kill_priv || !options.from_page_cache) CO_CHECK_OK(co_await clear_privileges(file, options.kill_priv, op));
  WriteJob job{file->inode(), file, std::move(data), offset, options.may_retain, op};
  if ((file->flags() & O_APPEND) && !options.from_page_cache) co_return co_await append(std::move(job), offset);
  const uint64_t asked = job.data.size();
  if (options.from_page_cache) {
    // A page of a mapping reaches past the end of the file; what lies there was never the file's.
    CO_TRY(uint64_t size, co_await size_of(file->ino(), op));
    if (offset >= size) co_return WriteResult{offset, asked};
    job.data = job.data.slice(0, std::min<uint64_t>(asked, size - offset));
  }
  if (offset >= kMaxFileSize) co_return Err(Errc::kFBig);
  job.data = job.data.slice(0, std::min<uint64_t>(job.data.size(), kMaxFileSize - offset));
  const uint64_t want = job.data.size();
  CO_TRY(uint64_t written, co_await write_range(core_, std::move(job)));
  if (file->flags() & (O_DSYNC | O_SYNC)) {
    wire::SyncRequestT sync;
    sync.ino = file->ino().v;
    CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kSync>(std::move(sync), op));
  }
  co_return WriteResult{offset, options.from_page_cache && written == want ? asked : written};
}

namespace {
/// This client's turn to append to the file, from an `appending` that is held.
struct Turn {
  explicit Turn(InodePtr i) : inode(std::move(i)), guard(inode->appending) {}
  InodePtr inode;
  AsyncMutex::Guard guard;
};
using TurnPtr = std::shared_ptr<Turn>;

/// Gives the token back; also when nobody waits for the append any more. The next append of this client begins after it,
/// since the server gives one token per handle.
Task<void> end_append(std::shared_ptr<Core> core, Ino ino, uint64_t token, uint64_t size, TurnPtr) {
  auto op = make_op(core, "AppendEnd", Caller{});
  op->unlimited();
  wire::AppendEndRequestT request;
  request.ino = ino.v;
  request.token = token;
  request.size = size;
  (void)co_await core->mds.call<rpc::Method::kAppendEnd>(std::move(request), op);  // without the token there is nothing to give back
}
}  // namespace

Task<Result<WriteResult>> FilesystemImpl::append(WriteJob job, uint64_t asked_offset) {
  auto core = core_;
  auto inode = job.inode;
  auto op = job.op;
  CO_CHECK_OK(co_await inode->appending.lock(op->deadline(), Op::cancel(op)));
  auto turn = std::make_shared<Turn>(inode);
  wire::AppendBeginRequestT request;
  request.ino = inode->ino.v;
  request.handle = job.handle->number();
  request.length = job.data.size();
  CallExtra extra;
  extra.session = job.handle->session();
  extra.finish = true;
  extra.abandoned = [core, inode, turn](Result<rpc::Reply> reply) {
    auto begun = reply ? decode<wire::AppendBeginReplyT>(reply->body) : Result<wire::AppendBeginReplyT>(std::unexpected(reply.error()));
    if (begun) Loop::current()->spawn(end_append(core, inode->ino, begun->token, begun->size, turn));
  };
  CO_TRY(auto begun, co_await core->mds.call<rpc::Method::kAppendBegin>(std::move(request), op, std::move(extra)));
  core->appends_under_way.fetch_add(1);
  core->adopt(*inode, begun.layout.get(), begun.cap.get());
  job.offset = begun.size;
  Result<uint64_t> written = Err(Errc::kFBig);
  if (begun.size < kMaxFileSize) {
    job.data = job.data.slice(0, std::min<uint64_t>(job.data.size(), kMaxFileSize - begun.size));
    written = co_await write_range(core, job);
  }
  core->appends_under_way.fetch_sub(1);
  const uint64_t reached = begun.size + (written ? *written : 0);
  co_await end_append(core, inode->ino, begun.token, reached, turn);
  if (!written) co_return std::unexpected(std::move(written).error());
  if (job.handle->flags() & (O_DSYNC | O_SYNC)) {
    wire::SyncRequestT sync;
    sync.ino = inode->ino.v;
    CO_CHECK_OK(co_await core->mds.call<rpc::Method::kSync>(std::move(sync), op));
  }
  if (begun.size != asked_offset && core->options.hooks.size_grew) core->options.hooks.size_grew(inode->ino, reached);
  co_return WriteResult{begun.size, *written};
}

}  // namespace nacre::client
