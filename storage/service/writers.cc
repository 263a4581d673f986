// SPDX-License-Identifier: Apache-2.0
#include "storage/service/writers.h"

#include <charconv>
#include <fstream>

#include <fmt/ranges.h>

#include "common/io/durable.h"
#include "common/log/log.h"
#include "common/runtime/loop.h"

namespace nacre::storage {
namespace {
constexpr std::string_view kHead = "nacre writers 1\n";
constexpr size_t kNamed = 8;

}  // namespace

Result<void> Writers::load(const std::string& directory, bool clean) {
  path_ = directory + "/writers";
  std::ifstream in(path_, std::ios::binary);
  if (!in || clean) return replace_file(path_, kHead);
  std::string line;
  if (!std::getline(in, line) || line + "\n" != kHead) return Err(Errc::kCorrupt, fmt::format("{} is damaged: remove it if all clients have been unmounted since the target stopped", path_));
  while (std::getline(in, line)) {
    uint64_t session = 0;
    auto [end, ec] = std::from_chars(line.data(), line.data() + line.size(), session);
    if (ec != std::errc() || end != line.data() + line.size() || stored_.size() >= kMaxSessions) return Err(Errc::kCorrupt, fmt::format("{} is damaged: remove it if all clients have been unmounted since the target stopped", path_));
    stored_.insert(SessionId(session));
  }
  awaited_ = stored_;
  gathering_.store(!awaited_.empty());
  return {};
}

Result<void> Writers::store(const std::set<SessionId>& sessions) {
  std::string content(kHead);
  for (SessionId s : sessions) content += fmt::format("{}\n", s.v);
  return replace_file(path_, content);
}

Task<Result<void>> Writers::enter(SessionId session) {
  {
    std::lock_guard lock(mutex_);
    ++known_[session].running;  // from here on prune() leaves it
    if (stored_.contains(session)) co_return Result<void>{};
  }
  auto entered = co_await run_blocking([this, session]() -> Result<void> {
    std::lock_guard file(file_mutex_);
    std::set<SessionId> wanted;
    {
      std::lock_guard lock(mutex_);
      if (stored_.contains(session)) return {};
      wanted = stored_;
      for (const auto& [s, info] : known_)
        if (info.running > 0) wanted.insert(s);  // one sync for all that came meanwhile
    }
    NACRE_CHECK_OK(store(wanted));
    std::lock_guard lock(mutex_);
    stored_ = std::move(wanted);
    return {};
  });
  if (entered) co_return Result<void>{};
  std::lock_guard lock(mutex_);
  --known_[session].running;
  co_return entered;
}

void Writers::leave(SessionId session, WSeq wseq, Nanos now) {
  std::lock_guard lock(mutex_);
  Info& info = known_[session];
  --info.running;
  info.last = std::max(info.last, wseq);
  info.at = now;
}

void Writers::connected(SessionId session) {
  std::lock_guard lock(mutex_);
  ++known_[session].connections;
}

void Writers::disconnected(SessionId session) {
  std::lock_guard lock(mutex_);
  auto it = known_.find(session);
  if (it != known_.end() && it->second.connections > 0) --it->second.connections;
}

Result<void> Writers::prune(WSeq stable, Nanos now) {
  std::lock_guard file(file_mutex_);
  std::set<SessionId> left;
  {
    std::lock_guard lock(mutex_);
    if (gathering_.load()) return {};
    for (SessionId s : stored_) {
      const Info i = known_[s];
      if (i.running > 0 || i.last > stable || (i.connections > 0 && now - i.at <= kQuiet)) left.insert(s);
    }
    const bool same = left == stored_;
    stored_ = left;
    std::erase_if(known_, [this](const auto& k) { return k.second.connections == 0 && k.second.running == 0 && !stored_.contains(k.first); });
    if (same) return {};
  }
  return store(left);
}

void Writers::serves(Nanos now, Nanos limit) {
  std::lock_guard lock(mutex_);
  if (until_ == kForever) until_ = now + limit;
}

bool Writers::gathering(Nanos now) {
  if (!gathering_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  if (awaited_.empty() || now >= until_) {
    if (!awaited_.empty()) log::warn("{} clients that had written here said nothing since the start: what they held is lost (sessions {})", awaited_.size(), fmt::join(awaited_, ", "));
    awaited_.clear();
    gathering_.store(false, std::memory_order_release);
    return false;
  }
  return true;
}

void Writers::reported(SessionId session) {
  if (!gathering_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  awaited_.erase(session);
  if (awaited_.empty()) gathering_.store(false, std::memory_order_release);
}

std::vector<SessionId> Writers::awaited() const {
  std::lock_guard lock(mutex_);
  return {awaited_.begin(), awaited_.end()};
}

std::string Writers::waiting_for() const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> some;
  for (SessionId s : awaited_)
    if (some.size() < kNamed) some.push_back(s.v);
  return fmt::format("{} clients to send again what was not yet stable (sessions {}{})", awaited_.size(), fmt::join(some, ", "), awaited_.size() > kNamed ? ", …" : "");
}

}  // namespace nacre::storage
