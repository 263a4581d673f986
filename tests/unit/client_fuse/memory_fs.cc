// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client_fuse/memory_fs.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>

namespace nacre::test {
namespace {
constexpr Nanos kPoll = kMillisecond;
constexpr uint64_t kBlock = 4096;
constexpr uint64_t kMaxFile = 1ull << 36;

schema::FileType type_of(uint32_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR: return schema::FileType::Directory;
    case S_IFLNK: return schema::FileType::Symlink;
    case S_IFIFO: return schema::FileType::Fifo;
    case S_IFSOCK: return schema::FileType::Socket;
    case S_IFCHR: return schema::FileType::CharDevice;
    case S_IFBLK: return schema::FileType::BlockDevice;
    default: return schema::FileType::Regular;
  }
}
bool is_dir(const client::Attr& a) { return S_ISDIR(a.mode); }
}  // namespace

struct MemoryFs::MemoryHandle final : client::Handle {
  NodePtr node;
  uint64_t n = 0;
  uint32_t f = 0;
  Ino ino() const override { return Ino(node->attr.ino); }
  uint64_t number() const override { return n; }
  uint32_t flags() const override { return f; }
  bool is_directory() const override { return is_dir(node->attr); }
};
#define NODE_OF(h) (static_cast<MemoryHandle&>(*(h)).node)

MemoryFs::MemoryFs(Runtime& runtime) : runtime_(runtime) {
  auto root = std::make_shared<Node>();
  root->attr.ino = 1;
  root->attr.mode = S_IFDIR | 0755;
  root->attr.nlink = 2;
  touch(*root, true);
  root->attr.btime = root->attr.atime = root->attr.mtime;
  nodes_[1] = root;
}
MemoryFs::~MemoryFs() = default;

Task<Result<void>> MemoryFs::connect(Nanos, CancelPtr) { co_return Result<void>{}; }
Task<void> MemoryFs::disconnect(Nanos) { co_return; }
client::Attr MemoryFs::root() const { return nodes_.at(1)->attr; }
client::ClientStatus MemoryFs::status() const { return {}; }

uint64_t MemoryFs::ino_of(const std::string& name) {
  std::lock_guard lock(mutex_);
  auto c = child(*nodes_.at(1), name);
  return c ? (*c)->attr.ino : 0;
}
void MemoryFs::append_behind(const std::string& name, std::string_view bytes) {
  std::lock_guard lock(mutex_);
  Node& n = **child(*nodes_.at(1), name);
  n.data.append(bytes);
  n.attr.size = n.data.size();
  touch(n, true);
}
size_t MemoryFs::open_handles() {
  std::lock_guard lock(mutex_);
  return handles_;
}

MemoryFs::NodePtr MemoryFs::find(Ino ino) {
  auto it = nodes_.find(ino.v);
  return it == nodes_.end() ? nullptr : it->second;
}
#define FIND(var, ino)      \
  NodePtr var = find(ino);  \
  if (!var) co_return Err(Errc::kStale)

Result<MemoryFs::NodePtr> MemoryFs::child(Node& dir, const std::string& name) {
  if (!is_dir(dir.attr)) return Err(Errc::kNotDir);
  if (name.size() > 255) return Err(Errc::kNameTooLong);
  auto it = dir.names.find(name);
  if (it == dir.names.end()) return Err(Errc::kNoEnt);
  return nodes_.at(dir.children.at(it->second).ino);
}

void MemoryFs::touch(Node& n, bool data) {
  const Nanos now = runtime_.clock().real();
  n.attr.ctime = now;
  if (data) n.attr.mtime = n.attr.content_time = now;
  n.attr.allocated = (n.data.size() + kBlock - 1) / kBlock * kBlock;
}
void MemoryFs::resize(Node& n, uint64_t size) {
  n.data.resize(size, '\0');
  n.attr.size = size;
}

void MemoryFs::add_name(Node& dir, const std::string& name, uint64_t ino) {
  const uint64_t cookie = next_cookie_++;
  dir.children[cookie] = {name, ino};
  dir.names[name] = cookie;
  touch(dir, true);
}
void MemoryFs::drop_name(Node& dir, const std::string& name) {
  auto it = dir.names.find(name);
  dir.children.erase(it->second);
  dir.names.erase(it);
  touch(dir, true);
}
void MemoryFs::forget_if_unused(const NodePtr& n) {
  if (n->attr.nlink == 0 && n->opens == 0) nodes_.erase(n->attr.ino);
}

