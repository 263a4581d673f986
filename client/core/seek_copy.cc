// SPDX-License-Identifier: Apache-2.0
// lseek(SEEK_DATA, SEEK_HOLE) over stripes, and copy_file_range. Every stripe of a component is asked for its first data or
// hole at or after its part of the offset; the nearest, translated back to the file, is the answer.
#include "client/core/filesystem_impl.h"
#include "common/layout/layout.h"

namespace nacre::client {

namespace {
constexpr uint64_t kNowhere = UINT64_MAX;

/// File offset of byte `at` of an object; kNowhere beyond the component.
uint64_t file_position(const schema::ComponentT& c, uint16_t stripe, uint64_t at) {
  uint64_t end = layout::file_end(c, stripe, at + 1), position = end - 1;
  // file_end() stops at the component's end; a position that doesn't lead back to `at` lies beyond it.
  return layout::object_end(c, stripe, end) == at + 1 ? position : kNowhere;
}

struct StripeSeek {
  std::shared_ptr<Core> core;
  FileHandlePtr handle;
  GrantPtr grant;
  uint16_t component = 0, stripe = 0;
  uint64_t from = 0;      // object offset
  bool hole = false;
  OpPtr op;
};

/// The first data or hole of one stripe, as a file offset; kNowhere if there is none in the component.
Task<Result<uint64_t>> seek_stripe(StripeSeek s) {
  const auto& c = *s.grant->layout.components[s.component];
  const uint64_t first = file_position(c, s.stripe, s.from);
  if (first == kNowhere) co_return kNowhere;
  if (s.stripe >= c.stripes_used) co_return s.hole ? first : kNowhere;
  auto target = s.core->target(OstId(c.osts[s.stripe]));
  if (!target) co_return Err(Errc::kIo, fmt::format("inode {} lies on ost{}, which is not in the cluster map", s.handle->ino(), c.osts[s.stripe]));
  for (int attempt = 0;; ++attempt) {
    wire::ObjectSeekRequestT request;
    request.object = std::make_unique<schema::ObjectRef>(to_ref(ObjectId{s.handle->ino(), s.grant->generation(), s.component, s.stripe}));
    request.offset = s.from;
    request.hole = s.hole;
    request.cap = std::make_unique<wire::CapabilityT>(s.grant->cap);
    auto raw = co_await target->call(rpc::Method::kObjectSeek, encode(request), {}, {}, s.op);
    if (!raw) {
      Error why = std::move(raw).error();
      if (why.code == Errc::kStale) why.code = Errc::kStaleGeneration;
      bool rights = why.code == Errc::kCapExpired || why.code == Errc::kCapInvalid || why.code == Errc::kStaleEpoch;
      if (!rights || attempt > 2) co_return Err(std::move(why));
      CO_TRY(GrantPtr fresh, co_await s.core->granted(s.handle->inode(), s.handle, GrantWanted{.refused = s.grant}, s.op));
      if (fresh->generation() != s.grant->generation()) co_return Err(Errc::kStaleGeneration);
      s.grant = std::move(fresh);
      continue;
    }
    CO_TRY(auto reply, decode<wire::ObjectSeekReplyT>(raw->body));
    if (reply.found) co_return reply.offset >= s.from ? file_position(c, s.stripe, reply.offset) : first;
    // No data after it; or no hole inside the object, then its end is one.
    co_return s.hole ? file_position(c, s.stripe, std::max(s.from, reply.size)) : kNowhere;
  }
}

Task<Result<uint64_t>> seek_component(std::shared_ptr<Core> core, FileHandlePtr handle, GrantPtr grant, uint16_t index, uint64_t offset, bool hole, OpPtr op) {
  const auto& c = *grant->layout.components[index];
  const uint64_t at = std::max(offset, c.start);
  if (!c.instantiated) co_return hole ? at : kNowhere;
  std::vector<Task<Result<uint64_t>>> tasks;
  for (size_t s = 0; s < c.osts.size(); ++s) {
    uint16_t stripe = static_cast<uint16_t>(s);
    tasks.push_back(seek_stripe({core, handle, grant, index, stripe, layout::object_end(c, stripe, at), hole, op}));
  }
  uint64_t nearest = kNowhere;
  for (auto& found : co_await when_all(std::move(tasks))) {
    if (!found) co_return found;
    if (*found != kNowhere && *found >= at) nearest = std::min(nearest, *found);
  }
  co_return nearest;
}
}  // namespace

Task<Result<uint64_t>> FilesystemImpl::lseek(HandlePtr handle, uint64_t offset, Seek whence, Caller caller) {
  auto file = as_file(handle);
  if (file->is_directory()) co_return Err(Errc::kInval);
  auto op = begin("lseek", std::move(caller));
  const bool hole = whence == Seek::kHole;
  CO_TRY(uint64_t size, co_await size_of(file->ino(), op));
  if (offset >= size) co_return Err(Errc::kNxio);
  uint32_t refused = 0;
  for (int round = 0; round < kMaxLayoutRounds; ++round) {
    // Always asked for: components and stripes may have come into use through somebody else.
    GrantWanted wanted{.write = false, .offset = offset, .length = size - offset, .refused_generation = refused, .force = true};
    CO_TRY(GrantPtr grant, co_await core_->granted(file->inode(), file, wanted, op));
    bool again = false;
    for (size_t i = layout::component_at(grant->layout, offset); i < grant->layout.components.size(); ++i) {
      if (grant->layout.components[i]->start >= size) break;
      auto found = co_await seek_component(core_, file, grant, static_cast<uint16_t>(i), offset, hole, op);
      if (!found && found.error().code == Errc::kStaleGeneration) {
        refused = grant->layout.generation;
        again = true;
        break;
      }
      if (!found) co_return found;
      if (*found != kNowhere && *found < size) co_return *found;
      if (*found != kNowhere) break;
    }
    if (again) continue;
    if (hole) co_return size;  // the end of the file is a hole
    co_return Err(Errc::kNxio);
  }
  co_return Err(Errc::kIo, fmt::format("inode {}: the file's layout keeps changing under this seek", file->ino()));
}

Task<Result<uint64_t>> FilesystemImpl::copy_file_range(HandlePtr in, HandlePtr out, CopyArgs args, Caller caller) {
  CO_CHECK_OK(may_change());
  auto source = as_file(in), target = as_file(out);
  if (source->is_directory() || target->is_directory()) co_return Err(Errc::kIsDir);
  if (!source->readable() || !target->writable()) co_return Err(Errc::kBadF);
  if (args.in_offset > kMaxFileSize || args.out_offset > kMaxFileSize) co_return Err(Errc::kFBig);
  uint64_t length = std::min({args.length, kMaxFileSize - args.in_offset, kMaxFileSize - args.out_offset});
  if (source->ino() == target->ino() && length > 0 && args.in_offset < args.out_offset + length && args.out_offset < args.in_offset + length)
    co_return Err(Errc::kInval, "copy_file_range(2): the ranges overlap in one file");
  uint64_t copied = 0;
  while (copied < length) {
    auto op = begin("copy_file_range", caller);
    auto buffer = Buffer::allocate(std::min(length - copied, kMaxIo)).slice(0, std::min(length - copied, kMaxIo));
    auto got = co_await read_range(core_, source, args.in_offset + copied, buffer, op);
    if (!got || *got == 0) {
      if (!got && copied == 0) co_return got;
      break;
    }
    WriteJob job{target->inode(), target, buffer.slice(0, *got), args.out_offset + copied, true, op};
    auto written = co_await write_range(core_, std::move(job));
    if (!written) {
      if (copied == 0) co_return written;
      break;
    }
    copied += *written;
    if (*written < *got || *got < buffer.size()) break;
  }
  co_return copied;
}

}  // namespace nacre::client
