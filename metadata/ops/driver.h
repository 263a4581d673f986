// SPDX-License-Identifier: Apache-2.0
// The driver: runs operations, and owns what they share: locks, retries, reading from disk, commit, exactly-once, metrics.
// Turn commit: what one turn of an event loop changes goes into one commit, and its replies leave together after it. Locks are
// the turn's; stripes are waited for in ascending order and only by a turn that holds none, so there is no cycle.
// Every method is called on a loop; a request stays on it.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "common/runtime/loop.h"
#include "common/runtime/sync.h"
#include "metadata/ops/op.h"
#include "metadata/ops/slots.h"

namespace nacre::mds {

class Locks;

/// A reply, and whether it is the stored one of an earlier arrival (capabilities in it must be signed again).
template <class R>
struct Outcome {
  R reply;
  bool replayed = false;
};

struct DriverMetrics {
  std::atomic<uint64_t> operations{0}, commits{0}, restarts{0}, rehearsals{0}, parks{0}, replays{0};
};

class Driver {
 public:
  Driver(Runtime& runtime, Services& services, bool turn_commit = true);
  ~Driver();

  /// Runs an operation that changes nothing: no locks, committed state only. op: Result<R>(OpContext&).
  template <class F>
  Task<std::invoke_result_t<F, OpContext&>> read(OpContext& ctx, F op) {
    std::invoke_result_t<F, OpContext&> out = Err(Errc::kShutdown);
    std::function<Result<void>(OpContext&)> run = [&](OpContext& c) { return note(out, op(c)); };
    auto done = co_await run_read(ctx, run);
    if (!done) co_return std::unexpected(std::move(done).error());
    co_return std::move(out);
  }
  /// Runs an operation that may change something, under its locks; returns after the commit. Without exactly-once.
  template <class F>
  Task<std::invoke_result_t<F, OpContext&>> change(OpContext& ctx, F op) {
    std::invoke_result_t<F, OpContext&> out = Err(Errc::kShutdown);
    std::function<Result<void>(OpContext&)> run = [&](OpContext& c) { return note(out, op(c)); };
    auto done = co_await run_change(ctx, run);
    if (!done) co_return std::unexpected(std::move(done).error());
    co_return std::move(out);
  }
  /// As change(), exactly once for ctx.identity(): a repeat gets the stored reply; the reply lies in the batch of the change.
  /// R: the reply message (wire::…T). For requests that need several commits use slots().enter() and store_reply() directly.
  template <class R, class F>
  Task<Result<Outcome<R>>> once(OpContext& ctx, F op) {
    auto ticket = co_await slots_.enter(ctx.identity());
    if (!ticket) co_return std::unexpected(std::move(ticket).error());
    if (ticket->stored) {
      ++metrics_.replays;
      auto reply = decode<R>(ticket->stored->body);
      if (!reply) co_return std::unexpected(std::move(reply).error());
      co_return Outcome<R>{std::move(*reply), true};
    }
    auto out = co_await change(ctx, [&](OpContext& c) -> Result<R> {
      Result<R> reply = op(c);
      if (reply && !c.batch().empty()) store_reply(c, encode(*reply));
      return reply;
    });
    if (!out) co_return std::unexpected(std::move(out).error());
    co_return Outcome<R>{std::move(*out), false};
  }
  /// Adds the ReplyRecord of ctx.identity() to the batch; nothing for a request without a slot. Inside an operation, last.
  void store_reply(OpContext& ctx, Bytes body);

  Slots& slots() { return slots_; }
  const DriverMetrics& metrics() const { return metrics_; }

 private:
  template <class R>
  static Result<void> note(R& out, R result) {
    if (!result) return std::unexpected(std::move(result).error());
    out = std::move(result);
    return {};
  }
  Task<Result<void>> run_read(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op);
  Task<Result<void>> run_change(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op);
  Task<Result<void>> resolve(OpContext& ctx);
  Task<Result<void>> finish(OpContext& ctx, Turn& turn, bool counts);
  Task<void> refill_inos();
  Task<void> rehearse(OpContext& ctx, const std::function<Result<void>(OpContext&)>& op);

  Runtime& runtime_;
  Services& services_;
  bool turn_commit_;
  Slots slots_;
  DriverMetrics metrics_;
  std::unique_ptr<Locks> locks_;
  std::vector<std::unique_ptr<Turn>> turns_;  ///< one per loop
};

inline constexpr int kMaxRuns = 200;          ///< runs of one request before it is told to come back (kRetryLater)
inline constexpr int kMaxRehearsals = 4;      ///< after so many the loop itself reads the disk
inline constexpr size_t kMaxTurnOperations = 256;
inline constexpr size_t kMaxTurnBytes = 1 << 20;

}  // namespace nacre::mds