Result<client::Attr> MemoryFs::make(Ino parent, const std::string& name, uint32_t mode, const client::Caller& caller, NodePtr* out) {
  NodePtr dir = find(parent);
  if (!dir) return Err(Errc::kStale);
  if (!is_dir(dir->attr)) return Err(Errc::kNotDir);
  if (name.size() > 255) return Err(Errc::kNameTooLong);
  if (dir->attr.nlink == 0) return Err(Errc::kNoEnt);
  if (dir->names.contains(name)) return Err(Errc::kExist);
  auto n = std::make_shared<Node>();
  n->attr.ino = next_ino_++;
  n->attr.mode = mode;
  n->attr.uid = caller.uid;
  n->attr.gid = caller.gid;
  if (dir->attr.mode & S_ISGID) {
    n->attr.gid = dir->attr.gid;
    if (S_ISDIR(mode)) n->attr.mode |= S_ISGID;
  }
  n->attr.nlink = S_ISDIR(mode) ? 2 : name.empty() ? 0 : 1;
  n->parent = parent.v;
  touch(*n, true);
  n->attr.btime = n->attr.atime = n->attr.mtime;
  nodes_[n->attr.ino] = n;
  if (!name.empty()) add_name(*dir, name, n->attr.ino);
  if (S_ISDIR(mode)) ++dir->attr.nlink;
  if (out != nullptr) *out = n;
  return n->attr;
}

Task<Result<void>> MemoryFs::held(std::atomic<bool>& hold, client::Caller caller) {
  while (hold.load()) {
    if (caller.cancel && caller.cancel->fired()) {
      knobs.cancelled++;
      co_return std::unexpected(caller.cancel->error());
    }
    if (auto s = co_await sleep_for(kPoll); !s) co_return s;
  }
  co_return Result<void>{};
}

// ---------------------------------------------------------------- names

