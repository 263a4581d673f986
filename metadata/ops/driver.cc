// SPDX-License-Identifier: Apache-2.0
// See driver.h.
#include "metadata/ops/driver.h"

#include <cassert>

#include "common/log/log.h"
#include "metadata/ops/locks.h"
#include "metadata/ops/turn.h"

namespace nacre::mds {

Driver::Driver(Runtime& runtime, Services& services, bool turn_commit)
    : runtime_(runtime), services_(services), turn_commit_(turn_commit), slots_(services.store), locks_(std::make_unique<Locks>()) {
  for (size_t i = 0; i < runtime.size(); ++i) turns_.push_back(std::make_unique<Turn>(runtime.loop(i), *locks_, services.journal, metrics_.commits));
}

Driver::~Driver() = default;

void Driver::store_reply(OpContext& ctx, Bytes body) {
  const Identity& id = ctx.identity();
  if (id.sequence == 0) return;
  schema::ReplyRecordT record;
  record.sequence = id.sequence;
  record.method = id.method;
  record.body = std::move(body);
  ctx.batch().put_record(Family::kReply, reply_key(id.session, id.slot), record);
}

Task<void> Driver::rehearse(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op) {
  // On a worker, with reads from disk, without locks, and for nothing: afterwards the blocks are in memory.
  ++metrics_.rehearsals;
  co_await run_blocking([&ctx, &op] {
    ctx.begin_run(Tier::kFull, nullptr, false);
    (void)op(ctx);
  });
}

Task<Result<void>> Driver::resolve(OpContext& ctx) {
  ++metrics_.parks;
  Park park = std::move(*ctx.park_);
  ctx.park_.reset();
  switch (park.kind) {
    case Park::Kind::kGlimpse: {
      auto seen = co_await services_.hooks.glimpse(park.inos);
      if (!seen) co_return std::unexpected(std::move(seen).error());
      for (auto& g : *seen) ctx.glimpses_[g.ino] = g;
      co_return Result<void>{};
    }
    case Park::Kind::kIntent: co_return co_await services_.hooks.finish_intent(park.inos.at(0));
    case Park::Kind::kTruncate: {
      auto done = co_await services_.hooks.truncate(park.inos.at(0), park.size);
      if (done) ctx.note_truncated(park.inos.at(0), park.size);
      co_return done;
    }
    case Park::Kind::kMoved: co_return co_await services_.hooks.wait_moved(park.inos.at(0));
    case Park::Kind::kNumbers: co_return co_await services_.inos.refill();
  }
  co_return Err(Errc::kIo, "an operation waits for something unknown");
}

Task<Result<void>> Driver::run_read(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op) {
  metrics_.operations.fetch_add(1, std::memory_order_relaxed);
  int rehearsals = 0;
  for (int run = 0; run < kMaxRuns; ++run) {
    ctx.begin_run(rehearsals < kMaxRehearsals ? Tier::kCached : Tier::kFull, nullptr, false);
    auto result = op(ctx);
    if (ctx.parked()) {
      CO_CHECK_OK(co_await resolve(ctx));
      continue;
    }
    if (!result && result.error().code == Errc::kIncomplete) {
      co_await rehearse(ctx, op);
      ++rehearsals;
      continue;
    }
    co_return result;
  }
  co_return Err(Errc::kRetryLater, "the request met too many changes of what it reads");
}

Task<Result<void>> Driver::run_change(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op) {
  metrics_.operations.fetch_add(1, std::memory_order_relaxed);
  assert(Loop::current());
  Turn& turn = *turns_[Loop::current()->index()];
  std::vector<uint32_t> wanted;
  int rehearsals = 0;
  for (int run = 0; run < kMaxRuns; ++run) {
    if (!wanted.empty()) turn.lock_all(wanted);
    else if (turn.asked_to_end() || turn.operations() >= kMaxTurnOperations || turn.batch().bytes() >= kMaxTurnBytes) turn.end();
    ctx.begin_run(rehearsals < kMaxRehearsals ? Tier::kCached : Tier::kFull, &turn, true);
    auto result = op(ctx);
    if (ctx.restart_) {
      metrics_.restarts.fetch_add(1, std::memory_order_relaxed);
      wanted.insert(wanted.end(), ctx.asked_.begin(), ctx.asked_.end());
      std::sort(wanted.begin(), wanted.end());
      wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
      continue;
    }
    if (ctx.parked()) {
      CO_CHECK_OK(co_await resolve(ctx));
      continue;
    }
    if (!result && result.error().code == Errc::kIncomplete) {
      co_await rehearse(ctx, op);
      ++rehearsals;
      continue;
    }
    CO_CHECK_OK(co_await finish(ctx, turn, result.has_value()));
    co_return result;
  }
  co_return Err(Errc::kRetryLater, "the request met too many changes of what it works on");
}

Task<Result<void>> Driver::finish(OpContext& ctx, Turn& turn, bool counts) {
  bool wrote = counts && !ctx.batch_.empty();
  bool effects = counts && !ctx.committed_.empty();
  bool needs_sync = counts && ctx.needs_sync_;
  if (counts) turn.stage(ctx);
  // Even an error waits if the turn has rows: it may be founded on what isn't committed yet.
  if (!turn.has_rows() && !effects) co_return Result<void>{};
  auto outcome = turn.join();
  if (!turn_commit_) turn.end();
  if (!outcome->done.is_set()) CO_CHECK_OK(co_await outcome->done.wait());
  if (!outcome->number) co_return std::unexpected(outcome->number.error());
  if (wrote) ctx.journal_no_ = *outcome->number;
  if (wrote && needs_sync) co_return co_await services_.journal.sync_to(*outcome->number);
  if (services_.inos.low()) Loop::current()->spawn(refill_inos());
  co_return Result<void>{};
}

Task<void> Driver::refill_inos() {
  auto done = co_await services_.inos.refill();
  if (!done) log::warn("the range of inode numbers couldn't be refilled: {}", done.error().message());
}

}  // namespace nacre::mds
