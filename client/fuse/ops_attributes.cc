// SPDX-License-Identifier: Apache-2.0
// Attributes, extended attributes, statfs.
#include <sys/statvfs.h>

#include <string>

#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

/// Answered from the inode, never listed, nobody's to set.
constexpr std::string_view kVirtual = "user.nacre.";
constexpr uint32_t kMaxName = 255;
constexpr uint32_t kBlock = 4096;

Task<void> getattr(Front& f, RequestPtr r, Ino ino) {
  auto a = co_await f.fs().getattr(ino, r->caller());
  if (a) r->value(attr_out(*a));
  else r->error(a.error());
}
void on_getattr(fuse_req_t req, fuse_ino_t ino, fuse_file_info*) {
  Front& f = front_of(req);
  start(getattr(f, begin(req), f.ino(ino)));
}

Task<void> statx(Front& f, RequestPtr r, Ino ino) {
  auto a = co_await f.fs().getattr(ino, r->caller());
  if (a) r->value(statx_out(*a));
  else r->error(a.error());
}

Task<void> setattr(Front& f, RequestPtr r, Ino ino, client::SetAttr change) {
  auto a = co_await f.fs().setattr(ino, std::move(change), r->caller());
  if (a) r->value(attr_out(*a));
  else r->error(a.error());
}
void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat*, int, fuse_file_info* fi) {
  Front& f = front_of(req);
  // libfuse has masked the bits it doesn't know in the message; that suid and sgid go is one it keeps, under another name.
  static_assert(FATTR_KILL_SUIDGID == FUSE_SET_ATTR_KILL_SUID);
  const auto in = arguments<fuse_setattr_in>();
  client::SetAttr change = to_set_attr(in);
  if (fi != nullptr) change.handle = handle_of(fi->fh);
  start(setattr(f, begin(req), f.ino(ino), std::move(change)));
}

Task<void> access(Front& f, RequestPtr r, Ino ino, uint32_t mask) { answer(r, co_await f.fs().access(ino, mask, r->caller())); }
void on_access(fuse_req_t req, fuse_ino_t ino, int mask) {
  Front& f = front_of(req);
  start(access(f, begin(req), f.ino(ino), static_cast<uint32_t>(mask)));
}

Task<void> statfs(Front& f, RequestPtr r, Ino ino) {
  auto s = co_await f.fs().statfs(ino, r->caller());
  if (!s) {
    r->error(s.error());
    co_return;
  }
  fuse_statfs_out out{};
  out.st.blocks = s->blocks;
  out.st.bfree = s->free;
  out.st.bavail = s->available;
  out.st.files = s->files;
  out.st.ffree = s->files_free;
  out.st.bsize = kBlock;
  out.st.frsize = kBlock;
  out.st.namelen = kMaxName;
  r->value(out);
}
void on_statfs(fuse_req_t req, fuse_ino_t ino) {
  Front& f = front_of(req);
  start(statfs(f, begin(req), f.ino(ino)));
}

/// Answers a value as getxattr(2) and listxattr(2) want it: `size` 0 asks for the length.
void answer_sized(const RequestPtr& r, std::string_view value, size_t size) {
  if (size == 0) {
    fuse_getxattr_out out{};
    out.size = static_cast<uint32_t>(value.size());
    r->value(out);
  } else if (value.size() > size) {
    r->error(ERANGE);
  } else {
    r->text(value);
  }
}

Task<void> virtual_xattr(Front& f, RequestPtr r, Ino ino, std::string name, size_t size) {
  if (name != "user.nacre.content_time") {
    r->error(ENODATA);
    co_return;
  }
  auto a = co_await f.fs().getattr(ino, r->caller());
  if (!a) {
    r->error(a.error());
    co_return;
  }
  answer_sized(r, format_time(a->content_time), size);
}

Task<void> getxattr(Front& f, RequestPtr r, Ino ino, std::string name, size_t size) {
  auto v = co_await f.fs().xattr_get(ino, std::move(name), r->caller());
  if (v) answer_sized(r, *v, size);
  else r->error(v.error());
}
void on_getxattr(fuse_req_t req, fuse_ino_t ino, const char* name, size_t size) {
  Front& f = front_of(req);
  const std::string_view n = name;
  if (n.starts_with(kVirtual)) start(virtual_xattr(f, begin(req), f.ino(ino), name, size));
  else start(getxattr(f, begin(req), f.ino(ino), name, size));
}

Task<void> setxattr(Front& f, RequestPtr r, Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid) {
  answer(r, co_await f.fs().xattr_set(ino, std::move(name), std::move(value), flags, kill_sgid, r->caller()));
}
void on_setxattr(fuse_req_t req, fuse_ino_t ino, const char* name, const char* value, size_t size, int flags) {
  Front& f = front_of(req);
  if (std::string_view(name).starts_with(kVirtual)) return begin(req)->error(EPERM);
  start(setxattr(f, begin(req), f.ino(ino), name, std::string(value, size), static_cast<uint32_t>(flags), kill_sgid_of_message()));
}

Task<void> listxattr(Front& f, RequestPtr r, Ino ino, size_t size) {
  auto names = co_await f.fs().xattr_list(ino, r->caller());
  if (!names) {
    r->error(names.error());
    co_return;
  }
  std::string all;
  for (const auto& n : *names) all.append(n).push_back('\0');
  answer_sized(r, all, size);
}
void on_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size) {
  Front& f = front_of(req);
  start(listxattr(f, begin(req), f.ino(ino), size));
}

Task<void> removexattr(Front& f, RequestPtr r, Ino ino, std::string name) { answer(r, co_await f.fs().xattr_remove(ino, std::move(name), r->caller())); }
void on_removexattr(fuse_req_t req, fuse_ino_t ino, const char* name) {
  Front& f = front_of(req);
  if (std::string_view(name).starts_with(kVirtual)) return begin(req)->error(EPERM);
  start(removexattr(f, begin(req), f.ino(ino), name));
}

}  // namespace

void on_statx(Front& f) {
  RequestPtr r = begin(f, nullptr);
  fuse_in_header h;
  std::memcpy(&h, incoming().bytes.data(), sizeof h);
  start(statx(f, std::move(r), f.ino(h.nodeid)));
}

void attribute_operations(fuse_lowlevel_ops& ops) {
  ops.getattr = on_getattr;
  ops.setattr = on_setattr;
  ops.access = on_access;
  ops.statfs = on_statfs;
  ops.getxattr = on_getxattr;
  ops.setxattr = on_setxattr;
  ops.listxattr = on_listxattr;
  ops.removexattr = on_removexattr;
}

}  // namespace nacre::fuse