Task<Result<client::Attr>> MemoryFs::lookup(Ino parent, std::string name, client::Caller caller) {
  knobs.lookups++;
  CO_CHECK_OK(co_await held(knobs.hold_lookups, caller));
  if (name == "needs-groups" && caller.groups) {
    knobs.groups_asked++;
    CO_TRY(auto g, caller.groups());
    if (std::find(g.begin(), g.end(), 30001u) == g.end()) co_return Err(Errc::kAccess);
  }
  std::lock_guard lock(mutex_);
  FIND(dir, parent);
  CO_TRY(NodePtr n, child(*dir, name));
  co_return n->attr;
}
Task<Result<client::Attr>> MemoryFs::mknod(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint64_t rdev, client::Caller caller) {
  std::lock_guard lock(mutex_);
  NodePtr n;
  CO_CHECK_OK(make(parent, name, mode & ~umask, caller, &n));
  n->attr.rdev = rdev;
  co_return n->attr;
}
Task<Result<client::Attr>> MemoryFs::mkdir(Ino parent, std::string name, uint32_t mode, uint32_t umask, client::Caller caller) {
  std::lock_guard lock(mutex_);
  co_return make(parent, name, S_IFDIR | ((mode & 07777) & ~umask), caller);
}
Task<Result<client::Attr>> MemoryFs::symlink(Ino parent, std::string name, std::string target, client::Caller caller) {
  std::lock_guard lock(mutex_);
  NodePtr n;
  CO_CHECK_OK(make(parent, name, S_IFLNK | 0777, caller, &n));
  n->target = std::move(target);
  n->attr.size = n->target.size();
  co_return n->attr;
}
Task<Result<void>> MemoryFs::unlink(Ino parent, std::string name, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(dir, parent);
  CO_TRY(NodePtr n, child(*dir, name));
  if (is_dir(n->attr)) co_return Err(Errc::kIsDir);
  drop_name(*dir, name);
  --n->attr.nlink;
  touch(*n, false);
  forget_if_unused(n);
  co_return Result<void>{};
}
Task<Result<void>> MemoryFs::rmdir(Ino parent, std::string name, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(dir, parent);
  CO_TRY(NodePtr n, child(*dir, name));
  if (!is_dir(n->attr)) co_return Err(Errc::kNotDir);
  if (!n->names.empty()) co_return Err(Errc::kNotEmpty);
  drop_name(*dir, name);
  n->attr.nlink = 0;
  --dir->attr.nlink;
  forget_if_unused(n);
  co_return Result<void>{};
}
Task<Result<void>> MemoryFs::rename(client::RenameArgs a, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(from, a.parent);
  FIND(to, a.new_parent);
  CO_TRY(NodePtr n, child(*from, a.name));
  auto old = child(*to, a.new_name);
  if (!old && old.error().code != Errc::kNoEnt) co_return std::unexpected(old.error());
  if (old && (a.flags & RENAME_NOREPLACE)) co_return Err(Errc::kExist);
  if (!old && (a.flags & RENAME_EXCHANGE)) co_return Err(Errc::kNoEnt);
  if (old && *old == n) co_return Result<void>{};
  if (is_dir(n->attr))
    for (uint64_t up = to->attr.ino; up != 1; up = nodes_.at(up)->parent)
      if (up == n->attr.ino) co_return Err(Errc::kInval);
  if (a.flags & RENAME_EXCHANGE) {
    NodePtr o = *old;
    from->children.at(from->names.at(a.name)).ino = o->attr.ino;
    to->children.at(to->names.at(a.new_name)).ino = n->attr.ino;
    if (from != to && is_dir(n->attr)) --from->attr.nlink, ++to->attr.nlink;
    if (from != to && is_dir(o->attr)) ++from->attr.nlink, --to->attr.nlink;
    std::swap(n->parent, o->parent);
    for (auto& x : {n, o}) touch(*x, false);
    for (auto& x : {from, to}) touch(*x, true);
    co_return Result<void>{};
  }
  if (old) {
    NodePtr o = *old;
    if (is_dir(o->attr) && !is_dir(n->attr)) co_return Err(Errc::kIsDir);
    if (!is_dir(o->attr) && is_dir(n->attr)) co_return Err(Errc::kNotDir);
    if (is_dir(o->attr) && !o->names.empty()) co_return Err(Errc::kNotEmpty);
    drop_name(*to, a.new_name);
    o->attr.nlink = is_dir(o->attr) ? 0 : o->attr.nlink - 1;
    if (is_dir(o->attr)) --to->attr.nlink;
    touch(*o, false);
    forget_if_unused(o);
  }
  drop_name(*from, a.name);
  add_name(*to, a.new_name, n->attr.ino);
  if (is_dir(n->attr) && from != to) --from->attr.nlink, ++to->attr.nlink;
  n->parent = to->attr.ino;
  touch(*n, false);
  co_return Result<void>{};
}
Task<Result<client::Attr>> MemoryFs::link(Ino ino, Ino new_parent, std::string name, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  FIND(dir, new_parent);
  if (name.size() > 255) co_return Err(Errc::kNameTooLong);
  if (dir->names.contains(name)) co_return Err(Errc::kExist);
  add_name(*dir, name, ino.v);
  ++n->attr.nlink;
  touch(*n, false);
  co_return n->attr;
}
Task<Result<std::string>> MemoryFs::readlink(Ino ino, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  co_return n->target;
}

// ---------------------------------------------------------------- attributes

Task<Result<client::Attr>> MemoryFs::getattr(Ino ino, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  co_return n->attr;
}
Task<Result<client::Attr>> MemoryFs::setattr(Ino ino, client::SetAttr c, client::Caller caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  client::Attr& a = n->attr;
  const Nanos now = runtime_.clock().real();
  if ((c.valid & wire::kSetSize) && c.size > kMaxFile) co_return Err(Errc::kFBig);
  if (c.valid & wire::kSetMode) a.mode = (a.mode & S_IFMT) | (c.mode & 07777);
  if (c.valid & (wire::kSetUid | wire::kSetGid)) {
    if (c.valid & wire::kSetUid) a.uid = c.uid;
    if (c.valid & wire::kSetGid) a.gid = c.gid;
    if (!is_dir(a) && (a.mode & 0111)) a.mode &= ~(S_ISUID | ((a.mode & S_IXGRP) ? S_ISGID : 0u));
  }
  if (c.kill_priv && caller.uid != 0) a.mode &= ~(S_ISUID | ((a.mode & S_IXGRP) ? S_ISGID : 0u));
  if (c.valid & wire::kSetSize) resize(*n, c.size), touch(*n, true);
  if (c.valid & wire::kSetAtime) a.atime = c.atime;
  if (c.valid & wire::kSetMtime) a.mtime = c.mtime;
  if (c.valid & wire::kSetAtimeNow) a.atime = now;
  if (c.valid & wire::kSetMtimeNow) a.mtime = now;
  a.ctime = now;
  co_return a;
}
Task<Result<void>> MemoryFs::access(Ino, uint32_t, client::Caller) { co_return Result<void>{}; }
Task<Result<std::string>> MemoryFs::xattr_get(Ino ino, std::string name, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  auto it = n->xattrs.find(name);
  if (it == n->xattrs.end()) co_return Err(Errc::kNoData);
  co_return it->second;
}
Task<Result<void>> MemoryFs::xattr_set(Ino ino, std::string name, std::string value, uint32_t flags, bool kill_sgid, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  const bool there = n->xattrs.contains(name);
  if ((flags & 1) && there) co_return Err(Errc::kExist);
  if ((flags & 2) && !there) co_return Err(Errc::kNoData);
  if (kill_sgid) n->attr.mode &= ~uint32_t{S_ISGID};
  n->xattrs[name] = std::move(value);
  touch(*n, false);
  co_return Result<void>{};
}
Task<Result<std::vector<std::string>>> MemoryFs::xattr_list(Ino ino, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  std::vector<std::string> names;
  for (auto& [k, v] : n->xattrs) names.push_back(k);
  co_return names;
}
Task<Result<void>> MemoryFs::xattr_remove(Ino ino, std::string name, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  if (n->xattrs.erase(name) == 0) co_return Err(Errc::kNoData);
  touch(*n, false);
  co_return Result<void>{};
}
Task<Result<wire::StatfsReplyT>> MemoryFs::statfs(Ino, client::Caller) {
  wire::StatfsReplyT s;
  s.blocks = 1 << 20;
  s.free = s.available = 1 << 19;
  s.files = 1 << 20;
  s.files_free = 1 << 19;
  co_return s;
}

