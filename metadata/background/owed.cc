// SPDX-License-Identifier: Apache-2.0
// See owed.h. One lane per target, so that one that is down holds up nobody else.
#include "metadata/background/owed.h"

#include "common/log/log.h"
#include "common/wire/bits.h"

namespace nacre::mds {

Result<void> OwedSender::owe(OpContext& ctx, const schema::InodeRecordT& record) {
  if (!record.layout) return {};
  return owe(ctx, layout::used_objects(*record.layout, Ino(record.ino)));
}

Result<void> OwedSender::owe_object(OpContext& ctx, OstId ost, const ObjectId& object) { return owe(ctx, std::vector<layout::StripeRef>{{object, ost}}); }

Result<void> OwedSender::owe(OpContext& ctx, const std::vector<layout::StripeRef>& objects) {
  if (objects.empty()) return {};
  for (const layout::StripeRef& o : objects) {
    auto number = commands_.take();
    if (!number) return Err(Errc::kRetryLater, "the numbers of commands to storage targets are being refilled");
    schema::OwedRecordT row;
    row.kind = wire::kCmdDestroy;
    row.ino = o.object.ino.v;
    row.generation = o.object.generation.v;
    row.component = o.object.component;
    row.stripes = 1;
    row.stripe = o.object.stripe;
    ctx.batch().put_record(Family::kOwed, owed_key(o.ost, CmdSeq(*number)), row);
  }
  std::map<OstId, uint64_t> added;
  for (const layout::StripeRef& o : objects) ++added[o.ost];
  ctx.on_commit([this, added = std::move(added)] {
    std::lock_guard guard(count_mutex_);
    for (auto [ost, n] : added) counts_[ost] += n;
    news_ = true;
  });
  return {};
}

uint64_t OwedSender::count() const {
  std::lock_guard guard(count_mutex_);
  uint64_t n = 0;
  for (const auto& [ost, c] : counts_) n += c;
  return n;
}

std::map<OstId, uint64_t> OwedSender::counts() const {
  std::lock_guard guard(count_mutex_);
  return counts_;
}

Result<OwedSender::Found> OwedSender::look(OstId ost, std::string from) const {
  Found out;
  Result<void> bad;
  View view(journal_.store(), Tier::kFull);
  auto scanned = view.scan(Family::kOwed, from, prefix_end(owed_prefix(ost)), [&](std::string_view key, std::string_view value) {
    auto parsed = parse_owed_key(key);
    auto row = decode_record<schema::OwedRecordT>(value);
    if (!parsed || !row) {
      bad = Err(Errc::kCorrupt, "a command owed to a storage target is damaged: run nacre fsck");
      return false;
    }
    out.keys.emplace_back(key);
    out.commands.push_back({ost, ObjectId{Ino(row->ino), Generation(static_cast<uint32_t>(row->generation)), row->component, row->stripe}, row->kind, row->offset, row->length, parsed->command, {}});
    return out.commands.size() < kMaxCommandsPerCall;
  });
  if (!scanned) return std::unexpected(std::move(scanned).error());
  if (!bad) return std::unexpected(std::move(bad).error());
  return out;
}

/// Targets to which anything is owed: one seek each.
Result<std::vector<OstId>> OwedSender::debtors() const {
  std::vector<OstId> out;
  View view(journal_.store(), Tier::kFull);
  std::string from;
  for (bool more = true; more;) {
    more = false;
    auto scanned = view.scan(Family::kOwed, from, "", [&](std::string_view key, std::string_view) {
      if (auto parsed = parse_owed_key(key)) {
        out.push_back(parsed->ost);
        from = prefix_end(owed_prefix(parsed->ost));
        more = !from.empty();
      }
      return false;
    });
    if (!scanned) return std::unexpected(std::move(scanned).error());
  }
  return out;
}

Task<void> OwedSender::run() {
  using Counts = std::map<OstId, uint64_t>;
  auto counted = co_await run_blocking([this]() -> Result<Counts> {
    Counts n;
    View view(journal_.store(), Tier::kFull);
    auto scanned = view.scan(Family::kOwed, "", "", [&](std::string_view key, std::string_view) {
      if (auto parsed = parse_owed_key(key)) ++n[parsed->ost];
      return true;
    });
    if (!scanned) return std::unexpected(std::move(scanned).error());
    return n;
  });
  if (counted) {
    std::lock_guard guard(count_mutex_);
    for (auto [ost, n] : *counted) counts_[ost] += n;
  }
  Nanos next_look = 0;
  while (!runtime_.stopping()) {
    const Nanos now = runtime_.clock().boot();
    if (news_.exchange(false) || now >= next_look) {
      next_look = now + kOwedRescan;
      auto osts = co_await run_blocking([this] { return debtors(); });
      if (!osts) log::error("owed commands can't be read: {}", osts.error().message());
      else
        for (OstId ost : *osts) {
          Lane& lane = lanes_[ost];
          if (lane.busy || now < lane.not_before) continue;
          lane.busy = true;
          Loop::current()->spawn(drain(ost));
        }
    }
    if (commands_.low()) (void)co_await commands_.refill();
    if (auto slept = co_await sleep_for(kOwedPoll); !slept) co_return;
  }
}

Task<void> OwedSender::drain(OstId ost) {
  Lane& lane = lanes_[ost];
  while (!runtime_.stopping()) {
    auto more = co_await send_some(ost, lane);
    if (!more) {
      lane.not_before = runtime_.clock().boot() + kOwedPause;
      const Errc code = more.error().code;
      if (code != Errc::kOstDown && code != Errc::kOstInactive && code != Errc::kShutdown) log::error("owed commands of ost{}: {}", ost.v, more.error().message());
      break;
    }
    if (!*more) break;
  }
  lane.busy = false;
  lane.cursor.clear();
}

/// One batch of commands; false when nothing is left.
Task<Result<bool>> OwedSender::send_some(OstId ost, Lane& lane) {
  const std::string from = lane.cursor.empty() ? owed_prefix(ost) : lane.cursor;
  CO_TRY(Found found, co_await run_blocking([&] { return look(ost, from); }));
  if (found.keys.empty()) co_return false;
  // The barrier: what was just read may not be synced yet.
  CO_CHECK_OK(co_await journal_.wait_synced(journal_.committed()));
  CO_TRY(auto stats, co_await objects_.command(found.commands, /*sync=*/true, runtime_.clock().boot() + kOstAnswer));
  (void)stats;
  Batch batch;
  for (const std::string& key : found.keys) batch.del(Family::kOwed, key);
  CO_TRY(JournalNo committed, journal_.commit(std::move(batch)));
  (void)committed;
  {
    std::lock_guard guard(count_mutex_);
    auto it = counts_.find(ost);
    if (it != counts_.end() && it->second > found.keys.size()) it->second -= found.keys.size();
    else if (it != counts_.end()) counts_.erase(it);
  }
  lane.cursor = found.keys.back();
  lane.cursor.push_back('\0');
  co_return found.keys.size() == kMaxCommandsPerCall;
}

}  // namespace nacre::mds
