// SPDX-License-Identifier: Apache-2.0
// Open files: creating, opening, data, durability.
#include <fcntl.h>

#include <string>

#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

/// Smaller writes are copied out of the read buffer into one of their size, which the core may keep: this costs less than
/// keeping a buffer of 1 MiB for them would.
constexpr size_t kCopyBelow = 128 * 1024;
/// A copy within the servers is cut here, so that it can be interrupted and others get their turn; callers go on by themselves.
constexpr uint64_t kMaxCopy = 64ull << 20;

struct CreateOut { fuse_entry_out entry; fuse_open_out open; };

fuse_open_out open_out(Front& f, client::HandlePtr handle, uint32_t flags) {
  fuse_open_out o{};
  o.fh = to_fh(new OpenFile(f, std::move(handle)));
  o.open_flags = f.compat().open_flags(flags);
  return o;
}

Task<void> create(Front& f, RequestPtr r, Ino parent, std::string name, uint32_t mode, uint32_t flags) {
  auto o = co_await f.fs().create(parent, std::move(name), mode, r->umask(), flags, r->caller());
  if (!o) {
    r->error(o.error());
    co_return;
  }
  r->value(CreateOut{entry_out(o->attr, f.nodeid(o->attr.ino)), open_out(f, o->handle, flags)});
}
void on_create(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(create(f, begin(req), f.ino(parent), name, mode, static_cast<uint32_t>(fi->flags)));
}

Task<void> open(Front& f, RequestPtr r, Ino ino, uint32_t flags) {
  auto o = co_await f.fs().open(ino, flags, r->caller());
  if (o) r->value(open_out(f, o->handle, flags));
  else r->error(o.error());
}
void on_open(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(open(f, begin(req), f.ino(ino), static_cast<uint32_t>(fi->flags)));
}

Task<void> read(Front& f, RequestPtr r, client::HandlePtr file, uint64_t offset, size_t size) {
  Buffer into = r->answer_buffer(size);
  auto n = co_await f.fs().read(std::move(file), offset, into, r->caller());
  if (!n) r->error(n.error());
  else if (*n > size) r->error(EIO);
  else r->data(into.span().first(*n));
}
void on_read(fuse_req_t req, fuse_ino_t, size_t size, off_t offset, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(read(f, begin(req), handle_of(fi->fh), static_cast<uint64_t>(offset), size));
}

Task<void> write(Front& f, RequestPtr r, client::HandlePtr file, uint64_t offset, Buffer data, client::WriteOptions options) {
  auto w = co_await f.fs().write(std::move(file), offset, std::move(data), options, r->caller());
  if (!w) {
    r->error(w.error());
    co_return;
  }
  fuse_write_out out{};
  out.size = static_cast<uint32_t>(w->written);
  r->value(out);
}
void on_write(fuse_req_t req, fuse_ino_t, const char* bytes, size_t size, off_t offset, fuse_file_info* fi) {
  Front& f = front_of(req);
  const Incoming& in = incoming();
  const auto* at = reinterpret_cast<const std::byte*>(bytes);
  if (at + size > in.bytes.data() + in.bytes.size()) return begin(req)->error(EIO);
  client::WriteOptions options;
  options.kill_priv = (arguments<fuse_write_in>().write_flags & FUSE_WRITE_KILL_SUIDGID) != 0;
  options.from_page_cache = fi->writepage != 0;
  Buffer data;
  if (size < kCopyBelow) {
    data = Buffer::copy_of({at, size});
    options.may_retain = true;
  } else {
    data = in.memory.slice(static_cast<size_t>(at - in.memory.data()), size);
    options.may_retain = in.retainable;
  }
  start(write(f, begin(req), handle_of(fi->fh), static_cast<uint64_t>(offset), std::move(data), options));
}

Task<void> flush(Front& f, RequestPtr r, client::HandlePtr file, uint64_t owner) { answer(r, co_await f.fs().flush(std::move(file), owner, r->caller())); }
void on_flush(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(flush(f, begin(req), handle_of(fi->fh), fi->lock_owner));
}

Task<void> release(Front& f, RequestPtr r, std::unique_ptr<OpenFile> file, uint64_t flock_owner) {
  // The kernel ignores the answer; nothing may come after it.
  (void)co_await f.fs().release(std::move(file->handle), flock_owner);
  file.reset();
  r->error(0);
}
void on_release(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(release(f, begin(req), std::unique_ptr<OpenFile>(from_fh(fi->fh)), fi->flock_release ? fi->lock_owner : 0));
}