// ---------------------------------------------------------------- directories

client::HandlePtr MemoryFs::handle(const NodePtr& n, uint32_t flags) {
  auto h = std::make_shared<MemoryHandle>();
  h->node = n;
  h->n = next_handle_++;
  h->f = flags;
  ++n->opens;
  ++handles_;
  return h;
}
Task<Result<client::HandlePtr>> MemoryFs::opendir(Ino ino, uint32_t flags, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  co_return handle(n, flags);
}
Task<Result<wire::ReaddirReplyT>> MemoryFs::readdir(client::HandlePtr dir, uint64_t cookie, uint32_t max_bytes, bool plus, client::Caller) {
  std::lock_guard lock(mutex_);
  knobs.readdirs++;
  if (plus) knobs.plus_readdirs++;
  NodePtr n = NODE_OF(dir);
  wire::ReaddirReplyT r;
  r.parent = n->parent;
  uint32_t used = 0;
  auto it = n->children.upper_bound(cookie);
  for (; it != n->children.end() && used < max_bytes; ++it) {
    auto e = std::make_unique<wire::DirEntryT>();
    const client::Attr& a = nodes_.at(it->second.ino)->attr;
    e->cookie = it->first;
    e->name = as_bytes(it->second.name);
    e->ino = a.ino;
    e->type = type_of(a.mode);
    if (plus) e->attr = std::make_unique<client::Attr>(a);
    used += static_cast<uint32_t>(64 + e->name.size() + (plus ? 160 : 0));
    r.entries.push_back(std::move(e));
  }
  r.end = it == n->children.end();
  co_return r;
}
Task<Result<void>> MemoryFs::releasedir(client::HandlePtr dir) { return release(std::move(dir), 0); }
Task<Result<void>> MemoryFs::fsyncdir(client::HandlePtr, client::Caller) { co_return Result<void>{}; }

// ---------------------------------------------------------------- files

