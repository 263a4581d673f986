// SPDX-License-Identifier: Apache-2.0
// Operations on names.
#include <string>

#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

void answer_entry(Front& f, const RequestPtr& r, const Result<client::Attr>& a) {
  if (a) r->value(entry_out(*a, f.nodeid(a->ino)));
  else r->error(a.error());
}

Task<void> lookup(Front& f, RequestPtr r, Ino parent, std::string name) {
  auto a = co_await f.fs().lookup(parent, std::move(name), r->caller());
  answer_entry(f, r, a);
}
void on_lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Front& f = front_of(req);
  start(lookup(f, begin(req), f.ino(parent), name));
}

Task<void> mknod(Front& f, RequestPtr r, Ino parent, std::string name, uint32_t mode, uint64_t rdev) {
  auto a = co_await f.fs().mknod(parent, std::move(name), mode, r->umask(), rdev, r->caller());
  answer_entry(f, r, a);
}
void on_mknod(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode, dev_t rdev) {
  Front& f = front_of(req);
  start(mknod(f, begin(req), f.ino(parent), name, mode, rdev));
}

Task<void> mkdir(Front& f, RequestPtr r, Ino parent, std::string name, uint32_t mode) {
  auto a = co_await f.fs().mkdir(parent, std::move(name), mode, r->umask(), r->caller());
  answer_entry(f, r, a);
}
void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char* name, mode_t mode) {
  Front& f = front_of(req);
  start(mkdir(f, begin(req), f.ino(parent), name, mode));
}

Task<void> symlink(Front& f, RequestPtr r, Ino parent, std::string name, std::string target) {
  auto a = co_await f.fs().symlink(parent, std::move(name), std::move(target), r->caller());
  answer_entry(f, r, a);
}
void on_symlink(fuse_req_t req, const char* target, fuse_ino_t parent, const char* name) {
  Front& f = front_of(req);
  start(symlink(f, begin(req), f.ino(parent), name, target));
}

Task<void> unlink(Front& f, RequestPtr r, Ino parent, std::string name) { answer(r, co_await f.fs().unlink(parent, std::move(name), r->caller())); }
void on_unlink(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Front& f = front_of(req);
  start(unlink(f, begin(req), f.ino(parent), name));
}

Task<void> rmdir(Front& f, RequestPtr r, Ino parent, std::string name) { answer(r, co_await f.fs().rmdir(parent, std::move(name), r->caller())); }
void on_rmdir(fuse_req_t req, fuse_ino_t parent, const char* name) {
  Front& f = front_of(req);
  start(rmdir(f, begin(req), f.ino(parent), name));
}

Task<void> rename(Front& f, RequestPtr r, client::RenameArgs args) { answer(r, co_await f.fs().rename(std::move(args), r->caller())); }
void on_rename(fuse_req_t req, fuse_ino_t parent, const char* name, fuse_ino_t new_parent, const char* new_name, unsigned flags) {
  Front& f = front_of(req);
  start(rename(f, begin(req), client::RenameArgs{f.ino(parent), name, f.ino(new_parent), new_name, flags}));
}

Task<void> link(Front& f, RequestPtr r, Ino ino, Ino parent, std::string name) {
  auto a = co_await f.fs().link(ino, parent, std::move(name), r->caller());
  answer_entry(f, r, a);
}
void on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Front& f = front_of(req);
  start(link(f, begin(req), f.ino(ino), f.ino(parent), name));
}

Task<void> readlink(Front& f, RequestPtr r, Ino ino) {
  auto target = co_await f.fs().readlink(ino, r->caller());
  if (target) r->text(*target);
  else r->error(target.error());
}
void on_readlink(fuse_req_t req, fuse_ino_t ino) {
  Front& f = front_of(req);
  start(readlink(f, begin(req), f.ino(ino)));
}

}  // namespace

void name_operations(fuse_lowlevel_ops& ops) {
  ops.lookup = on_lookup;
  ops.mknod = on_mknod;
  ops.mkdir = on_mkdir;
  ops.symlink = on_symlink;
  ops.unlink = on_unlink;
  ops.rmdir = on_rmdir;
  ops.rename = on_rename;
  ops.link = on_link;
  ops.readlink = on_readlink;
}

}  // namespace nacre::fuse
