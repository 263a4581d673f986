// SPDX-License-Identifier: Apache-2.0
// The life of a read: pieces by layout → all targets in parallel, straight into the caller's memory where it is aligned →
// sums verified → a piece that came back short asks the metadata server for the size: bytes below it are zeros, beyond is the
// end. What was short and turns out to lie below the size is read once more, since it may have been written in between.
#include <fcntl.h>

#include "client/core/filesystem_impl.h"
#include "common/layout/layout.h"
#include "common/log/log.h"
#include "common/wire/checksum.h"

namespace nacre::client {

namespace {
struct Part {
  layout::Piece piece;
  uint64_t got = 0;         // bytes of the file from piece.file_offset on that were read
  Result<void> result;
};

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// Every block of the payload against its sum; a missing sum means a hole.
Result<void> verify(const ObjectId& object, uint64_t first_block, std::span<const std::byte> payload, const std::vector<uint32_t>& sums) {
  size_t blocks = (payload.size() + kBlockSize - 1) / kBlockSize;
  if (sums.size() < blocks) return Err(Errc::kProtocol, "a read reply with fewer sums than blocks");
  for (size_t i = 0; i < blocks; ++i) {
    auto block = payload.subspan(i * kBlockSize, std::min<size_t>(kBlockSize, payload.size() - i * kBlockSize));
    bool good = sums[i] == 0 ? all_zero(block) : wire::block_sum(object, first_block + i, block) == sums[i];
    if (!good) return Err(Errc::kChecksum, fmt::format("block at {}", (first_block + i) * kBlockSize));
  }
  return {};
}

class PieceReader {
 public:
  PieceReader(std::shared_ptr<Core> core, FileHandlePtr handle, GrantPtr grant, layout::Piece piece, Buffer into, OpPtr op)
      : core_(std::move(core)), handle_(std::move(handle)), grant_(std::move(grant)), piece_(piece), into_(std::move(into)), op_(std::move(op)) {}

  /// Bytes read from the piece's start; fewer than its length = the object ends there.
  Task<Result<uint64_t>> run() {
    object_ = ObjectId{handle_->ino(), grant_->generation(), piece_.component, piece_.stripe};
    target_ = core_->target(piece_.ost);
    if (!target_) {
      CO_CHECK_OK(co_await core_->mds.refresh_map(op_));
      target_ = core_->target(piece_.ost);
    }
    if (!target_) co_return Err(Errc::kIo, fmt::format("inode {} lies on ost{}, which is not in the cluster map", handle_->ino(), piece_.ost));
    // The payload consists of whole blocks; if the piece does too, it is received where it belongs.
    const bool aligned = piece_.object_offset % kBlockSize == 0 && piece_.length % kBlockSize == 0;
    for (;;) {
      auto raw = co_await target_->call(rpc::Method::kObjectRead, request(), {}, aligned ? into_ : Buffer{}, op_);
      if (!raw) {
        CO_CHECK_OK(co_await cure(std::move(raw).error()));
        continue;
      }
      CO_TRY(auto reply, decode<wire::ObjectReadReplyT>(raw->body));
      target_->note(reply.stable, reply.incarnation);
      const uint64_t from = round_down(piece_.object_offset, kBlockSize), skip = piece_.object_offset - from;
      auto good = verify(object_, from / kBlockSize, raw->payload.span(), reply.sums);
      if (!good) {
        CO_CHECK_OK(damaged(std::move(good).error()));
        continue;
      }
      // The last block of the object comes whole: what lies past the object's end is not the file's.
      const uint64_t there = std::min<uint64_t>(from + raw->payload.size(), reply.size);
      const uint64_t got = there > piece_.object_offset ? std::min(there - piece_.object_offset, piece_.length) : 0;
      if (got && raw->payload.data() + skip != into_.data()) std::memcpy(into_.data(), raw->payload.data() + skip, got);
      co_return got;
    }
  }