Task<Result<client::OpenResult>> MemoryFs::create(Ino parent, std::string name, uint32_t mode, uint32_t umask, uint32_t flags, client::Caller caller) {
  std::lock_guard lock(mutex_);
  FIND(dir, parent);
  auto there = name.empty() ? Result<NodePtr>(Err(Errc::kNoEnt)) : child(*dir, name);
  if (there) {
    if (flags & O_EXCL) co_return Err(Errc::kExist);
    if (is_dir((*there)->attr)) co_return Err(Errc::kIsDir);
    if (flags & O_TRUNC) resize(**there, 0), touch(**there, true);
    co_return client::OpenResult{handle(*there, flags), (*there)->attr, false};
  }
  if (there.error().code != Errc::kNoEnt) co_return std::unexpected(there.error());
  NodePtr n;
  CO_CHECK_OK(make(parent, name, S_IFREG | ((mode & 07777) & ~umask), caller, &n));
  co_return client::OpenResult{handle(n, flags), n->attr, true};
}
Task<Result<client::OpenResult>> MemoryFs::open(Ino ino, uint32_t flags, client::Caller) {
  std::lock_guard lock(mutex_);
  FIND(n, ino);
  if (flags & O_TRUNC) resize(*n, 0), touch(*n, true);
  co_return client::OpenResult{handle(n, flags), n->attr, false};
}
Task<Result<uint64_t>> MemoryFs::read(client::HandlePtr file, uint64_t offset, Buffer into, client::Caller caller) {
  knobs.reads++;
  if (into.size() > knobs.largest_read) knobs.largest_read = into.size();
  CO_CHECK_OK(co_await held(knobs.hold_reads, caller));
  if (const int64_t d = knobs.data_delay.load()) (void)co_await sleep_for(d);
  std::lock_guard lock(mutex_);
  Node& n = *NODE_OF(file);
  if (offset >= n.data.size()) co_return 0u;
  const size_t size = std::min<uint64_t>(into.size(), n.data.size() - offset);
  std::memcpy(into.data(), n.data.data() + offset, size);
  co_return size;
}
Task<Result<client::WriteResult>> MemoryFs::write(client::HandlePtr file, uint64_t offset, Buffer data, client::WriteOptions o, client::Caller) {
  knobs.writes++;
  if (data.size() > knobs.largest_write) knobs.largest_write = data.size();
  if (reinterpret_cast<uintptr_t>(data.data()) % kBlock != 0) knobs.unaligned++;
  if (o.from_page_cache) knobs.page_writes++;
  if (o.kill_priv) knobs.kill_priv++;
  const int now = ++knobs.writes_now;
  for (int most = knobs.writes_at_once.load(); now > most && !knobs.writes_at_once.compare_exchange_weak(most, now);) {}
  if (const int64_t d = knobs.data_delay.load()) (void)co_await sleep_for(d);
  --knobs.writes_now;
  std::lock_guard lock(mutex_);
  Node& n = *NODE_OF(file);
  if ((file->flags() & O_APPEND) && !o.from_page_cache) offset = n.data.size();
  if (offset + data.size() > kMaxFile) co_return Err(Errc::kFBig);
  size_t size = data.size();
  if (o.from_page_cache) size = offset >= n.data.size() ? 0 : std::min<uint64_t>(size, n.data.size() - offset);
  else if (offset + size > n.data.size()) resize(n, offset + size);
  std::memcpy(n.data.data() + offset, data.data(), size);
  if (o.kill_priv) n.attr.mode &= ~(S_ISUID | ((n.attr.mode & S_IXGRP) ? S_ISGID : 0u));
  touch(n, true);
  co_return client::WriteResult{offset, data.size()};
}
Task<Result<void>> MemoryFs::flush(client::HandlePtr file, uint64_t owner, client::Caller) {
  knobs.flushes++;
  std::lock_guard lock(mutex_);
  drop_locks(*NODE_OF(file), false, owner);
  co_return Result<void>{};
}
Task<Result<void>> MemoryFs::release(client::HandlePtr file, uint64_t flock_owner) {
  knobs.releases++;
  std::lock_guard lock(mutex_);
  NodePtr n = NODE_OF(file);
  if (flock_owner != 0) drop_locks(*n, true, flock_owner);
  --n->opens;
  --handles_;
  forget_if_unused(n);
  co_return Result<void>{};
}
Task<Result<void>> MemoryFs::fsync(client::HandlePtr, bool, client::Caller) { co_return Result<void>{}; }
Task<Result<void>> MemoryFs::fallocate(client::HandlePtr file, uint32_t mode, uint64_t offset, uint64_t length, client::Caller) {
  std::lock_guard lock(mutex_);
  Node& n = *NODE_OF(file);
  if (mode & ~uint32_t{FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE}) co_return Err(Errc::kOpNotSupp);
  if (offset + length > kMaxFile) co_return Err(Errc::kFBig);
  if (!(mode & FALLOC_FL_KEEP_SIZE) && offset + length > n.data.size()) resize(n, offset + length);
  if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) && offset < n.data.size())
    std::fill_n(n.data.begin() + static_cast<ptrdiff_t>(offset), std::min<uint64_t>(length, n.data.size() - offset), '\0');
  touch(n, true);
  co_return Result<void>{};
}
/// A block of zeros is a hole.
Task<Result<uint64_t>> MemoryFs::lseek(client::HandlePtr file, uint64_t offset, client::Seek whence, client::Caller) {
  std::lock_guard lock(mutex_);
  Node& n = *NODE_OF(file);
  if (offset >= n.data.size()) co_return Err(Errc::kNxio);
  for (uint64_t at = offset; at < n.data.size(); at = (at / kBlock + 1) * kBlock) {
    const uint64_t end = std::min<uint64_t>((at / kBlock + 1) * kBlock, n.data.size());
    const auto from = n.data.begin() + static_cast<ptrdiff_t>(at / kBlock * kBlock);
    const bool hole = std::all_of(from, n.data.begin() + static_cast<ptrdiff_t>(end), [](char c) { return c == 0; });
    if (hole == (whence == client::Seek::kHole)) co_return at;
  }
  if (whence == client::Seek::kHole) co_return n.data.size();
  co_return Err(Errc::kNxio);
}
Task<Result<uint64_t>> MemoryFs::copy_file_range(client::HandlePtr in, client::HandlePtr out, client::CopyArgs a, client::Caller) {
  std::lock_guard lock(mutex_);
  Node& i = *NODE_OF(in);
  Node& o = *NODE_OF(out);
  if (a.in_offset >= i.data.size()) co_return 0u;
  const std::string bytes = i.data.substr(a.in_offset, a.length);
  if (a.out_offset + bytes.size() > o.data.size()) resize(o, a.out_offset + bytes.size());
  o.data.replace(a.out_offset, bytes.size(), bytes);
  touch(o, true);
  co_return bytes.size();
}

