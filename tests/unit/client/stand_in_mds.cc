// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/client/stand_in.h"

namespace nacre::test {

using rpc::fail;
using rpc::ok;

namespace {
template <class T>
T must_decode(const rpc::Request& request) {
  auto r = decode<T>(request.body);
  return r ? std::move(*r) : T{};
}
bool writes(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY; }
Nanos now() { return system_clock().real(); }
}  // namespace

void StandInMds::restarted() {
  for (auto& [id, s] : sessions_) s.reclaimed = false;
  handles_.clear();
  locks_.clear();
  waiting_.clear();
  append_tokens_.clear();
}

void StandInMds::evict() {
  std::lock_guard lock(mutex_);
  sessions_.clear();
  handles_.clear();
  locks_.clear();
}

void StandInMds::set_ost_state(uint32_t ost, uint8_t state) {
  std::lock_guard lock(mutex_);
  ost_states_[ost] = state;
  ++map_version_;
}

void StandInMds::truncate_elsewhere(Ino ino) {
  std::lock_guard lock(mutex_);
  if (auto f = file(ino.v)) new_generation(*f);
}

void StandInMds::hold_lock(Ino ino, uint64_t owner) {
  std::lock_guard lock(mutex_);
  wire::LockSpecT spec;
  spec.flock = true;
  spec.owner = owner;
  spec.type = 1;
  spec.end = INT64_MAX;
  locks_[ino.v].push_back(spec);
}

void StandInMds::drop_lock(Ino ino, uint64_t owner) {
  std::vector<Waiting> granted;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(locks_[ino.v], [&](auto& l) { return l.owner == owner; });
    granted.swap(waiting_[ino.v]);
    for (auto& w : granted) locks_[ino.v].push_back(w.spec);
  }
  for (auto& w : granted) {
    auto push = [](rpc::PeerPtr peer, wire::LockGrantedCallT call) -> Task<void> { (void)co_await rpc::call<rpc::Method::kLockGranted>(peer, std::move(call)); };
    wire::LockGrantedCallT call;
    call.ino = ino.v;
    call.waiter = w.waiter;
    w.peer->loop().spawn(push(w.peer, std::move(call)));
  }
}

std::vector<uint64_t> StandInMds::reclaimed_handles() const { std::lock_guard lock(mutex_); return reclaimed_; }
size_t StandInMds::reclaimed_locks() const { std::lock_guard lock(mutex_); return reclaimed_locks_; }
std::vector<wire::CloseRequestT> StandInMds::closes() const { std::lock_guard lock(mutex_); return closes_; }
std::map<uint64_t, Nanos> StandInMds::reported_atimes() const { std::lock_guard lock(mutex_); return atimes_; }
std::vector<uint32_t> StandInMds::last_groups() const { std::lock_guard lock(mutex_); return groups_; }
size_t StandInMds::open_handles() const { std::lock_guard lock(mutex_); return handles_.size(); }
size_t StandInMds::waiters() const {
  std::lock_guard lock(mutex_);
  size_t n = 0;
  for (auto& [ino, w] : waiting_) n += w.size();
  return n;
}
Ino StandInMds::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  auto it = names_.find(name);
  return it == names_.end() ? Ino{} : Ino(it->second);
}

StandInMds::File* StandInMds::file(uint64_t ino) {
  auto it = files_.find(ino);
  return it == files_.end() ? nullptr : &it->second;
}

std::unique_ptr<wire::AttrT> StandInMds::glimpse(File& f) const {
  uint64_t size = f.attr.size;
  for (auto& ref : layout::used_objects(f.layout, Ino(f.attr.ino)))
    for (auto* ost : osts_)
      if (ost->id == ref.ost.v) size = std::max(size, layout::file_end(*f.layout.components[ref.object.component], ref.object.stripe, ost->size(ref.object)));
  auto a = std::make_unique<wire::AttrT>(f.attr);
  a->size = size;
  return a;
}

std::unique_ptr<wire::CapabilityT> StandInMds::capability(const File& f, uint64_t session, uint8_t mode) const {
  auto c = std::make_unique<wire::CapabilityT>();
  c->session = session;
  c->ino = f.attr.ino;
  c->generation = f.layout.generation;
  c->mode = mode;
  for (size_t i = 0; i < f.layout.components.size(); ++i)
    if (f.layout.components[i]->instantiated) c->components |= uint64_t{1} << i;
  c->expires = now() + capability_life;
  c->mac.assign(16, 7);
  return c;
}