Task<void> fsync(Front& f, RequestPtr r, client::HandlePtr file, bool data_only) { answer(r, co_await f.fs().fsync(std::move(file), data_only, r->caller())); }
void on_fsync(fuse_req_t req, fuse_ino_t, int data_only, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(fsync(f, begin(req), handle_of(fi->fh), data_only != 0));
}

Task<void> fallocate(Front& f, RequestPtr r, client::HandlePtr file, uint32_t mode, uint64_t offset, uint64_t length) {
  answer(r, co_await f.fs().fallocate(std::move(file), mode, offset, length, r->caller()));
}
void on_fallocate(fuse_req_t req, fuse_ino_t, int mode, off_t offset, off_t length, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(fallocate(f, begin(req), handle_of(fi->fh), static_cast<uint32_t>(mode), static_cast<uint64_t>(offset), static_cast<uint64_t>(length)));
}

Task<void> lseek(Front& f, RequestPtr r, client::HandlePtr file, uint64_t offset, client::Seek whence) {
  auto at = co_await f.fs().lseek(std::move(file), offset, whence, r->caller());
  if (at) r->value(fuse_lseek_out{*at});
  else r->error(at.error());
}
void on_lseek(fuse_req_t req, fuse_ino_t, off_t offset, int whence, fuse_file_info* fi) {
  Front& f = front_of(req);
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return begin(req)->error(EINVAL);
  start(lseek(f, begin(req), handle_of(fi->fh), static_cast<uint64_t>(offset), whence == SEEK_DATA ? client::Seek::kData : client::Seek::kHole));
}

struct CopyRequest {
  client::HandlePtr in, out;
  client::CopyArgs args;
  bool wide = false;  ///< answered with 64 bits
};
Task<void> copy_file_range(Front& f, RequestPtr r, CopyRequest c) {
  c.args.length = std::min(c.args.length, kMaxCopy);
  auto n = co_await f.fs().copy_file_range(std::move(c.in), std::move(c.out), c.args, r->caller());
  if (!n) {
    r->error(n.error());
  } else if (c.wide) {
    r->value(kernel::CopyFileRangeOut{*n});
  } else {
    fuse_write_out out{};
    out.size = static_cast<uint32_t>(*n);
    r->value(out);
  }
}
void on_copy_file_range(fuse_req_t req, fuse_ino_t, off_t in_offset, fuse_file_info* in, fuse_ino_t, off_t out_offset, fuse_file_info* out, size_t length, int flags) {
  Front& f = front_of(req);
  if (flags != 0) return begin(req)->error(EINVAL);
  start(copy_file_range(f, begin(req), {handle_of(in->fh), handle_of(out->fh), {static_cast<uint64_t>(in_offset), static_cast<uint64_t>(out_offset), length}}));
}

}  // namespace

OpenFile::OpenFile(Front& f, client::HandlePtr h) : front(f), handle(std::move(h)), directory(handle->is_directory()) { front.opened(this); }
OpenFile::~OpenFile() { front.released(this); }

void on_tmpfile(Front& f) {
  RequestPtr r = begin(f, nullptr, arguments<fuse_create_in>().umask);
  fuse_in_header h;
  std::memcpy(&h, incoming().bytes.data(), sizeof h);
  const auto in = arguments<fuse_create_in>();
  if (incoming().bytes.size() < sizeof h + sizeof in) return r->error(EIO);
  start(create(f, std::move(r), f.ino(h.nodeid), "", in.mode, in.flags | O_TMPFILE));
}

void on_copy_file_range_64(Front& f) {
  RequestPtr r = begin(f, nullptr);
  const auto in = arguments<fuse_copy_file_range_in>();
  if (incoming().bytes.size() < sizeof(fuse_in_header) + sizeof in) return r->error(EIO);
  if (in.flags != 0) return r->error(EINVAL);
  start(copy_file_range(f, std::move(r), {handle_of(in.fh_in), handle_of(in.fh_out), {in.off_in, in.off_out, in.len}, true}));
}

void file_operations(fuse_lowlevel_ops& ops) {
  ops.create = on_create;
  ops.open = on_open;
  ops.read = on_read;
  ops.write = on_write;
  ops.flush = on_flush;
  ops.release = on_release;
  ops.fsync = on_fsync;
  ops.fallocate = on_fallocate;
  ops.lseek = on_lseek;
  ops.copy_file_range = on_copy_file_range;
}

}  // namespace nacre::fuse
