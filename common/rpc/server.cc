// SPDX-License-Identifier: Apache-2.0
// The listening side. Handshakes run on loop 0, where connections are accepted; an authenticated connection moves to the
// loop it will be served on. What the loops share (the table of peers and the counters) is behind one mutex.
#include "common/rpc/server.h"

#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "common/log/log.h"
#include "common/rpc/handshake.h"

namespace nacre::rpc {
namespace {
constexpr uint32_t kMaxHandshakes = 1024;  ///< connections that haven't proven the key; more are closed without a word
constexpr Nanos kRefusalLogPause = kSecond;  ///< strangers don't fill the log: one line per pause

struct State {
  State(Runtime& rt, ServerOptions o, Handler h, std::function<void(PeerPtr)> p) : runtime(rt), options(std::move(o)), handler(std::move(h)), on_peer(std::move(p)) {
    me.cluster_id = options.cluster_id;
    me.handshake_key = derive_handshake_key(options.key);
    me.incarnation = options.incarnation;
  }
  Runtime& runtime;
  const ServerOptions options;
  const Handler handler;
  const std::function<void(PeerPtr)> on_peer;
  ServerIdentity me;
  std::mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<Peer>> peers;
  uint64_t next_peer = 1;
  uint32_t connections = 0, handshakes = 0;
  bool stopped = false;
  Nanos last_refusal_log = -kRefusalLogPause;  ///< loop 0 only, as the next
  uint64_t refusals_not_logged = 0;
  std::atomic<size_t> spread{0};
};
using StatePtr = std::shared_ptr<State>;

void log_refusal(State& s, const std::string& from, const Error& why, Nanos now) {
  if (why.code == Errc::kDisconnected || why.code == Errc::kShutdown) return;
  if (now - s.last_refusal_log < kRefusalLogPause) {
    ++s.refusals_not_logged;
    return;
  }
  s.last_refusal_log = now;
  const uint64_t more = std::exchange(s.refusals_not_logged, 0);
  log::warn("a connection from {} was refused: {}{}", from, why.message(), more ? fmt::format(" ({} more were refused since the last such line)", more) : "");
}

Loop& choose_loop(State& s, const Stream& stream, int cpu) {
  if (cpu >= 0 && stream.same_host()) return s.runtime.loop_for_cpu(cpu);
  return s.runtime.loop(s.spread.fetch_add(1, std::memory_order_relaxed));
}

void serve_peer(StatePtr s, Loop& loop, std::unique_ptr<Stream> stream, PeerInfo info) {
  start_peer(loop, std::move(stream), std::move(info), s->handler, [&](PeerPtr peer) {
    uint64_t id = 0;
    bool stopped = false;
    {
      std::lock_guard lock(s->mutex);
      id = s->next_peer++;
      stopped = s->stopped;
      s->peers.emplace(id, peer);
    }
    peer->on_close([s, id](Error) {
      std::lock_guard lock(s->mutex);
      s->peers.erase(id);
      --s->connections;
    });
    if (stopped) peer->close(Errc::kShutdown);
    else if (s->on_peer) s->on_peer(peer);
  });
}

Task<void> handshake(StatePtr s, std::unique_ptr<Stream> stream, std::string full) {
  Loop& here = *Loop::current();
  auto info = Result<PeerInfo>();
  {
    StreamDeadline guard(*stream, here.clock().boot() + s->options.handshake_timeout);
    info = co_await accept_handshake(*stream, s->me, here.clock().real(), full);
    if (!info && guard.passed()) info = Err(Errc::kDeadline, "it didn't authenticate in time");
  }
  {
    std::lock_guard lock(s->mutex);
    --s->handshakes;
    if (s->stopped && info) info = Err(Errc::kShutdown);
    if (!info && full.empty()) --s->connections;
  }
  if (!info) {
    log_refusal(*s, stream->remote(), info.error(), here.clock().boot());
    stream->close();
    co_return;
  }
  Loop& target = choose_loop(*s, *stream, info->cpu);
  if (&target == &here) {
    serve_peer(s, here, std::move(stream), std::move(*info));
    co_return;
  }
  auto moved = stream->move_to(target);
  if (!moved) {
    log::warn("a connection from {} was lost: {}", info->address, moved.error().message());
    std::lock_guard lock(s->mutex);
    --s->connections;
    co_return;
  }
  // std::function must be copyable, so the stream travels in a shared holder.
  auto holder = std::make_shared<std::unique_ptr<Stream>>(std::move(*moved));
  target.post([s, &target, holder, info = std::move(*info)] { serve_peer(s, target, std::move(*holder), info); });
}

void accepted(const StatePtr& s, std::unique_ptr<Stream> stream) {
  std::string full;
  {
    std::lock_guard lock(s->mutex);
    if (s->stopped || s->handshakes >= kMaxHandshakes) {
      stream->close();
      return;
    }
    ++s->handshakes;
    if (s->connections >= s->options.max_connections) full = fmt::format("this server has its maximum of {} connections: try later", s->options.max_connections);
    else ++s->connections;
  }
  Loop::current()->spawn(handshake(s, std::move(stream), std::move(full)));
}

class ServerImpl final : public Server {
 public:
  ServerImpl(StatePtr s, std::unique_ptr<Acceptor> a) : state_(std::move(s)), acceptor_(std::move(a)), address_(acceptor_->address()) {}
  ~ServerImpl() override { stop(); }
  std::string address() const override { return address_; }
  void stop() override {
    std::vector<PeerPtr> open;
    {
      std::lock_guard lock(state_->mutex);
      if (std::exchange(state_->stopped, true)) return;
      for (auto& [id, weak] : state_->peers)
        if (auto peer = weak.lock()) open.push_back(std::move(peer));
    }
    acceptor_->close();
    for (auto& peer : open) {
      Loop& loop = peer->loop();
      loop.post([peer = std::move(peer)] { peer->close(Errc::kShutdown); });
    }
  }

 private:
  StatePtr state_;
  std::unique_ptr<Acceptor> acceptor_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<Server>> serve(Runtime& runtime, Transport& transport, ServerOptions options, Handler handler, std::function<void(PeerPtr)> on_peer) {
  std::string address = options.address;
  auto state = std::make_shared<State>(runtime, std::move(options), std::move(handler), std::move(on_peer));
  NACRE_TRY(std::unique_ptr<Acceptor> acceptor, transport.listen(runtime.loop(0), std::move(address), [state](std::unique_ptr<Stream> stream) { accepted(state, std::move(stream)); }));
  return std::make_unique<ServerImpl>(std::move(state), std::move(acceptor));
}

}  // namespace nacre::rpc