// ---------------------------------------------------------------- locks

bool MemoryFs::conflicts(const Node& n, const wire::LockSpecT& want, wire::LockSpecT* found) {
  for (const auto& l : n.locks)
    if (l.flock == want.flock && l.owner != want.owner && l.start <= want.end && want.start <= l.end && (l.type == 1 || want.type == 1)) {
      if (found != nullptr) *found = l;
      return true;
    }
  return false;
}
void MemoryFs::put_lock(Node& n, const wire::LockSpecT& s) {
  std::list<wire::LockSpecT> keep;
  for (auto& l : n.locks) {
    if (l.flock != s.flock || l.owner != s.owner || l.end < s.start || l.start > s.end) {
      keep.push_back(l);
      continue;
    }
    if (l.start < s.start) keep.push_back(l), keep.back().end = s.start - 1;
    if (l.end > s.end) keep.push_back(l), keep.back().start = s.end + 1;
  }
  if (s.type != 2) keep.push_back(s);
  n.locks = std::move(keep);
}
void MemoryFs::wake(Node& n) {
  for (auto& w : std::exchange(n.lock_waiters, {})) w.set();
}
void MemoryFs::drop_locks(Node& n, bool flock, uint64_t owner) {
  if (std::erase_if(n.locks, [&](auto& l) { return l.flock == flock && l.owner == owner; })) wake(n);
}
Task<Result<wire::LockSpecT>> MemoryFs::lock_test(client::HandlePtr file, wire::LockSpecT spec, client::Caller) {
  std::lock_guard lock(mutex_);
  wire::LockSpecT found;
  if (!conflicts(*NODE_OF(file), spec, &found)) found.type = 2;
  co_return found;
}
Task<Result<void>> MemoryFs::lock_set(client::HandlePtr file, wire::LockSpecT spec, bool wait, client::Caller caller) {
  for (;;) {
    Signal signal;
    {
      std::lock_guard lock(mutex_);
      Node& n = *NODE_OF(file);
      if (spec.type == 2 || !conflicts(n, spec)) {
        put_lock(n, spec);
        wake(n);
        co_return Result<void>{};
      }
      if (!wait) co_return Err(Errc::kAgain);
      n.lock_waiters.push_back(signal);
    }
    if (auto w = co_await signal.wait(kForever, caller.cancel); !w) {
      knobs.cancelled++;
      co_return w;
    }
  }
}

Task<Result<void>> MemoryFs::sync_all(client::Caller) { co_return Result<void>{}; }
/// Method 1 repeats the body 1,000 times and tells the caller's uid; the others are not for users.
Task<Result<Bytes>> MemoryFs::call_method(uint16_t method, Bytes body, client::Caller caller) {
  if (method != 1) co_return Err(Errc::kPerm, "not for you");
  Bytes out = as_bytes("uid " + std::to_string(caller.uid) + ":");
  for (int i = 0; i < 1000; ++i) out.insert(out.end(), body.begin(), body.end());
  co_return out;
}

}  // namespace nacre::test
