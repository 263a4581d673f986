// SPDX-License-Identifier: Apache-2.0
// The ioctl of ioctl.h. The kernel proves who asks; the core says which methods are for users.
#include <cstring>
#include <memory>

#include "client/fuse/ioctl.h"
#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

struct IoctlOut { fuse_ioctl_out head; IoctlCall call; };

/// One page of the descriptor's answer.
void page(IoctlCall& call, const Bytes& answer, uint32_t offset) {
  call.total = static_cast<uint32_t>(answer.size());
  call.size = std::min<uint32_t>(kIoctlData, static_cast<uint32_t>(answer.size()) - offset);
  std::memcpy(call.data, answer.data() + offset, call.size);
}

void refuse(IoctlCall& call, const Error& e) {
  const std::string detail = e.message();
  call.status = static_cast<uint16_t>(e.code);
  call.size = static_cast<uint32_t>(std::min<size_t>(kIoctlData, detail.size()));
  call.total = call.size;
  std::memcpy(call.data, detail.data(), call.size);
}

Task<void> ioctl(Front& f, RequestPtr r, OpenFile* file, std::unique_ptr<IoctlOut> io) {
  IoctlCall& call = io->call;
  const uint32_t offset = call.offset;
  Bytes body(call.data, call.data + call.size);
  std::memset(call.data, 0, sizeof call.data);
  call.size = call.total = 0;
  call.status = 0;
  if (offset == 0) {
    auto answer = Result<Bytes>();
    if (call.method == kIoctlClientStatus) answer = as_bytes(f.status_json());
    else answer = co_await f.fs().call_method(call.method, std::move(body), r->caller());
    if (answer) {
      std::lock_guard lock(file->mutex);
      file->answer = std::move(*answer);
      page(call, file->answer, 0);
    } else {
      refuse(call, answer.error());
    }
  } else {
    std::lock_guard lock(file->mutex);
    if (offset <= file->answer.size()) page(call, file->answer, offset);
    else refuse(call, Error(Errc::kInval, "the offset lies beyond the answer kept for this descriptor"));
    if (offset + call.size >= file->answer.size()) file->answer = {};
  }
  r->value(*io);
}

void on_ioctl(fuse_req_t req, fuse_ino_t, unsigned cmd, void*, fuse_file_info* fi, unsigned flags, const void* in, size_t in_size, size_t out_size) {
  Front& f = front_of(req);
  if (cmd != static_cast<unsigned>(kIoctlRequest) || (flags & FUSE_IOCTL_COMPAT)) return begin(req)->error(ENOTTY);
  if (in_size != sizeof(IoctlCall) || out_size != sizeof(IoctlCall) || fi->fh == 0) return begin(req)->error(EINVAL);
  auto io = std::make_unique<IoctlOut>();
  std::memcpy(&io->call, in, sizeof io->call);
  if (io->call.magic != kIoctlMagic || io->call.size > kIoctlData) return begin(req)->error(EINVAL);
  start(ioctl(f, begin(req), from_fh(fi->fh), std::move(io)));
}

}  // namespace

void tool_operations(fuse_lowlevel_ops& ops) { ops.ioctl = on_ioctl; }

}  // namespace nacre::fuse
