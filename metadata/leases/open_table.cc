// SPDX-License-Identifier: Apache-2.0
// See open_table.h. A shard's mutex is held for a few map operations; the counts per session have a mutex of their own.
#include "metadata/leases/open_table.h"

#include <fcntl.h>

#include <algorithm>

#include "common/layout/layout.h"
#include "common/wire/bits.h"

namespace nacre::mds {

bool flags_write(uint32_t flags) { return (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR; }
bool flags_read(uint32_t flags) { return (flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR; }
bool flags_append(uint32_t flags) { return (flags & O_APPEND) != 0; }

// ---------------------------------------------------------------- registration

bool OpenTable::charge(SessionId session) {
  std::lock_guard guard(counts_mutex_);
  size_t& n = counts_[session];
  if (n >= kMaxOpensPerSession) return false;
  ++n;
  return true;
}

void OpenTable::uncharge(SessionId session) {
  std::lock_guard guard(counts_mutex_);
  auto it = counts_.find(session);
  if (it != counts_.end() && --it->second == 0) counts_.erase(it);
}

void OpenTable::begin_writing(State& s, const schema::LayoutT* layout) {
  s.reports.clear();
  s.used.clear();
  s.unsure = false;
  s.generation = layout ? layout->generation : 0;
  if (!layout) return;
  for (const auto& c : layout->components) s.used.push_back(c->instantiated ? c->stripes_used : 0);
}

bool OpenTable::add(Ino ino, SessionId session, uint64_t handle, uint32_t flags, const schema::LayoutT* layout) {
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it != sh.inodes.end() && it->second.openers.contains({session, handle})) return true;
  if (!charge(session)) return false;
  State& s = it == sh.inodes.end() ? sh.inodes[ino] : it->second;
  if (flags_write(flags)) {
    if (s.writers == 0) begin_writing(s, layout);
    ++s.writers;
  }
  s.openers.emplace(Key{session, handle}, flags);
  return true;
}

void OpenTable::add_lost(Ino ino, SessionId session) {
  add(ino, session, kLostHandle, O_WRONLY, nullptr);
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  if (auto it = sh.inodes.find(ino); it != sh.inodes.end()) it->second.unsure = true;
}

// ---------------------------------------------------------------- queries

std::optional<uint32_t> OpenTable::flags(Ino ino, SessionId session, uint64_t handle) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return std::nullopt;
  auto o = it->second.openers.find({session, handle});
  if (o == it->second.openers.end()) return std::nullopt;
  return o->second;
}

bool OpenTable::sole_quiet_writer(Ino ino, SessionId session) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return false;
  const State& state = it->second;
  if (state.writers != 1 || state.settling != 0 || state.unsure || !state.reports.empty()) return false;
  return std::ranges::any_of(state.openers, [&](const auto& o) { return o.first.session == session && flags_write(o.second) && o.first.handle != kLostHandle; });
}

bool OpenTable::open_for_write(Ino ino) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  return it != sh.inodes.end() && (it->second.writers > 0 || it->second.settling > 0);
}

bool OpenTable::is_open(Ino ino) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  return it != sh.inodes.end() && !it->second.idle();
}

bool OpenTable::open_elsewhere(Ino ino, SessionId self) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return false;
  return std::any_of(it->second.openers.begin(), it->second.openers.end(), [&](const auto& o) { return o.first.session != self; });
}

bool OpenTable::writes(Ino ino, SessionId session) const { return (rights(ino, session) & wire::kCapWrite) != 0; }

bool OpenTable::has_lost(Ino ino) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  return it != sh.inodes.end() && std::any_of(it->second.openers.begin(), it->second.openers.end(), [](const auto& o) { return o.first.handle == kLostHandle; });
}

uint8_t OpenTable::rights(Ino ino, SessionId session) const {
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return 0;
  uint8_t out = 0;
  for (auto o = it->second.openers.lower_bound({session, 0}); o != it->second.openers.end() && o->first.session == session; ++o) {
    if (flags_read(o->second)) out |= wire::kCapRead;
    if (flags_write(o->second)) out |= wire::kCapWrite;
  }
  return out;
}

std::vector<SessionId> OpenTable::appenders(Ino ino, SessionId except) const {
  std::vector<SessionId> out;
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return out;
  for (const auto& [key, flags] : it->second.openers)
    if (key.session != except && flags_append(flags) && (out.empty() || out.back() != key.session)) out.push_back(key.session);
  return out;
}

size_t OpenTable::count(SessionId session) const {
  std::lock_guard guard(counts_mutex_);
  auto it = counts_.find(session);
  return it == counts_.end() ? 0 : it->second;
}

