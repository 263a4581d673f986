// SPDX-License-Identifier: Apache-2.0
#include "client/core/inode.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/layout/layout.h"

namespace nacre::client {

namespace {
/// True if `fn(component, index)` holds for every component that the range touches.
template <class F>
bool all_components(const schema::LayoutT& layout, uint64_t offset, uint64_t length, F fn) {
  const uint64_t end = offset + length;
  for (uint64_t at = offset; at < end;) {
    size_t i = layout::component_at(layout, at);
    if (i >= layout.components.size() || !fn(*layout.components[i], i)) return false;
    if (layout.components[i]->end == 0) return true;
    at = layout.components[i]->end;
  }
  return true;
}
}  // namespace

bool Grant::covers(uint64_t offset, uint64_t length) const {
  return layout::is_instantiated(layout, offset, length) && all_components(layout, offset, length, [&](auto&, size_t i) { return i < 64 && (cap.components >> i & 1); });
}

bool Grant::reaches(uint64_t offset, uint64_t length) const {
  return all_components(layout, offset, length, [](auto& c, size_t) { return c.instantiated; });
}

bool Seen::may_have_capability() const { return at == 0 || (flags & wire::kHasCapability); }
bool Seen::may_have_privileges() const { return may_have_capability() || (mode & S_ISUID) || (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP); }

bool FileHandle::readable() const { return (flags_ & O_ACCMODE) != O_WRONLY; }
bool FileHandle::writable() const { return (flags_ & O_ACCMODE) != O_RDONLY; }

GrantPtr Inode::grant(bool write) const {
  std::lock_guard lock(mutex_);
  return write ? write_ : read_;
}

/// From a server, so anything: bounded before it is reckoned with.
Nanos left_of(const wire::CapabilityT& cap, Nanos mds_now) { return cap.expires <= 0 ? 0 : std::clamp<Nanos>(cap.expires - mds_now, 0, kMaxCapabilityLife); }

void Inode::adopt(const schema::LayoutT* layout, const wire::CapabilityT* cap, Nanos boot_now, Nanos mds_now) {
  if (!layout) return;
  auto bare = std::make_shared<Grant>();
  bare->layout = *layout;
  bare->received = boot_now;
  for (auto& c : layout->components)
    if (c && c->instantiated) bare->weight += 1 + c->stripes_used;
  std::shared_ptr<Grant> full;
  if (cap && !cap->mac.empty() && cap->generation == layout->generation) {
    full = std::make_shared<Grant>(*bare);
    full->cap = *cap;
    full->life = left_of(*cap, mds_now);
  }
  std::lock_guard lock(mutex_);
  // The objects of an older generation are on their way out: what is known of them says nothing any more.
  std::erase_if(reports_, [&](auto& r) { return r.first.generation.v < layout->generation; });
  auto offer = [&](GrantPtr& slot, uint8_t mode) {
    GrantPtr fresh = full && (cap->mode & mode) ? full : bare;
    if (!slot || fresh->layout.generation > slot->layout.generation) slot = fresh;
    else if (fresh->layout.generation == slot->layout.generation && fresh == full && (full->weight >= slot->weight || !slot->valid(boot_now))) slot = fresh;
  };
  offer(read_, wire::kCapRead);
  offer(write_, wire::kCapWrite);
}

void Inode::add(const FileHandlePtr& handle) {
  std::lock_guard lock(mutex_);
  handle->errors_seen = error_number_;
  handles_.push_back(handle);
}

void Inode::remove(const FileHandlePtr& handle) {
  std::lock_guard lock(mutex_);
  std::erase(handles_, handle);
  if (!handle->writable() || std::any_of(handles_.begin(), handles_.end(), [](auto& h) { return h->writable(); })) return;
  reports_.clear();
  unsure_ = false;
}

std::vector<FileHandlePtr> Inode::handles() const {
  std::lock_guard lock(mutex_);
  return handles_;
}

FileHandlePtr Inode::any_writer() const {
  std::lock_guard lock(mutex_);
  for (auto& h : handles_)
    if (h->writable() && !h->stale && !h->released) return h;
  return nullptr;
}

void Inode::wrote(const ObjectId& object, OstId ost, const wire::ObjectWriteReplyT& reply) {
  std::lock_guard lock(mutex_);
  auto [it, fresh] = reports_.try_emplace(object);
  if (fresh || reply.wseq > it->second.wseq()) it->second = wire::ObjectReport(to_ref(object), reply.size, reply.allocated, reply.wseq, reply.changed);
  auto& up_to = written_[ost.v];
  up_to = std::max(up_to, reply.wseq);
  seen_.mtime = std::max(seen_.mtime, reply.changed);
}

std::vector<wire::ObjectReport> Inode::reports() const {
  std::lock_guard lock(mutex_);
  std::vector<wire::ObjectReport> out;
  out.reserve(reports_.size());
  for (auto& [id, r] : reports_) out.push_back(r);
  return out;
}

void Inode::forget_reports() {
  std::lock_guard lock(mutex_);
  reports_.clear();
}

void Inode::mark_unsure() {
  std::lock_guard lock(mutex_);
  unsure_ = true;
}
bool Inode::unsure() const {
  std::lock_guard lock(mutex_);
  return unsure_;
}

std::map<uint32_t, uint64_t> Inode::written_up_to() const {
  std::lock_guard lock(mutex_);
  return written_;
}

void Inode::fail(Error why) {
  std::lock_guard lock(mutex_);
  error_ = std::move(why);
  ++error_number_;
}

std::optional<Error> Inode::take_error(FileHandle& handle) {
  std::lock_guard lock(mutex_);
  if (handle.errors_seen == error_number_) return std::nullopt;
  handle.errors_seen = error_number_;
  return error_;
}

void Inode::saw(const wire::AttrT& attr, Nanos boot_now) {
  std::lock_guard lock(mutex_);
  seen_ = {attr.atime, attr.mtime, attr.ctime, attr.mode, attr.flags, boot_now};
}

Seen Inode::seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

void Inode::set_atime(Nanos atime) {
  std::lock_guard lock(mutex_);
  seen_.atime = atime;
}

InodePtr InodeTable::get(Ino ino) {
  auto& s = shard(ino);
  std::lock_guard lock(s.mutex);
  auto& weak = s.map[ino.v];
  if (auto live = weak.lock()) return live;
  std::weak_ptr<InodeTable> table = weak_from_this();
  auto remove = [table](Inode* dead) {
    Ino number = dead->ino;
    delete dead;
    auto t = table.lock();
    if (!t) return;
    auto& s = t->shard(number);
    std::lock_guard lock(s.mutex);
    if (auto it = s.map.find(number.v); it != s.map.end() && it->second.expired()) s.map.erase(it);
  };
  auto made = InodePtr(new Inode(ino), remove);
  weak = made;
  return made;
}

InodePtr InodeTable::find(Ino ino) {
  auto& s = shard(ino);
  std::lock_guard lock(s.mutex);
  auto it = s.map.find(ino.v);
  return it == s.map.end() ? nullptr : it->second.lock();
}

std::vector<FileHandlePtr> InodeTable::all_handles() {
  std::vector<FileHandlePtr> out;
  for (auto& s : shards_) {
    std::vector<InodePtr> inodes;
    {
      std::lock_guard lock(s.mutex);
      for (auto& [number, weak] : s.map)
        if (auto live = weak.lock()) inodes.push_back(std::move(live));
    }
    for (auto& i : inodes)
      for (auto& h : i->handles()) out.push_back(h);
  }
  return out;
}

std::vector<std::unique_ptr<wire::ReclaimOpenT>> InodeTable::opens(uint64_t session) {
  std::vector<std::unique_ptr<wire::ReclaimOpenT>> out;
  for (auto& h : all_handles()) {
    if (h->stale || h->session() != session) continue;
    auto open = std::make_unique<wire::ReclaimOpenT>();
    open->ino = h->ino().v;
    open->handle = h->number();
    open->flags = h->flags();
    out.push_back(std::move(open));
  }
  return out;
}

void InodeTable::make_stale(const std::vector<uint64_t>& numbers) {
  std::vector<uint64_t> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  for (auto& h : all_handles())
    if (std::binary_search(sorted.begin(), sorted.end(), h->number())) h->stale = true;
}

void InodeTable::make_all_stale(uint64_t except_session) {
  for (auto& h : all_handles())
    if (h->session() != except_session) h->stale = true;
}

}  // namespace nacre::client