std::unique_ptr<wire::ClusterMapT> StandInMds::map() const {
  auto m = std::make_unique<wire::ClusterMapT>();
  m->version = map_version_;
  for (auto* ost : osts_) {
    auto e = std::make_unique<wire::OstEntryT>();
    e->id = ost->id;
    e->address = ost->address();
    e->up = true;
    if (auto it = ost_states_.find(ost->id); it != ost_states_.end()) e->state = it->second;
    m->osts.push_back(std::move(e));
  }
  return m;
}

void StandInMds::instantiate(File& f, uint64_t offset, uint64_t length) {
  for (auto& c : f.layout.components) {
    uint64_t end = c->end ? c->end : UINT64_MAX;
    if (offset + length <= c->start || offset >= end) continue;
    if (c->instantiated) continue;
    c->instantiated = true;
    for (uint16_t s = 0; s < c->stripe_count; ++s) c->osts.push_back(osts_[s % osts_.size()]->id);
    c->stripes_used = c->stripe_count;
  }
}

void StandInMds::new_generation(File& f) {
  auto old = layout::used_objects(f.layout, Ino(f.attr.ino));
  ++f.layout.generation;
  f.attr.size = 0;
  for (auto& c : f.layout.components) {
    c->instantiated = false;
    c->osts.clear();
    c->stripes_used = 0;
  }
  for (auto& ref : old)
    for (auto* ost : osts_)
      if (ost->id == ref.ost.v) ost->destroy(ref.object);
}

std::vector<uint8_t> StandInMds::migrate_steps() const {
  std::lock_guard lock(mutex_);
  return migrate_steps_;
}

void StandInMds::lose_migrations() {
  std::lock_guard lock(mutex_);
  for (auto& [ino, move] : moves_) seal(*file(ino), false);
  moves_.clear();
}

void StandInMds::seal(const File& f, bool on) {
  for (auto& ref : layout::used_objects(f.layout, Ino(f.attr.ino))) osts_.at(ref.ost.v)->seal(ref.object, on);
}

/// The next target for every stripe, and a generation that was never there.
rpc::Reply StandInMds::migrate(const rpc::Request& request) {
  auto q = must_decode<wire::MigrateRequestT>(request);
  auto f = file(q.ino);
  if (!f) return fail(Error(Errc::kStale));
  migrate_steps_.push_back(q.step);
  auto move = moves_.find(q.ino);
  if (q.step != 4 && (q.step != 1 || q.token != 0) && (move == moves_.end() || move->second.target.generation != q.token)) return fail(Error(Errc::kStale, "the migration is over"));
  if (q.step == 1 && q.token == 0) {
    Move fresh{f->layout, false};
    fresh.target.generation = shadows_[q.ino] = std::max(f->layout.generation, shadows_[q.ino]) + 1;
    for (auto& c : fresh.target.components)
      for (auto& ost : c->osts) ost = (ost + 1) % static_cast<uint32_t>(osts_.size());
    move = moves_.insert_or_assign(q.ino, std::move(fresh)).first;
  }
  if (q.step == 4) {
    if (move != moves_.end()) seal(*f, false), moves_.erase(move);
    return ok(wire::MigrateReplyT{});
  }
  wire::MigrateReplyT out;
  out.token = move->second.target.generation;
  out.source = std::make_unique<schema::LayoutT>(f->layout);
  out.target = std::make_unique<schema::LayoutT>(move->second.target);
  File shadow = *f;
  shadow.layout = move->second.target;
  out.target_cap = capability(shadow, request.header.session, wire::kCapRead | wire::kCapWrite);
  if (q.step == 2) seal(*f, move->second.sealed = true);
  if (q.step == 3) {
    const auto old = layout::used_objects(f->layout, Ino(q.ino));
    f->layout = move->second.target;
    moves_.erase(move);
    for (auto& ref : old) osts_.at(ref.ost.v)->destroy(ref.object);
  }
  out.attr = glimpse(*f);
  return ok(out);
}