size_t OpenTable::total() const {
  std::lock_guard guard(counts_mutex_);
  size_t n = 0;
  for (const auto& [session, count] : counts_) n += count;
  return n;
}

std::vector<Ino> OpenTable::inodes_of(SessionId session) const {
  std::vector<Ino> out;
  if (count(session) == 0) return out;
  for (const Shard& sh : shards_) {
    std::lock_guard guard(sh.mutex);
    for (const auto& [ino, s] : sh.inodes)
      if (auto o = s.openers.lower_bound({session, 0}); o != s.openers.end() && o->first.session == session) out.push_back(ino);
  }
  return out;
}

std::vector<uint64_t> OpenTable::handles(Ino ino, SessionId session) const {
  std::vector<uint64_t> out;
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return out;
  for (auto o = it->second.openers.lower_bound({session, 0}); o != it->second.openers.end() && o->first.session == session; ++o) out.push_back(o->first.handle);
  return out;
}

// ---------------------------------------------------------------- closing

OpenTable::Closing OpenTable::peek(Ino ino, SessionId session, uint64_t handle) const {
  Closing out;
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return out;
  const State& s = it->second;
  auto own = s.openers.find({session, handle});
  if (own == s.openers.end()) return out;
  out.known = true;
  out.last_open = s.openers.size() == 1;
  if (!flags_write(own->second)) return out;
  out.last_writer = s.writers == 1;
  out.session_done = true;
  for (auto o = s.openers.lower_bound({session, 0}); o != s.openers.end() && o->first.session == session; ++o)
    if (o != own && flags_write(o->second)) out.session_done = false;
  return out;
}

void OpenTable::remove(Ino ino, SessionId session, uint64_t handle) {
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return;
  State& s = it->second;
  auto own = s.openers.find({session, handle});
  if (own == s.openers.end()) return;
  const bool wrote = flags_write(own->second);
  s.openers.erase(own);
  uncharge(session);
  if (wrote && --s.writers == 0) ++s.settling;
  if (s.idle()) sh.inodes.erase(it);
}

void OpenTable::settled(Ino ino) {
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end() || it->second.settling == 0) return;
  --it->second.settling;
  if (it->second.idle()) sh.inodes.erase(it);
}

// ---------------------------------------------------------------- reports

void OpenTable::report(Ino ino, const std::vector<wire::ObjectReport>& reports, bool unsure) {
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end() || it->second.writers == 0) return;
  State& s = it->second;
  s.unsure = s.unsure || unsure;
  for (const wire::ObjectReport& r : reports) {
    const ObjectId object = to_id(r.object());
    if (object.ino != ino) continue;
    if (s.reports.size() >= kMaxReports && !s.reports.contains(object)) {
      s.unsure = true;
      continue;
    }
    auto [at, fresh] = s.reports.emplace(object, r);
    if (!fresh && r.wseq() > at->second.wseq()) at->second = r;
  }
}

void OpenTable::objects_changed(Ino ino) {
  cuts_[std::hash<Ino>{}(ino) % kCutCounters].fetch_add(1);
  Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end()) return;
  it->second.reports.clear();
  it->second.unsure = true;
}

uint64_t OpenTable::cuts(Ino ino) const { return cuts_[std::hash<Ino>{}(ino) % kCutCounters].load(); }

std::optional<Glimpse> OpenTable::from_reports(const schema::InodeRecordT& record) const {
  const Ino ino(record.ino);
  Glimpse out{ino};
  const Shard& sh = shard(ino);
  std::lock_guard guard(sh.mutex);
  auto it = sh.inodes.find(ino);
  if (it == sh.inodes.end() || it->second.unsure) return std::nullopt;
  const State& s = it->second;
  if (!record.layout) return out;
  size_t of_this_generation = 0;
  for (const auto& [object, r] : s.reports) {
    if (object.generation.v != record.layout->generation) continue;  // of data that a truncate has replaced
    if (object.component >= record.layout->components.size()) return std::nullopt;
    const auto& c = *record.layout->components[object.component];
    if (object.stripe >= c.osts.size()) return std::nullopt;
    ++of_this_generation;
    out.size = std::max(out.size, layout::file_end(c, object.stripe, r.size()));
    out.allocated += r.allocated();
    out.changed = std::max(out.changed, r.changed());
  }
  if (of_this_generation == 0) return out;
  // Objects that existed before the first writer came and were not reported still count in `allocated`: ask them.
  if (s.generation == record.layout->generation)
    for (size_t c = 0; c < s.used.size(); ++c)
      for (uint16_t stripe = 0; stripe < s.used[c]; ++stripe)
        if (!s.reports.contains({ino, Generation(s.generation), static_cast<uint16_t>(c), stripe})) return std::nullopt;
  return out;
}

}  // namespace nacre::mds