 private:
  Bytes request() const {
    wire::ObjectReadRequestT r;
    r.object = std::make_unique<schema::ObjectRef>(to_ref(object_));
    r.offset = piece_.object_offset;
    r.length = static_cast<uint32_t>(piece_.length);
    r.cap = std::make_unique<wire::CapabilityT>(grant_->cap);
    return encode(r);
  }

  Task<Result<void>> cure(Error why) {
    if (why.code == Errc::kStale) co_return Err(Errc::kStaleGeneration, std::move(why.detail));
    if (why.code == Errc::kChecksum) co_return damaged(std::move(why));
    if (why.code != Errc::kCapExpired && why.code != Errc::kCapInvalid && why.code != Errc::kStaleEpoch) co_return Err(std::move(why));
    if (++rights_retries_ > kMaxRightsRetries) co_return Err(std::move(why));
    GrantWanted wanted{.write = false, .offset = piece_.file_offset, .length = piece_.length, .refused = grant_};
    CO_TRY(GrantPtr fresh, co_await core_->granted(handle_->inode(), handle_, wanted, op_));
    if (fresh->generation() != grant_->generation()) co_return Err(Errc::kStaleGeneration);
    grant_ = std::move(fresh);
    co_return Result<void>{};
  }

  /// Once more for damage on the way; the second time it lies on the disk.
  Result<void> damaged(Error why) {
    if (why.code != Errc::kChecksum) return std::unexpected(std::move(why));
    target_->count_checksum_error();
    log::error("{}: object {} (inode {}): checksum mismatch at {}: {}", target_->name, object_, handle_->ino(), piece_.object_offset, why.message());
    if (retried_) return Err(Errc::kIo, fmt::format("{}: object {} is damaged near {}", target_->name, object_, piece_.object_offset));
    retried_ = true;
    return {};
  }

