// SPDX-License-Identifier: Apache-2.0
// See intents.h. Rows "intent" + ino in the meta family list the inodes that have one, so that a start needn't read them all.
#include "metadata/background/intents.h"

#include <algorithm>

#include "common/log/log.h"
#include "common/wire/bits.h"
#include "metadata/ops/common.h"

namespace nacre::mds {
namespace {
constexpr std::string_view kIntentRow = "intent";
std::string intent_key(Ino ino) { return std::string(kIntentRow) + inode_key(ino); }

/// What each object has to do. Objects that the change doesn't touch are left out.
std::vector<TargetCommand> commands_of(const schema::InodeRecordT& record, const schema::TruncateIntentT& intent) {
  std::vector<TargetCommand> out;
  if (!record.layout) return out;
  for (const auto& o : layout::used_objects(*record.layout, Ino(record.ino))) {
    const auto& c = *record.layout->components[o.object.component];
    TargetCommand t{o.ost, o.object, wire::kCmdTruncate, 0, 0, CmdSeq(intent.command), FilesetId(record.fileset)};
    if (intent.kind == kIntentTruncate) {
      t.offset = layout::object_end(c, o.object.stripe, intent.new_size);
    } else {
      const auto range = layout::object_range(c, o.object.stripe, intent.offset, intent.length);
      if (range.end <= range.begin) continue;
      t.kind = intent.kind == kIntentPunch ? wire::kCmdPunch : wire::kCmdZero;
      t.offset = range.begin;
      t.length = range.end - range.begin;
    }
    out.push_back(t);
  }
  return out;
}
}  // namespace

Result<void> Intents::load() {
  View view(services_.store, Tier::kFull);
  return view.scan(Family::kMeta, kIntentRow, prefix_end(kIntentRow), [this](std::string_view key, std::string_view) {
    if (auto ino = parse_inode_key(key.substr(kIntentRow.size()))) found_.push_back(*ino);
    return true;
  });
}

Task<void> Intents::run(Driver& driver) {
  while (!found_.empty() && !runtime_.stopping()) {
    std::vector<Ino> left;
    for (Ino ino : found_) {
      auto done = co_await finish(driver, ino);
      if (done) done = co_await forget(driver, ino);
      if (done) continue;
      log::warn("a truncation of inode {} that a restart interrupted can't be completed yet: {}", ino.v, done.error().message());
      left.push_back(ino);
    }
    found_.swap(left);
    if (found_.empty()) co_return;
    if (auto slept = co_await sleep_for(kIntentRetry); !slept) co_return;
  }
}

/// Drops the row of an inode that has no intent (any more).
Task<Result<void>> Intents::forget(Driver& driver, Ino ino) {
  OpContext ctx(services_, wire::CredT{});
  auto done = co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.view().inode(ino));
    if (record && record->truncate_intent) return false;
    c.batch().del(Family::kMeta, intent_key(ino));
    return true;
  });
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return Result<void>{};
}

Task<Result<void>> Intents::carry_out(Driver& driver, Ino ino, Change change) {
  for (int turn = 0; turn < kMaxIntentTurns; ++turn) {
    CO_CHECK_OK(co_await finish(driver, ino));  // of whoever came first
    CO_TRY(bool begun, co_await begin(driver, ino, change));
    if (begun) co_return co_await finish(driver, ino);
  }
  co_return Err(Errc::kRetryLater, "others keep changing the file's size");
}