rpc::Reply StandInMds::serve(rpc::PeerPtr peer, const rpc::Request& request) {
  auto method = static_cast<rpc::Method>(request.header.method);
  if (method == rpc::Method::kSessionOpen) return session_open(peer, request);
  auto s = sessions_.find(request.header.session);
  if (s == sessions_.end()) return fail(Error(Errc::kNoSession));
  if (!s->second.reclaimed && method != rpc::Method::kReclaim && method != rpc::Method::kSessionBind) return fail(Error(Errc::kRecovering));
  const bool once = rpc::method_flags(request.header.method) & rpc::kOnce;
  if (once) {
    if (request.header.sequence == 0 || request.header.slot >= slots) return fail(Error(Errc::kProtocol, "a request without a slot"));
    auto& [sequence, stored] = s->second.replies[request.header.slot];
    if (request.header.sequence == sequence) return rpc::Reply{stored.status, stored.detail, stored.body, {}};
    if (request.header.sequence < sequence) return fail(Error(Errc::kProtocol, "an old sequence"));
  }
  ++served_[request.header.method];
  auto reply = execute(peer, request);
  if (once && reply.status == Errc::kOk) s->second.replies[request.header.slot] = {request.header.sequence, rpc::Reply{reply.status, reply.detail, reply.body, {}}};
  return reply;
}

rpc::Reply StandInMds::session_open(rpc::PeerPtr, const rpc::Request& request) {
  auto r = must_decode<wire::SessionOpenRequestT>(request);
  ++served_[request.header.method];
  if (r.subdir == "/nowhere") return fail(Error(Errc::kNoEnt, "no directory /nowhere"));
  wire::SessionOpenReplyT out;
  out.resumed = r.resume && sessions_.contains(r.resume);
  out.session = out.resumed ? r.resume : next_session_++;
  auto& s = sessions_[out.session];
  out.incarnation = incarnation();
  out.slots = static_cast<uint16_t>(slots);
  out.keepalive_ms = 100;
  out.lease_term_ms = 30000;
  out.recovering = !s.reclaimed;
  out.map = map();
  out.root = std::make_unique<wire::AttrT>();
  out.root->ino = 1;
  out.root->mode = S_IFDIR | 0755;
  out.time = now();
  return ok(out);
}

bool StandInMds::lock_free(uint64_t ino, const wire::LockSpecT& spec) const {
  auto it = locks_.find(ino);
  if (it == locks_.end()) return true;
  for (auto& l : it->second)
    if (l.owner != spec.owner && l.flock == spec.flock && (l.type == 1 || spec.type == 1) && l.start <= spec.end && spec.start <= l.end) return false;
  return true;
}

rpc::Reply StandInMds::lock(rpc::PeerPtr peer, const rpc::Request& request) {
  auto r = must_decode<wire::LockRequestT>(request);
  auto& held = locks_[r.ino];
  if (r.lock->type == 2) {
    std::erase_if(held, [&](auto& l) { return l.owner == r.lock->owner && l.flock == r.lock->flock; });
    return ok(wire::EmptyT{});
  }
  if (lock_free(r.ino, *r.lock)) {
    held.push_back(*r.lock);
    return ok(wire::EmptyT{});
  }
  if (!r.wait) return fail(Error(Errc::kAgain));
  std::erase_if(waiting_[r.ino], [&](auto& w) { return w.waiter == r.waiter; });
  waiting_[r.ino].push_back({request.header.session, r.waiter, *r.lock, peer});
  return fail(Error(Errc::kWouldBlock));
}

rpc::Reply StandInMds::open_reply(File& f, uint64_t handle, uint32_t flags, bool created, uint64_t session) {
  if (writes(flags)) instantiate(f, 0, 1);
  handles_[{session, handle}] = {f.attr.ino, flags};
  wire::OpenReplyT out;
  out.attr = glimpse(f);
  out.created = created;
  out.layout = std::make_unique<schema::LayoutT>(f.layout);
  uint8_t mode = (flags & O_ACCMODE) == O_RDONLY ? wire::kCapRead : (flags & O_ACCMODE) == O_WRONLY ? wire::kCapWrite : wire::kCapRead | wire::kCapWrite;
  out.cap = capability(f, session, mode);
  return ok(out);
}

