// SPDX-License-Identifier: Apache-2.0
// See orphans.h.
#include "metadata/background/orphans.h"

#include "common/log/log.h"
#include "metadata/ops/common.h"

namespace nacre::mds {

Result<void> Orphans::load() {
  View view(services_.store, Tier::kFull);
  return view.scan(Family::kOrphan, "", "", [this](std::string_view key, std::string_view) {
    if (auto ino = parse_orphan_key(key)) add(*ino, 0);
    return true;
  });
}

void Orphans::add(Ino ino, Nanos not_before) {
  std::lock_guard guard(mutex_);
  entries_[ino] = not_before;
  queue_.emplace(not_before, ino);
}

void Orphans::closed(Ino ino) {
  std::lock_guard guard(mutex_);
  auto it = entries_.find(ino);
  if (it != entries_.end()) queue_.emplace(it->second, ino);
}

size_t Orphans::size() const {
  std::lock_guard guard(mutex_);
  return entries_.size();
}

/// Takes those whose time has come out of the queue. One that turns out to be open comes back through closed().
std::vector<Ino> Orphans::due() {
  std::vector<Ino> out;
  const Nanos now = runtime_.clock().boot();
  std::lock_guard guard(mutex_);
  while (!queue_.empty() && queue_.begin()->first <= now && out.size() < kOrphansAtOnce) {
    if (entries_.contains(queue_.begin()->second)) out.push_back(queue_.begin()->second);
    queue_.erase(queue_.begin());
  }
  return out;
}

Task<Result<void>> Orphans::destroy(Driver& driver, Ino ino) {
  OpContext ctx(services_, wire::CredT{});
  auto done = co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.view().inode(ino));
    if (!record || record->nlink != 0) {
      c.batch().del(Family::kOrphan, orphan_key(ino));
      return true;
    }
    if (opens_.is_open(ino)) return false;
    NACRE_CHECK_OK(destroy_inode(c, *record));
    return true;
  });
  if (!done) co_return std::unexpected(std::move(done).error());
  if (*done) {
    std::lock_guard guard(mutex_);
    entries_.erase(ino);
  } else if (!opens_.is_open(ino)) {
    closed(ino);  // it was closed while we looked
  }
  co_return Result<void>{};
}

Task<void> Orphans::run(Driver& driver) {
  while (!runtime_.stopping()) {
    if (!sessions_.recovering()) {
      const auto inos = due();
      std::vector<Task<Result<void>>> tasks;
      for (Ino ino : inos) tasks.push_back(destroy(driver, ino));
      auto done = co_await when_all(std::move(tasks));
      for (size_t i = 0; i < done.size(); ++i) {
        if (done[i]) continue;
        if (done[i].error().code != Errc::kShutdown) log::warn("orphan {} can't be destroyed yet: {}", inos[i].v, done[i].error().message());
        add(inos[i], runtime_.clock().boot() + kSecond);
      }
      if (inos.size() == kOrphansAtOnce) continue;
    }
    if (auto slept = co_await sleep_for(kOrphanPoll); !slept) co_return;
  }
}

}  // namespace nacre::mds
