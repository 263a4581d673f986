// SPDX-License-Identifier: Apache-2.0
// Listing directories. Cookies 1 and 2 are "." and "..", made here; the rest are the server's (they grow in listing order, so the
// place of each entry survives changes). One trip fetches more than the kernel takes at a time.
#include <dirent.h>

#include <string>

#include "client/fuse/ops.h"

namespace nacre::fuse {
namespace {

constexpr uint64_t kCookieDot = 1, kCookieDotDot = 2;
constexpr uint32_t kPageBytes = 128 * 1024;  // about 2,000 names; a trip's cost is then small against its content
/// An entry as it travels is at most this much smaller than the kernel's entry with attributes (fuse_direntplus), so that a page
/// asked for with the kernel's own size nearly always fits whole.
constexpr uint32_t kMinPlusBytes = 4096;

/// Writes entries as the kernel reads them, until one doesn't fit.
class Entries {
 public:
  Entries(Buffer memory, bool plus) : memory_(std::move(memory)), plus_(plus) {}

  bool add(std::string_view name, uint64_t cookie, uint64_t ino, uint32_t type, const fuse_entry_out& entry) {
    const size_t fixed = plus_ ? offsetof(fuse_direntplus, dirent) : 0;
    const size_t size = FUSE_DIRENT_ALIGN(fixed + FUSE_NAME_OFFSET + name.size());
    if (used_ + size > memory_.size()) return false;
    std::byte* at = memory_.data() + used_;
    std::memset(at, 0, size);
    if (plus_) std::memcpy(at, &entry, sizeof entry);
    fuse_dirent d{};
    d.ino = ino;
    d.off = cookie;
    d.namelen = static_cast<uint32_t>(name.size());
    d.type = type;
    std::memcpy(at + fixed, &d, FUSE_NAME_OFFSET);
    std::memcpy(at + fixed + FUSE_NAME_OFFSET, name.data(), name.size());
    used_ += size;
    return true;
  }
  std::span<const std::byte> bytes() const { return memory_.span().first(used_); }
  bool empty() const { return used_ == 0; }

 private:
  Buffer memory_;
  bool plus_;
  size_t used_ = 0;
};

struct ListRequest {
  OpenFile* dir;
  uint64_t nodeid;
  uint64_t cookie;  ///< of the last entry the kernel has
  size_t size;
  bool plus;
};

/// The page that goes on after `q.cookie`: what is left of the last one, or a new one.
Task<Result<Listing>> page_at(Front& f, RequestPtr r, ListRequest q) {
  const uint64_t after = q.cookie <= kCookieDotDot ? 0 : q.cookie;
  {
    std::lock_guard lock(q.dir->mutex);
    auto kept = std::exchange(q.dir->listing, std::nullopt);
    if (kept && !q.plus && q.cookie != 0 && kept->position == after) co_return std::move(*kept);
  }
  const uint32_t want = q.plus ? std::max<uint32_t>(kMinPlusBytes, static_cast<uint32_t>(q.size)) : kPageBytes;
  auto page = co_await f.fs().readdir(q.dir->handle, after, want, q.plus, r->caller());
  if (!page) co_return std::unexpected(page.error());
  if (page->entries.empty() && !page->end) co_return Err(Errc::kProtocol, "an empty page of a directory that has more");
  Listing l;
  l.page = std::move(*page);
  l.position = after;
  co_return l;
}

/// Hands out what fits. The two entries made here need the parent, which each page carries.
void fill(Front& f, const ListRequest& q, Listing& l, Entries& out) {
  const uint64_t self = q.dir->handle->ino().v;
  if (q.cookie < kCookieDot && !out.add(".", kCookieDot, self, DT_DIR, {})) return;
  // What lies above the root of a mount is not part of it.
  const uint64_t parent = f.is_root(q.nodeid) || l.page.parent == 0 ? self : l.page.parent;
  if (q.cookie < kCookieDotDot && !out.add("..", kCookieDotDot, parent, DT_DIR, {})) return;
  for (; l.next < l.page.entries.size(); ++l.next) {
    const auto& e = *l.page.entries[l.next];
    fuse_entry_out entry{};
    if (q.plus && e.attr) entry = entry_out(*e.attr, f.nodeid(e.ino));
    if (!out.add(as_text(e.name), e.cookie, e.ino, dirent_type(e.type), entry)) return;
    l.position = e.cookie;
  }
}

Task<void> readdir(Front& f, RequestPtr r, ListRequest q) {
  auto l = co_await page_at(f, r, q);
  if (!l) {
    r->error(l.error());
    co_return;
  }
  Entries out(r->answer_buffer(q.size), q.plus);
  fill(f, q, *l, out);
  const bool all = l->next == l->page.entries.size();
  if (out.empty() && !all) {  // the kernel has no room for a single entry
    r->error(EINVAL);
    co_return;
  }
  if (!q.plus && (!all || l->page.end)) {
    std::lock_guard lock(q.dir->mutex);
    q.dir->listing = std::move(*l);
  }
  r->data(out.bytes());
}

void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi, bool plus) {
  Front& f = front_of(req);
  start(readdir(f, begin(req), {from_fh(fi->fh), ino, static_cast<uint64_t>(offset), size, plus}));
}
void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) { list(req, ino, size, offset, fi, false); }
void on_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) { list(req, ino, size, offset, fi, true); }

Task<void> opendir(Front& f, RequestPtr r, Ino ino, uint32_t flags) {
  auto h = co_await f.fs().opendir(ino, flags, r->caller());
  if (!h) {
    r->error(h.error());
    co_return;
  }
  fuse_open_out out{};
  out.fh = to_fh(new OpenFile(f, std::move(*h)));
  r->value(out);
}
void on_opendir(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(opendir(f, begin(req), f.ino(ino), static_cast<uint32_t>(fi->flags)));
}

Task<void> releasedir(Front& f, RequestPtr r, std::unique_ptr<OpenFile> dir) {
  (void)co_await f.fs().releasedir(std::move(dir->handle));  // the kernel ignores the answer
  dir.reset();
  r->error(0);
}
void on_releasedir(fuse_req_t req, fuse_ino_t, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(releasedir(f, begin(req), std::unique_ptr<OpenFile>(from_fh(fi->fh))));
}

Task<void> fsyncdir(Front& f, RequestPtr r, client::HandlePtr dir) { answer(r, co_await f.fs().fsyncdir(std::move(dir), r->caller())); }
void on_fsyncdir(fuse_req_t req, fuse_ino_t, int, fuse_file_info* fi) {
  Front& f = front_of(req);
  start(fsyncdir(f, begin(req), handle_of(fi->fh)));
}

}  // namespace

void directory_operations(fuse_lowlevel_ops& ops) {
  ops.opendir = on_opendir;
  ops.readdir = on_readdir;
  ops.readdirplus = on_readdirplus;
  ops.releasedir = on_releasedir;
  ops.fsyncdir = on_fsyncdir;
}

}  // namespace nacre::fuse
