// SPDX-License-Identifier: Apache-2.0
// See sessions.h.
#include "metadata/leases/sessions.h"

#include <algorithm>

namespace nacre::mds {

Result<std::unique_ptr<Sessions>> Sessions::open(Journal& journal, RangeAllocator& ids, Options options) {
  std::unique_ptr<Sessions> out(new Sessions(journal, ids, options));
  const Nanos now = options.clock->boot();
  out->window_end_ = now + options.recovery_window;
  Result<void> bad;
  View view(journal.store(), Tier::kFull);
  auto scanned = view.scan(Family::kSession, "", "", [&](std::string_view key, std::string_view value) {
    auto id = parse_session_key(key);
    auto record = decode_record<schema::SessionRecordT>(value);
    if (!id || !record || id->v != record->id) {
      bad = Err(Errc::kCorrupt, "a session record is damaged: run nacre fsck");
      return false;
    }
    const auto state = record->evicted ? Session::State::kEvicting : Session::State::kUnreclaimed;
    auto session = std::make_shared<Session>(std::move(*record), state, now, true);
    if (state == Session::State::kEvicting) out->interrupted_.push_back(session);
    if (session->record().locks) ++out->unreclaimed_lockers_;
    ++out->unreclaimed_;  // an interrupted eviction holds the window open too, until it is through
    out->sessions_.emplace(*id, std::move(session));
    return true;
  });
  if (!scanned) return std::unexpected(std::move(scanned).error());
  if (!bad) return std::unexpected(std::move(bad).error());
  return out;
}

Task<Result<SessionPtr>> Sessions::create(wire::SessionOpenRequestT request, rpc::PeerInfo peer) {
  if (request.client_uuid.size() != 16) co_return Err(Errc::kInval, "a client's id has 16 bytes");
  if (request.host.size() > kMaxSessionText || request.mount.size() > kMaxSessionText * 16) co_return Err(Errc::kInval, "the client's host or mount point is too long");
  if (size() >= kMaxSessions) co_return Err(Errc::kRetryLater, "the server has its most sessions: evict stale ones with 'nacre client evict'");
  auto number = ids_.take();
  if (!number) {
    CO_CHECK_OK(co_await ids_.refill());
    number = ids_.take();
    if (!number) co_return Err(Errc::kRetryLater, "no session number is ready");
  }
  schema::SessionRecordT record;
  record.id = *number;
  record.client_uuid = std::move(request.client_uuid);
  record.host = std::move(request.host);
  record.mount = std::move(request.mount);
  record.pid = request.pid;
  record.created = record.last_seen = options_.clock->real();
  record.trusted = peer.trusted;
  record.uid = peer.uid;
  record.subdir = std::move(request.subdir);
  record.read_only = request.read_only;
  Batch batch;
  batch.put_record(Family::kSession, session_key(SessionId(record.id)), record);
  auto committed = journal_.commit(std::move(batch));
  if (!committed) co_return std::unexpected(std::move(committed).error());
  CO_CHECK_OK(co_await journal_.sync_to(*committed));
  auto session = std::make_shared<Session>(std::move(record), Session::State::kActive, options_.clock->boot());
  std::lock_guard guard(mutex_);
  sessions_.emplace(session->id(), session);
  co_return session;
}

SessionPtr Sessions::find(SessionId id) const {
  std::lock_guard guard(mutex_);
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second;
}

SessionPtr Sessions::resume(SessionId id, const std::vector<uint8_t>& client_uuid) const {
  SessionPtr s = find(id);
  if (!s || s->state() == Session::State::kEvicting || s->record().client_uuid != client_uuid) return nullptr;
  return s;
}

std::vector<SessionPtr> Sessions::others_of(const std::vector<uint8_t>& client_uuid, SessionId but) const {
  std::vector<SessionPtr> out;
  std::lock_guard guard(mutex_);
  for (const auto& [id, s] : sessions_)
    if (id != but && s->record().client_uuid == client_uuid && s->state() != Session::State::kEvicting) out.push_back(s);
  return out;
}

std::vector<SessionPtr> Sessions::after(SessionId id, size_t limit) const {
  std::vector<SessionPtr> out;
  std::lock_guard guard(mutex_);
  for (auto it = sessions_.upper_bound(id); it != sessions_.end() && out.size() < limit; ++it) out.push_back(it->second);
  return out;
}

size_t Sessions::size() const {
  std::lock_guard guard(mutex_);
  return sessions_.size();
}

bool Sessions::finish_reclaim(Session& session) {
  if (!session.move_state(Session::State::kUnreclaimed, Session::State::kActive)) return false;
  ++reclaimed_;
  let_window_go(session);
  return true;
}

void Sessions::let_window_go(Session& session) {
  if (!session.let_window_go()) return;
  if (session.record().locks) --unreclaimed_lockers_;
  --unreclaimed_;
}

// ---------------------------------------------------------------- who may have locks

/// Under the mutex of the session's lock mark.
Result<JournalNo> Sessions::put_record(const Session& session, bool evicted, bool locks) {
  schema::SessionRecordT record = session.record();
  record.evicted = evicted;
  record.locks = locks;
  Batch batch;
  batch.put_record(Family::kSession, session_key(session.id()), record);
  return journal_.commit(std::move(batch));
}

Task<Result<LockNote>> Sessions::note_locks(SessionPtr session) {
  auto& mark = session->lock_mark();
  JournalNo number;
  {
    std::lock_guard guard(mark.mutex);
    if (!mark.stored) {
      CO_TRY(mark.number, put_record(*session, false, true));
      mark.stored = true;
    }
    mark.asked = options_.clock->boot();
    ++mark.under_way;
    number = mark.number;
  }
  LockNote note(std::move(session));
  CO_CHECK_OK(co_await journal_.sync_to(number));
  co_return note;
}

Result<void> Sessions::forget_locks(const std::function<bool(SessionId)>& idle) {
  const Nanos now = options_.clock->boot();
  std::vector<SessionPtr> marked;
  {
    std::lock_guard guard(mutex_);
    for (const auto& [id, s] : sessions_) {
      std::lock_guard mark_guard(s->lock_mark().mutex);
      if (s->lock_mark().stored && now - s->lock_mark().asked >= kLockIdle) marked.push_back(s);
    }
  }
  for (const auto& s : marked) {
    auto& mark = s->lock_mark();
    std::lock_guard guard(mark.mutex);
    if (s->state() != Session::State::kActive || mark.under_way != 0 || now - mark.asked < kLockIdle || !idle(s->id())) continue;
    NACRE_CHECK_OK(put_record(*s, false, false));  // a power loss that takes it back costs a wait, nothing else
    mark.stored = false;
  }
  return {};
}

void Sessions::all_seen(Nanos now) {
  std::lock_guard guard(mutex_);
  for (auto& [id, s] : sessions_) s->seen(now);
}

std::vector<SessionPtr> Sessions::expired() const {
  const Nanos now = options_.clock->boot();
  const Nanos silence = options_.term + 2 * options_.skew;
  std::vector<SessionPtr> out;
  std::lock_guard guard(mutex_);
  for (const auto& [id, s] : sessions_) {
    const auto state = s->state();
    if (state == Session::State::kActive && now - s->last_seen() > silence) out.push_back(s);
    if (state == Session::State::kUnreclaimed && now >= window_end_) out.push_back(s);
  }
  return out;
}

std::vector<SessionPtr> Sessions::marked_evicted() const {
  std::lock_guard guard(mutex_);
  return interrupted_;
}

Result<bool> Sessions::begin_evict(Session& session) {
  if (!session.move_state(Session::State::kActive, Session::State::kEvicting) && !session.move_state(Session::State::kUnreclaimed, Session::State::kEvicting)) return false;
  {
    std::lock_guard guard(mutex_);
    if (!sessions_.contains(session.id())) return false;
  }
  std::lock_guard guard(session.lock_mark().mutex);
  NACRE_CHECK_OK(put_record(session, true, session.lock_mark().stored));
  return true;
}

Result<void> Sessions::erase(SessionPtr session) {
  Batch batch;
  batch.del(Family::kSession, session_key(session->id()));
  batch.del_range(Family::kReply, reply_prefix(session->id()), prefix_end(reply_prefix(session->id())));
  {
    std::lock_guard guard(session->lock_mark().mutex);  // nobody may bring the row back
    auto committed = journal_.commit(std::move(batch));
    if (!committed) return std::unexpected(std::move(committed).error());
  }
  let_window_go(*session);
  std::lock_guard guard(mutex_);
  sessions_.erase(session->id());
  std::erase(interrupted_, session);
  return {};
}

}  // namespace nacre::mds
