// SPDX-License-Identifier: Apache-2.0
// See evictor.h.
#include "metadata/background/evictor.h"

#include "common/log/log.h"
#include "common/wire/bits.h"

namespace nacre::mds {

Task<Result<void>> Evictor::evict(SessionPtr session, std::string why) {
  CO_TRY(bool begun, p_.sessions.begin_evict(*session));
  if (!begun) co_return Result<void>{};
  const auto& r = session->record();
  log::warn("session {} ({} on {}, pid {}) is evicted: {}", r.id, r.mount, r.host, r.pid, why);
  session->cancel()->fire(Errc::kNoSession);
  co_await session->close_gate();
  CO_CHECK_OK(co_await p_.services.journal.sync_to(p_.services.journal.committed()));
  co_return co_await finish(session);
}

Task<Result<void>> Evictor::end(SessionPtr session) {
  if (!session->move_state(Session::State::kActive, Session::State::kEvicting) && !session->move_state(Session::State::kUnreclaimed, Session::State::kEvicting))
    co_return Result<void>{};
  session->cancel()->fire(Errc::kNoSession);
  co_await session->close_gate();
  co_await p_.settler.close_session(session->id());
  p_.driver.slots().forget(session->id());
  co_return p_.sessions.erase(session);
}

Task<Result<void>> Evictor::finish(SessionPtr session) {
  co_await fence(session);
  if (p_.runtime.stopping()) co_return Err(Errc::kShutdown);
  co_await p_.settler.close_session(session->id());
  if (p_.runtime.stopping()) co_return Err(Errc::kShutdown);  // the mark is on record: the next start goes on
  p_.driver.slots().forget(session->id());
  co_return p_.sessions.erase(session);
}

/// Complete when every target has stored the fence or no capability of the session is valid any more.
Task<void> Evictor::fence(SessionPtr session) {
  Clock& clock = p_.runtime.clock();
  // After a restart nobody knows what it was given last: at most one term from the end of the previous run.
  const Nanos last = session->last_capability() != 0 ? session->last_capability() : clock.real() + p_.capability_term;
  const Nanos until = last + kFenceMargin;
  const Nanos deadline = clock.boot() + std::max<Nanos>(until - clock.real(), 0);
  p_.registry.fence(session->id(), until);
  std::vector<Task<Result<void>>> tasks;
  auto one = [](Evictor& self, OstId ost, wire::FenceRequestT request, Nanos expiry) -> Task<Result<void>> {
    auto done = co_await self.p_.channels.call<rpc::Method::kObjectFence>(ost, request, expiry);
    if (!done && done.error().code == Errc::kOstInactive) {  // unreachable by decree: wait for the capabilities
      const Nanos left = expiry - self.p_.runtime.clock().boot();
      if (left > 0) (void)co_await sleep_for(left);
    }
    co_return Result<void>{};
  };
  for (const Candidate& c : p_.registry.candidates()) {
    wire::FenceRequestT request;
    request.session = session->id().v;
    request.until = until;
    tasks.push_back(one(*this, c.id, request, deadline));
  }
  (void)co_await when_all(std::move(tasks));
}

Task<void> Evictor::take_over(SessionPtr session) {
  auto done = co_await finish(session);
  if (!done && done.error().code != Errc::kShutdown) log::error("the eviction of session {} can't be completed: {}", session->id().v, done.error().message());
}

Task<void> Evictor::run() {
  for (auto& s : p_.sessions.marked_evicted()) Loop::current()->spawn(take_over(s));
  auto drop = [](Evictor& self, SessionPtr s, std::string why) -> Task<void> {
    auto done = co_await self.evict(s, std::move(why));
    if (!done && done.error().code != Errc::kShutdown) log::error("session {} can't be evicted: {}", s->id().v, done.error().message());
  };
  Nanos last = p_.runtime.clock().boot();
  while (!p_.runtime.stopping()) {
    const Nanos now = p_.runtime.clock().boot();
    if (now - last > kEvictPoll + kOwnPause) {
      log::warn("this server stood still for {} ms: leases of its clients and heartbeats count from now", (now - last) / kMillisecond);
      p_.sessions.all_seen(now);
      p_.registry.all_heard(now);
    }
    last = now;
    p_.registry.tick();
    if (auto done = p_.sessions.forget_locks([this](SessionId id) { return p_.locks.idle(id); }); !done) co_return;  // the journal has failed: the server ends
    for (auto& s : p_.sessions.expired()) {
      const bool unreclaimed = s->state() == Session::State::kUnreclaimed;
      Loop::current()->spawn(drop(*this, s, unreclaimed ? "it did not come back within the recovery window" : "nothing was heard of it for its lease term"));
    }
    if (auto slept = co_await sleep_for(kEvictPoll); !slept) co_return;
  }
}

}  // namespace nacre::mds