  std::shared_ptr<Core> core_;
  FileHandlePtr handle_;
  GrantPtr grant_;
  layout::Piece piece_;
  Buffer into_;
  OpPtr op_;
  ObjectId object_;
  TargetPtr target_;
  int rights_retries_ = 0;
  bool retried_ = false;
};

Task<Part> read_piece(std::shared_ptr<Core> core, FileHandlePtr handle, GrantPtr grant, layout::Piece piece, Buffer into, OpPtr op) {
  Part part{piece, 0, {}};
  PieceReader reader(core, std::move(handle), std::move(grant), piece, std::move(into), std::move(op));
  auto got = co_await reader.run();
  if (got) part.got = *got;
  else part.result = std::unexpected(std::move(got).error());
  co_return part;
}

struct Round {
  std::vector<Part> parts;    // in file order
  bool complete = false;      // every byte of the range was read
  bool stale = false;         // a newer generation exists
  uint32_t generation = 0;
};

/// Reads [offset, offset + into.size()) once, by the layout known now. Bytes that no object has are left alone.
Task<Result<Round>> read_once(std::shared_ptr<Core> core, FileHandlePtr handle, uint64_t offset, Buffer into, uint32_t refused, OpPtr op) {
  GrantWanted wanted{.write = false, .offset = offset, .length = into.size(), .refused_generation = refused};
  CO_TRY(GrantPtr grant, co_await core->granted(handle->inode(), handle, wanted, op));
  if (!grant->reaches(offset, into.size())) {
    // A component that isn't instantiated as far as we know may be by now.
    wanted.force = true;
    CO_TRY(grant, co_await core->granted(handle->inode(), handle, wanted, op));
  }
  CO_TRY(auto pieces, layout::split(grant->layout, offset, into.size(), kMaxIo));
  Round round;
  round.generation = grant->layout.generation;
  if (pieces.size() == 1) {
    auto& p = pieces.front();
    round.parts.push_back(co_await read_piece(core, handle, grant, p, into.slice(p.file_offset - offset, p.length), op));
  } else {
    std::vector<Task<Part>> tasks;
    for (auto& p : pieces) tasks.push_back(read_piece(core, handle, grant, p, into.slice(p.file_offset - offset, p.length), op));
    round.parts = co_await when_all(std::move(tasks));
  }
  uint64_t covered = 0;
  for (auto& p : round.parts) {
    if (!p.result && p.result.error().code == Errc::kStaleGeneration) {
      round.stale = true;
      co_return round;
    }
    if (!p.result) co_return std::unexpected(std::move(p.result).error());
    covered += p.got;
  }
  round.complete = covered == into.size();
  co_return round;
}

/// Zeros wherever the parts left [offset, end) unread.
void fill_holes(const Round& round, uint64_t offset, uint64_t end, Buffer into) {
  uint64_t at = offset;
  auto zero = [&](uint64_t from, uint64_t to) {
    if (from < to) std::memset(into.data() + (from - offset), 0, to - from);
  };
  for (auto& p : round.parts) {
    zero(at, std::min(p.piece.file_offset, end));
    at = std::max(at, std::min(p.piece.file_offset + p.got, end));
  }
  zero(at, end);
}
}  // namespace

Task<Result<uint64_t>> read_range(std::shared_ptr<Core> core, FileHandlePtr handle, uint64_t offset, Buffer into, OpPtr op) {
  uint32_t refused = 0;
  uint64_t known_size = 0;    // once the size was asked for: what lies below it must be read again to be a hole
  bool asked = false;
  for (int attempt = 0; attempt < kMaxLayoutRounds; ++attempt) {
    CO_TRY(Round round, co_await read_once(core, handle, offset, into, refused, op));
    if (round.stale) {
      refused = round.generation;
      continue;
    }
    if (round.complete) co_return into.size();
    if (asked) {
      const uint64_t end = std::min(offset + into.size(), known_size);
      fill_holes(round, offset, end, into);
      co_return end - offset;
    }
    wire::GetattrRequestT request;
    request.ino = handle->ino().v;
    CO_TRY(auto reply, co_await core->mds.call<rpc::Method::kGetattr>(std::move(request), op));
    if (!reply.attr) co_return Err(Errc::kProtocol, "a Getattr reply without attributes");
    known_size = core->shown(std::move(reply.attr)).size;
    if (known_size <= offset) co_return 0;
    const uint64_t end = std::min(offset + into.size(), known_size);
    uint64_t at = offset;
    for (auto& p : round.parts) {
      if (p.piece.file_offset != at) break;
      at += p.got;
      if (p.got < p.piece.length) break;
    }
    if (at >= end) co_return end - offset;
    asked = true;
  }
  co_return Err(Errc::kIo, fmt::format("inode {}: the file's layout keeps changing under this read", handle->ino()));
}

Task<Result<uint64_t>> FilesystemImpl::size_of(Ino ino, OpPtr op) {
  wire::GetattrRequestT request;
  request.ino = ino.v;
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kGetattr>(std::move(request), op));
  if (!reply.attr) co_return Err(Errc::kProtocol, "a Getattr reply without attributes");
  co_return core_->shown(std::move(reply.attr)).size;
}

Task<Result<uint64_t>> FilesystemImpl::read(HandlePtr handle, uint64_t offset, Buffer into, Caller caller) {
  auto file = as_file(handle);
  if (file->is_directory()) co_return Err(Errc::kIsDir);
  // A page of a mapping is read through whatever handle the kernel has at hand, so the access mode is its business.
  if (into.empty() || offset >= kMaxFileSize) co_return 0;
  if (into.size() > kMaxFileSize - offset) into = into.slice(0, kMaxFileSize - offset);
  auto op = begin("read", std::move(caller));
  auto got = co_await read_range(core_, file, offset, into, op);
  if (!got) co_return got;
  core_->read_bytes.fetch_add(*got, std::memory_order_relaxed);
  if (core_->options.atime && !core_->options.read_only && !(file->flags() & O_NOATIME)) {
    Nanos now = core_->mds.now();
    auto seen = file->inode()->seen();
    if (relatime_moves(std::max(seen.atime, core_->atimes.of(file->ino())), seen.mtime, seen.ctime, now) && core_->atimes.add(file->ino(), now)) file->inode()->set_atime(now);
  }
  co_return got;
}

}  // namespace nacre::client