rpc::Reply StandInMds::set_attributes(const rpc::Request& request) {
  auto r = must_decode<wire::SetattrRequestT>(request);
  auto f = file(r.ino);
  if (!f) return fail(Error(Errc::kNoEnt));
  wire::SetattrReplyT out;
  if (r.kill_priv) f->attr.mode &= ~static_cast<uint32_t>(S_ISUID);
  if (r.valid & wire::kSetMode) f->attr.mode = (f->attr.mode & S_IFMT) | r.mode;
  if (r.valid & wire::kSetSize) {
    if (r.size == 0 && !other_session_open) {
      new_generation(*f);
      instantiate(*f, 0, 1);
    } else {
      for (auto& ref : layout::used_objects(f->layout, Ino(r.ino)))
        for (auto* ost : osts_)
          if (ost->id == ref.ost.v) ost->truncate(ref.object, layout::object_end(*f->layout.components[ref.object.component], ref.object.stripe, r.size));
      f->attr.size = r.size;
    }
    out.layout = std::make_unique<schema::LayoutT>(f->layout);
    out.cap = capability(*f, request.header.session, wire::kCapRead | wire::kCapWrite);
  }
  out.attr = glimpse(*f);
  return ok(out);
}

rpc::Reply StandInMds::execute(rpc::PeerPtr peer, const rpc::Request& request) {
  using M = rpc::Method;
  const uint64_t session = request.header.session;
  switch (static_cast<M>(request.header.method)) {
    case M::kSessionBind:
    case M::kSessionClose:
    case M::kSync: return ok(wire::EmptyT{});
    case M::kKeepalive: {
      auto r = must_decode<wire::KeepaliveRequestT>(request);
      for (auto& a : r.atimes) {
        atimes_[a.ino()] = a.atime();
        if (auto f = file(a.ino())) f->attr.atime = std::max<int64_t>(f->attr.atime, a.atime());
      }
      wire::KeepaliveReplyT out;
      out.map_version = map_version_;
      out.time = now();
      return ok(out);
    }
    case M::kMapGet: return ok(*map());
    case M::kReclaim: {
      auto r = must_decode<wire::ReclaimRequestT>(request);
      for (auto& o : r.opens) {
        reclaimed_.push_back(o->handle);
        handles_[{session, o->handle}] = {o->ino, o->flags};
      }
      for (auto& l : r.locks) locks_[l->ino].push_back(*l->lock);
      reclaimed_locks_ += r.locks.size();
      if (r.done) sessions_[session].reclaimed = true;
      return ok(wire::ReclaimReplyT{});
    }
    case M::kLookup: {
      auto r = must_decode<wire::LookupRequestT>(request);
      auto it = names_.find(std::string(as_text(r.name)));
      if (it == names_.end()) return fail(Error(Errc::kNoEnt));
      wire::EntryReplyT out;
      out.attr = glimpse(files_[it->second]);
      return ok(out);
    }
    case M::kGetattr: {
      auto r = must_decode<wire::GetattrRequestT>(request);
      groups_ = r.cred->groups;
      if (ask_for_groups && r.cred->uid == 1000 && !r.cred->groups_known) return fail(Error(Errc::kNeedGroups));
      auto f = file(r.ino);
      if (!f) return fail(Error(Errc::kNoEnt));
      wire::AttrReplyT out;
      out.attr = glimpse(*f);
      return ok(out);
    }
    case M::kSetattr: return set_attributes(request);
    case M::kMknod: {
      auto r = must_decode<wire::MknodRequestT>(request);
      std::string name(as_text(r.name));
      if (names_.contains(name)) return fail(Error(Errc::kExist));
      auto& f = files_[next_ino_];
      f.attr.ino = names_[name] = next_ino_++;
      f.attr.mode = r.mode;
      wire::EntryReplyT out;
      out.attr = std::make_unique<wire::AttrT>(f.attr);
      return ok(out);
    }
    case M::kCreate: {
      auto r = must_decode<wire::CreateRequestT>(request);
      std::string name(as_text(r.name));
      if (auto it = names_.find(name); it != names_.end()) {
        if (r.flags & O_EXCL) return fail(Error(Errc::kExist));
        return open_reply(files_[it->second], r.handle, r.flags, false, session);
      }
      auto& f = files_[next_ino_];
      f.attr.ino = names_[name] = next_ino_++;
      f.attr.mode = S_IFREG | r.mode;
      f.attr.nlink = 1;
      if (small) {
        auto c = std::make_unique<schema::ComponentT>();
        c->end = small;
        c->stripe_size = stripe_size;
        c->stripe_count = 1;
        f.layout.components.push_back(std::move(c));
      }
      auto c = std::make_unique<schema::ComponentT>();
      c->start = small;
      c->stripe_size = stripe_size;
      c->stripe_count = stripe_count;
      f.layout.components.push_back(std::move(c));
      return open_reply(f, r.handle, r.flags, true, session);
    }
    case M::kOpen: {
      auto r = must_decode<wire::OpenRequestT>(request);
      auto f = file(r.ino);
      if (!f) return fail(Error(Errc::kNoEnt));
      if (r.flags & O_TRUNC) new_generation(*f);
      return open_reply(*f, r.handle, r.flags, false, session);
    }
    case M::kClose: {
      auto r = must_decode<wire::CloseRequestT>(request);
      if (r.flush_only) {
        std::erase_if(locks_[r.ino], [&](auto& l) { return !l.flock && l.owner == r.lock_owner; });
        return ok(wire::AttrReplyT{});
      }
      handles_.erase({session, r.handle});
      if (r.unlock_flock) std::erase_if(locks_[r.ino], [&](auto& l) { return l.flock && l.owner == r.lock_owner; });
      closes_.push_back(r);
      return ok(wire::AttrReplyT{});
    }
    case M::kUnlink: {
      auto r = must_decode<wire::UnlinkRequestT>(request);
      return names_.erase(std::string(as_text(r.name))) ? ok(wire::EmptyT{}) : fail(Error(Errc::kNoEnt));
    }
    case M::kRename: {
      auto r = must_decode<wire::RenameRequestT>(request);
      auto it = names_.find(std::string(as_text(r.name)));
      if (it == names_.end()) return fail(Error(Errc::kNoEnt));
      uint64_t ino = it->second;
      names_.erase(it);
      names_[std::string(as_text(r.new_name))] = ino;
      return ok(wire::EmptyT{});
    }
    case M::kMigrate: return migrate(request);
    case M::kLayoutGet: {
      auto r = must_decode<wire::LayoutGetRequestT>(request);
      wire::LayoutGetReplyT out;
      if (auto f = file(r.ino)) out.layout = std::make_unique<schema::LayoutT>(f->layout);
      return ok(out);
    }
    case M::kLayoutGrant: {
      auto r = must_decode<wire::LayoutRequestT>(request);
      auto f = file(r.ino);
      if (!f) return fail(Error(Errc::kStale));
      if (auto move = moves_.find(r.ino); r.write && move != moves_.end() && move->second.sealed) return fail(Error(Errc::kRetryLater));
      auto h = handles_.find({session, r.handle});
      if (h == handles_.end()) return fail(Error(Errc::kBadF));
      if (r.write) instantiate(*f, r.offset, r.length);
      wire::LayoutReplyT out;
      out.layout = std::make_unique<schema::LayoutT>(f->layout);
      out.cap = capability(*f, session, writes(h->second.second) ? ((h->second.second & O_ACCMODE) == O_RDWR ? 3 : 2) : 1);
      return ok(out);
    }
    case M::kAppendBegin: {
      auto r = must_decode<wire::AppendBeginRequestT>(request);
      auto f = file(r.ino);
      if (!f) return fail(Error(Errc::kStale));
      auto it = append_tokens_.find(r.ino);
      if (it != append_tokens_.end() && (it->second.session != session || it->second.handle != r.handle)) return fail(Error(Errc::kRetryLater, "somebody else appends"));
      append_tokens_[r.ino] = {next_token_, session, r.handle};
      auto a = glimpse(*f);
      instantiate(*f, a->size, r.length);
      wire::AppendBeginReplyT out;
      out.token = next_token_++;
      out.size = a->size;
      out.layout = std::make_unique<schema::LayoutT>(f->layout);
      out.cap = capability(*f, session, wire::kCapWrite);
      return ok(out);
    }
    case M::kAppendEnd: {
      auto r = must_decode<wire::AppendEndRequestT>(request);
      if (auto it = append_tokens_.find(r.ino); it != append_tokens_.end() && it->second.token == r.token) append_tokens_.erase(it);
      return ok(wire::EmptyT{});
    }
    case M::kLock: return lock(peer, request);
    case M::kLockCancel: {
      auto r = must_decode<wire::LockCancelRequestT>(request);
      wire::LockCancelReplyT out;
      out.was_granted = std::erase_if(waiting_[r.ino], [&](auto& w) { return w.waiter == r.waiter; }) == 0;
      return ok(out);
    }
    case M::kStatfs: {
      wire::StatfsReplyT out;
      out.blocks = 1000;
      return ok(out);
    }
    default: return fail(Error(Errc::kOpNotSupp));
  }
}

}  // namespace nacre::test
