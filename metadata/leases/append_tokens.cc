// SPDX-License-Identifier: Apache-2.0
// See append_tokens.h.
#include "metadata/leases/append_tokens.h"

#include <algorithm>

namespace nacre::mds {

Task<Result<uint64_t>> AppendTokens::acquire(Ask ask, Nanos deadline, CancelPtr cancel) {
  std::shared_ptr<Waiter> waiter;
  {
    std::lock_guard guard(mutex_);
    State& s = inodes_[ask.ino];
    if (s.token == 0) {
      s.session = ask.session;
      s.handle = ask.handle;
      s.token = next_++;
      co_return s.token;
    }
    if (s.session == ask.session && s.handle == ask.handle) co_return s.token;
    if (s.queue.size() >= kMaxAppendWaiters) co_return Err(Errc::kRetryLater, "too many appends wait for this file");
    waiter = std::make_shared<Waiter>();
    waiter->ask = ask;
    s.queue.push_back(waiter);
  }
  auto woken = co_await waiter->signal.wait(deadline, std::move(cancel));
  std::lock_guard guard(mutex_);
  if (waiter->token != 0) co_return waiter->token;  // also if the wait ended in the same moment: a repeat would get it too
  if (auto it = inodes_.find(ask.ino); it != inodes_.end()) std::erase(it->second.queue, waiter);
  if (!woken) co_return std::unexpected(std::move(woken).error());
  co_return Err(Errc::kStale, "the handle was closed while its append waited");
}

/// The token is free: the first waiter that is still there gets it, with its repeats.
void AppendTokens::pass_on(Ino ino, State& s) {
  s.token = 0;
  while (!s.queue.empty() && s.token == 0) {
    auto w = s.queue.front();
    s.queue.pop_front();
    if (w->ask.connected && !w->ask.connected->load()) {
      w->signal.set(Err(Errc::kDisconnected));
      continue;
    }
    s.session = w->ask.session;
    s.handle = w->ask.handle;
    s.token = next_++;
    w->token = s.token;
    w->signal.set();
  }
  if (s.token == 0) {
    inodes_.erase(ino);
    return;
  }
  for (auto& w : s.queue)
    if (w->ask.session == s.session && w->ask.handle == s.handle) {
      w->token = s.token;
      w->signal.set();
    }
  std::erase_if(s.queue, [](const auto& w) { return w->token != 0; });
}

bool AppendTokens::release(Ino ino, SessionId session, uint64_t token) {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  if (it == inodes_.end() || it->second.session != session || it->second.token != token) return false;
  pass_on(ino, it->second);
  return true;
}

void AppendTokens::release_handle(Ino ino, SessionId session, uint64_t handle) {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  if (it == inodes_.end()) return;
  State& s = it->second;
  std::erase_if(s.queue, [&](const auto& w) {
    if (w->ask.session != session || w->ask.handle != handle) return false;
    w->signal.set(Err(Errc::kStale, "the handle was closed while its append waited"));
    return true;
  });
  if (s.session == session && s.handle == handle) pass_on(ino, s);
}

void AppendTokens::release_session(SessionId session) {
  std::lock_guard guard(mutex_);
  std::vector<Ino> held;
  for (auto& [ino, s] : inodes_) {
    std::erase_if(s.queue, [&](const auto& w) {
      if (w->ask.session != session) return false;
      w->signal.set(Err(Errc::kNoSession));
      return true;
    });
    if (s.session == session) held.push_back(ino);
  }
  for (Ino ino : held) pass_on(ino, inodes_.at(ino));
}

std::optional<SessionId> AppendTokens::holder(Ino ino) const {
  std::lock_guard guard(mutex_);
  auto it = inodes_.find(ino);
  return it == inodes_.end() ? std::nullopt : std::optional(it->second.session);
}

bool AppendTokens::held(Ino ino) const {
  std::lock_guard guard(mutex_);
  return inodes_.contains(ino);
}

}  // namespace nacre::mds