/// Stores the intent and waits for its sync. False if there is another one.
Task<Result<bool>> Intents::begin(Driver& driver, Ino ino, Change change) {
  if (commands_.low()) CO_CHECK_OK(co_await commands_.refill());
  const auto number = commands_.take();
  if (!number) co_return Err(Errc::kRetryLater, "the numbers of commands to storage targets are being refilled");
  OpContext ctx(services_, wire::CredT{});
  co_return co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.inode(ino));
    if (record.truncate_intent) return false;
    if (c.hooks().moving(ino)) return c.park({Park::Kind::kMoved, {ino}, 0});
    NACRE_CHECK_OK(c.hooks().end_migration(c, record));
    auto intent = std::make_unique<schema::TruncateIntentT>();
    intent->kind = change.kind;
    intent->offset = change.offset;
    intent->length = change.length;
    intent->new_size = change.new_size;
    intent->command = *number;
    intent->time = c.now();
    record.truncate_intent = std::move(intent);
    c.put_inode(record);
    schema::RangeRecordT row;
    row.high = *number;
    c.batch().put_record(Family::kMeta, intent_key(ino), row);
    c.on_staged([this, ino] { opens_.objects_changed(ino); });
    c.require_sync();
    return true;
  });
}

Task<Result<void>> Intents::finish(Driver& driver, Ino ino) {
  for (;;) {
    std::optional<Signal> other;
    {
      std::lock_guard guard(mutex_);
      auto it = driving_.find(ino);
      if (it == driving_.end()) {
        driving_[ino];
      } else {
        other.emplace();
        it->second.push_back(*other);
      }
    }
    if (!other) {
      auto done = co_await drive(driver, ino);
      leave(ino, done);
      co_return done;
    }
    CO_CHECK_OK(co_await other->wait(runtime_.clock().boot() + 2 * kOstAnswer));
    // The other one may have looked before our intent was there: look again.
  }
}

void Intents::leave(Ino ino, Result<void> how) {
  std::vector<Signal> waiting;
  {
    std::lock_guard guard(mutex_);
    auto it = driving_.find(ino);
    waiting.swap(it->second);
    driving_.erase(it);
  }
  for (Signal& s : waiting) s.set(how);
}

Task<Result<void>> Intents::drive(Driver& driver, Ino ino) {
  OpContext ctx(services_, wire::CredT{});
  CO_TRY(auto record, co_await driver.read(ctx, [&](OpContext& c) { return c.view().inode(ino); }));
  if (!record || !record->truncate_intent) co_return Result<void>{};
  const schema::TruncateIntentT intent = *record->truncate_intent;
  // The intent is synced: begin() waited for it, and what a restart finds on disk is.
  const auto commands = commands_of(*record, intent);
  const Nanos deadline = runtime_.clock().boot() + kOstAnswer;
  std::optional<Glimpse> seen;
  if (!commands.empty()) {
    CO_TRY(auto stats, co_await objects_.command(commands, /*sync=*/true, deadline));
    const auto used = layout::used_objects(*record->layout, ino);
    if (stats.size() == used.size()) {
      seen = glimpse_of(*record, used, stats.data());
    } else {
      CO_TRY(auto all, co_await objects_.glimpse({ino}, deadline));
      seen = all[0];
    }
  }
  co_return co_await clear(driver, ino, intent, seen);
}

/// All objects have done their part: the size, and the end of the intent.
Task<Result<void>> Intents::clear(Driver& driver, Ino ino, schema::TruncateIntentT intent, std::optional<Glimpse> seen) {
  OpContext ctx(services_, wire::CredT{});
  auto done = co_await driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.view().inode(ino));
    if (!record) {
      c.batch().del(Family::kMeta, intent_key(ino));
      return true;
    }
    if (!record->truncate_intent || record->truncate_intent->command != intent.command) return true;
    const schema::InodeRecordT before = *record;
    record->truncate_intent.reset();
    record->size = intent.kind == kIntentTruncate ? intent.new_size : std::max(record->size, intent.new_size);
    if (!opens_.open_for_write(ino)) record->allocated = seen ? seen->allocated : record->allocated;
    // What the objects note as their change is this one: it must not move mtime a second time.
    if (seen) record->mtime_base = std::max(record->mtime_base, seen->changed);
    touch_data(c, *record);
    c.put_inode(*record);
    c.batch().account(&before, &*record);
    c.batch().del(Family::kMeta, intent_key(ino));
    c.on_staged([this, ino] { opens_.objects_changed(ino); });
    return true;
  });
  if (!done) co_return std::unexpected(std::move(done).error());
  co_return Result<void>{};
}

}  // namespace nacre::mds
