// SPDX-License-Identifier: Apache-2.0
// Channel: one attempt at a time, shared by all who wait; it goes on as long as somebody waits. One loop.
#include <algorithm>

#include <fmt/format.h>

#include "common/log/log.h"
#include "common/rpc/server.h"
#include "common/runtime/sync.h"

namespace nacre::rpc {
namespace {
/// No later attempt can end otherwise until somebody changes a file: those who wait are told at once.
bool is_final(Errc code) { return code == Errc::kAuth || code == Errc::kNotOurs || code == Errc::kVersion || code == Errc::kConfig; }

/// Jitter that needs no source of randomness, so that simulations repeat.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
}  // namespace

/// What the callers of get() wait for together.
struct Attempt {
  Signal done;
  bool ended = false;
  Result<PeerPtr> outcome = Err(Errc::kUnavailable);
  void end(Result<PeerPtr> r) {
    if (std::exchange(ended, true)) return;
    outcome = std::move(r);
    done.set();
  }
};

struct Channel::State {
  State(Transport& t, Options o, Handler h) : transport(t), options(std::move(o)), handler(std::move(h)) {}
  Transport& transport;
  Options options;
  Handler handler;
  PeerPtr peer;
  bool closed = false;
  uint32_t waiting = 0;
  size_t next_address = 0;
  Error last{Errc::kUnavailable};
  std::shared_ptr<Attempt> attempt;  ///< in progress, or null

  static Task<void> run(std::shared_ptr<State> s);
  static Task<Result<PeerPtr>> once(std::shared_ptr<State> s);
  static Task<Result<PeerPtr>> get(std::shared_ptr<State> s, Nanos deadline, CancelPtr cancel);
};

Task<Result<PeerPtr>> Channel::State::once(std::shared_ptr<State> s) {
  if (s->options.addresses.empty()) co_return Err(Errc::kConfig, "no address of the server is known");
  ConnectOptions options = s->options.connect;
  options.address = s->options.addresses[s->next_address++ % s->options.addresses.size()];
  options.deadline = Loop::current()->clock().boot() + s->options.attempt_timeout;
  CO_TRY(PeerPtr peer, co_await connect(s->transport, options, s->handler));
  if (s->options.on_connected) {
    auto bound = co_await s->options.on_connected(peer);
    if (!bound) {
      peer->close(Error(Errc::kDisconnected, fmt::format("the connection to {} couldn't be set up: {}", options.address, bound.error().message())));
      co_return std::unexpected(std::move(bound).error());
    }
  }
  if (peer->closed()) co_return Err(Errc::kDisconnected, fmt::format("{} ended the connection at once", options.address));
  co_return peer;
}

Task<void> Channel::State::run(std::shared_ptr<State> s) {
  Nanos backoff = s->options.backoff_min;
  uint64_t tries = 0;
  Result<PeerPtr> outcome = Err(Errc::kUnavailable);
  while (!s->closed && s->waiting > 0) {
    outcome = co_await once(s);
    if (outcome || s->closed || is_final(outcome.error().code)) break;
    s->last = outcome.error();
    log::debug("attempt {} to connect failed: {}", tries + 1, outcome.error().message());
    if (++tries % std::max<size_t>(1, s->options.addresses.size()) != 0) continue;  // the other addresses first
    const Nanos half = std::max<Nanos>(1, backoff / 2);
    const uint64_t seed = static_cast<uint64_t>(Loop::current()->clock().boot()) + tries * 0x9E3779B97F4A7C15ull + Loop::current()->index();
    auto slept = co_await sleep_for(half + static_cast<Nanos>(mix(seed) % static_cast<uint64_t>(half)));
    if (!slept) {
      outcome = std::unexpected(slept.error());
      break;
    }
    backoff = std::min(backoff * 2, s->options.backoff_max);
  }
  if (s->closed && outcome) {
    (*outcome)->close(Errc::kShutdown);
    outcome = Err(Errc::kShutdown, "the channel was closed");
  }
  if (outcome) s->peer = *outcome;
  std::exchange(s->attempt, nullptr)->end(std::move(outcome));
}

Task<Result<PeerPtr>> Channel::State::get(std::shared_ptr<State> s, Nanos deadline, CancelPtr cancel) {
  if (s->closed) co_return Err(Errc::kShutdown, "the channel was closed");
  if (s->peer && !s->peer->closed()) co_return s->peer;
  s->peer = nullptr;
  ++s->waiting;
  if (!s->attempt) {
    s->attempt = std::make_shared<Attempt>();
    Loop::current()->spawn(run(s));
  }
  auto attempt = s->attempt;
  auto woken = co_await attempt->done.wait(deadline, std::move(cancel));
  --s->waiting;
  if (attempt->ended) co_return attempt->outcome;
  if (woken.error().code == Errc::kDeadline && !s->last.detail.empty())
    co_return Err(Errc::kDeadline, fmt::format("no connection in time; the last attempt: {}", s->last.message()));
  co_return std::unexpected(std::move(woken).error());
}

Channel::Channel(Transport& transport, Options options, Handler handler) : state_(std::make_shared<State>(transport, std::move(options), std::move(handler))) {}
Channel::~Channel() { close(); }

Task<Result<PeerPtr>> Channel::get(Nanos deadline, CancelPtr cancel) { return State::get(state_, deadline, std::move(cancel)); }

PeerPtr Channel::peek() const { return state_->peer && !state_->peer->closed() ? state_->peer : nullptr; }

void Channel::set_addresses(std::vector<std::string> addresses) { state_->options.addresses = std::move(addresses); }

void Channel::close() {
  if (std::exchange(state_->closed, true)) return;
  if (state_->peer) state_->peer->close(Errc::kShutdown);
  if (state_->attempt) state_->attempt->end(Err(Errc::kShutdown, "the channel was closed"));
}

}  // namespace nacre::rpc
