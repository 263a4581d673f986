// SPDX-License-Identifier: Apache-2.0
// POSIX record locks and flock, cluster-wide. A waiting lock is a coroutine; the kernel's INTERRUPT cancels it.
#include <fcntl.h>
#include <sys/file.h>

#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

constexpr uint64_t kToTheEnd = INT64_MAX;
constexpr uint8_t kRead = 0, kWrite = 1, kFree = 2;

uint8_t to_type(int type) { return type == F_RDLCK ? kRead : type == F_WRLCK ? kWrite : kFree; }

wire::LockSpecT to_spec(const struct flock& l, uint64_t owner) {
  wire::LockSpecT s;
  s.owner = owner;
  s.type = to_type(l.l_type);
  s.start = static_cast<uint64_t>(l.l_start);
  s.end = l.l_len == 0 ? kToTheEnd : static_cast<uint64_t>(l.l_start) + static_cast<uint64_t>(l.l_len) - 1;
  s.pid = static_cast<uint32_t>(l.l_pid);
  return s;
}

Task<void> getlk(Front& f, RequestPtr r, client::HandlePtr file, wire::LockSpecT spec) {
  auto found = co_await f.fs().lock_test(std::move(file), std::move(spec), r->caller());
  if (!found) {
    r->error(found.error());
    co_return;
  }
  fuse_lk_out out{};
  out.lk.type = found->type == kRead ? F_RDLCK : found->type == kWrite ? F_WRLCK : F_UNLCK;
  if (found->type != kFree) {
    out.lk.start = found->start;
    out.lk.end = found->end;
    out.lk.pid = found->pid;
  }
  r->value(out);
}
void on_getlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock) {
  Front& f = front_of(req);
  start(getlk(f, begin(req), handle_of(fi->fh), to_spec(*lock, fi->lock_owner)));
}

Task<void> set(Front& f, RequestPtr r, client::HandlePtr file, wire::LockSpecT spec, bool wait) {
  answer(r, co_await f.fs().lock_set(std::move(file), std::move(spec), wait, r->caller()));
}
void on_setlk(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, struct flock* lock, int sleep) {
  Front& f = front_of(req);
  start(set(f, begin(req), handle_of(fi->fh), to_spec(*lock, fi->lock_owner), sleep != 0));
}

void on_flock(fuse_req_t req, fuse_ino_t, fuse_file_info* fi, int op) {
  Front& f = front_of(req);
  wire::LockSpecT s;
  s.flock = true;
  s.owner = fi->lock_owner;
  s.end = kToTheEnd;
  s.type = (op & LOCK_UN) ? kFree : (op & LOCK_EX) ? kWrite : kRead;
  start(set(f, begin(req), handle_of(fi->fh), std::move(s), (op & LOCK_NB) == 0));
}

}  // namespace

void lock_operations(fuse_lowlevel_ops& ops) {
  ops.getlk = on_getlk;
  ops.setlk = on_setlk;
  ops.flock = on_flock;
}

}  // namespace nacre::fuse
