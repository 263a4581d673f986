// SPDX-License-Identifier: Apache-2.0
// What the operations share. Each callback of libfuse takes what it needs out of its arguments (they are overwritten after it has
// returned) and starts a coroutine that calls the core and answers.
#pragma once
#include <mutex>
#include <utility>

#include "client/fuse/convert.h"
#include "client/fuse/front.h"
#include "client/fuse/request.h"

namespace nacre::fuse {

/// A page of names of which the kernel has taken only a part, because it asks for less at a time than a trip is worth. Goes on
/// where the kernel goes on; a listing that starts again, or anywhere else, fetches anew. Attributes never wait here.
struct Listing {
  wire::ReaddirReplyT page;
  size_t next = 0;        ///< entry of `page` to hand out next
  uint64_t position = 0;  ///< cookie of the last entry handed out, 0 = none
};

/// What the kernel's file handles point at. The kernel names one only between its open and its release.
struct OpenFile {
  Front& front;
  client::HandlePtr handle;
  const bool directory;
  std::mutex mutex;
  Bytes answer;           ///< of the last ioctl on this descriptor, fetched in pages; guarded by mutex
  std::optional<Listing> listing;  ///< directories; guarded by mutex
  OpenFile(Front& f, client::HandlePtr h);
  ~OpenFile();
};
inline uint64_t to_fh(OpenFile* f) { return reinterpret_cast<uint64_t>(f); }
inline OpenFile* from_fh(uint64_t fh) { return reinterpret_cast<OpenFile*>(fh); }
/// The core's handle of a kernel handle, null for none.
inline client::HandlePtr handle_of(uint64_t fh) { return fh == 0 ? nullptr : from_fh(fh)->handle; }

/// The message being dispatched on this thread, for what libfuse doesn't pass on.
const Incoming& incoming();
/// Argument struct of the message being dispatched; zeros where the kernel sent a shorter one.
template <class T>
T arguments() {
  T t{};
  const auto bytes = incoming().bytes.subspan(sizeof(fuse_in_header));
  std::memcpy(&t, bytes.data(), std::min(sizeof t, bytes.size()));
  return t;
}

inline Front& front_of(fuse_req_t req) { return *static_cast<Front*>(fuse_req_userdata(req)); }
/// Begins a request; `req` null for those libfuse doesn't know.
RequestPtr begin(Front& front, fuse_req_t req, uint32_t umask = 0);
inline RequestPtr begin(fuse_req_t req) { return begin(front_of(req), req, fuse_req_ctx(req)->umask); }
inline void start(Task<void> t) { Loop::current()->spawn(std::move(t)); }

/// Answers with the error, or with success and no data.
inline void answer(const RequestPtr& r, const Result<void>& result) {
  if (result) r->error(0);
  else r->error(result.error());
}

void name_operations(fuse_lowlevel_ops& ops);       ///< lookup, mknod, mkdir, symlink, unlink, rmdir, rename, link, readlink
void attribute_operations(fuse_lowlevel_ops& ops);  ///< getattr, setattr, access, statfs, xattrs
void file_operations(fuse_lowlevel_ops& ops);       ///< create, open, read, write, flush, release, fsync, fallocate, lseek, copy
void directory_operations(fuse_lowlevel_ops& ops);  ///< opendir, readdir, readdirplus, releasedir, fsyncdir
void lock_operations(fuse_lowlevel_ops& ops);       ///< getlk, setlk, flock
void tool_operations(fuse_lowlevel_ops& ops);       ///< ioctl

// Operations that libfuse 3.14 doesn't know. Each checks the message's size.
void on_tmpfile(Front& front);
void on_statx(Front& front);
void on_copy_file_range_64(Front& front);
/// Set while a SETXATTR is dispatched whose extended header asked for it.
bool& kill_sgid_of_message();

}  // namespace nacre::fuse
