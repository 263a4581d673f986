// SPDX-License-Identifier: Apache-2.0
#include "common/testing/memory_transport.h"

#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include <fmt/format.h>

#include "common/base/rng.h"
#include "common/runtime/core.h"
#include "common/runtime/sync.h"

namespace nacre::testing {
namespace {

/// A waiter and the loop it waits on.
struct Parking {
  Waiter* waiter = nullptr;
  LoopCore* core = nullptr;
  void wake() {
    if (auto* w = std::exchange(waiter, nullptr)) w->finish(*core);
  }
};

struct Chunk {
  Nanos at;
  std::vector<std::byte> bytes;
  size_t taken = 0;
};
/// One direction of a connection.
struct Pipe {
  std::deque<Chunk> chunks;
  uint64_t under_way = 0;
  Nanos last_at = 0;
  bool ended = false;  ///< the writer has closed; what is under way still arrives
  Parking reader, writer;
};
struct Wire {
  std::string hosts[2];  ///< 0 = who connected
  std::string names[2];  ///< as seen by the other end
  Pipe pipes[2];         ///< pipes[i] carries what side i writes
  bool broken = false;
  void wake() {
    for (Pipe& p : pipes) p.reader.wake(), p.writer.wake();
  }
};

Task<Result<void>> park(Loop& loop, Parking& parking, Nanos deadline) {
  LoopCore& core = loop.core();
  if (core.stopping()) co_return Err(Errc::kShutdown);
  Waiter w;
  parking = {&w, &core};
  core.wait(w, deadline);
  co_await w.suspend();
  parking = {};
  if (w.failed && w.error.code != Errc::kDeadline) co_return std::unexpected(std::move(w.error));
  co_return Result<void>{};
}

std::pair<std::string, std::string> ordered(const std::string& a, const std::string& b) { return a < b ? std::pair(a, b) : std::pair(b, a); }

struct Listener {
  Loop* loop;
  std::function<void(std::unique_ptr<rpc::Stream>)> on_stream;
};
}  // namespace

struct MemoryNetwork::Core {
  Core(uint64_t seed, MemoryNetworkOptions o) : rng(seed), options(o) {}
  SeededRng rng;
  MemoryNetworkOptions options;
  Counters counters;
  std::map<std::string, std::shared_ptr<Listener>> listeners;
  std::set<std::pair<std::string, std::string>> apart;
  std::vector<std::weak_ptr<Wire>> wires;
  uint32_t next_port = 40'000;

  bool is_apart(const std::string& a, const std::string& b) const { return !apart.empty() && apart.contains(ordered(a, b)); }
  Nanos delay() { return options.delay_min + static_cast<Nanos>(rng.below(static_cast<uint64_t>(options.delay_max - options.delay_min + 1))); }
  void break_wire(Wire& w) {
    if (std::exchange(w.broken, true)) return;
    ++counters.broken;
    w.wake();
  }
  template <class F>
  void each_wire(F fn) {
    std::erase_if(wires, [](auto& weak) { return weak.expired(); });
    const auto copy = wires;
    for (auto& weak : copy)
      if (auto w = weak.lock()) fn(*w);
  }
};

class MemoryStream final : public rpc::Stream {
 public:
  MemoryStream(std::shared_ptr<MemoryNetwork::Core> net, std::shared_ptr<Wire> wire, int side, Loop& loop) : net_(std::move(net)), wire_(std::move(wire)), side_(side), loop_(&loop) {}
  ~MemoryStream() override { close(); }

  Task<Result<size_t>> read_some(std::span<std::byte> out) override {
    Pipe& pipe = wire_->pipes[1 - side_];
    for (;;) {
      if (!wire_ || closed_ || wire_->broken) co_return Err(Errc::kDisconnected, fmt::format("the connection to {} broke", remote()));
      const Nanos now = loop_->clock().boot();
      const bool held = net_->is_apart(wire_->hosts[0], wire_->hosts[1]);
      if (!held && !pipe.chunks.empty() && pipe.chunks.front().at <= now) co_return take(pipe, out);
      if (!held && pipe.chunks.empty() && pipe.ended) co_return Err(Errc::kDisconnected, fmt::format("{} closed the connection", remote()));
      auto waited = co_await park(*loop_, pipe.reader, held || pipe.chunks.empty() ? kForever : pipe.chunks.front().at);
      if (!waited) {
        close();
        co_return Err(Errc::kDisconnected, "the runtime stops");
      }
    }
  }

  Task<Result<void>> write(std::vector<std::span<const std::byte>> parts) override {
    Pipe& pipe = wire_->pipes[side_];
    if (!gone() && net_->rng.below(1'000'000) < net_->options.breaks_per_million) net_->break_wire(*wire_);
    ++net_->counters.writes;
    for (auto part : parts)
      while (!part.empty()) {
        while (!gone() && pipe.under_way >= net_->options.window) {
          auto waited = co_await park(*loop_, pipe.writer, kForever);
          if (!waited) close();
        }
        if (gone()) co_return Err(Errc::kDisconnected, fmt::format("the connection to {} broke", remote()));
        const size_t n = std::min<uint64_t>(part.size(), net_->options.window - pipe.under_way);
        send(pipe, part.first(n));
        part = part.subspan(n);
      }
    if (gone()) co_return Err(Errc::kDisconnected, fmt::format("the connection to {} broke", remote()));
    co_return Result<void>{};
  }

  void close() override {
    if (std::exchange(closed_, true) || moved_) return;
    wire_->pipes[side_].ended = true;
    wire_->wake();
  }
  std::string remote() const override { return wire_->names[1 - side_]; }
  bool same_host() const override { return wire_->hosts[0] == wire_->hosts[1]; }
  Result<std::unique_ptr<Stream>> move_to(Loop& loop) override {
    if (closed_) return Err(Errc::kDisconnected);
    moved_ = closed_ = true;
    return std::make_unique<MemoryStream>(net_, wire_, side_, loop);
  }

 private:
  bool gone() const { return closed_ || wire_->broken || wire_->pipes[1 - side_].ended; }
  void send(Pipe& pipe, std::span<const std::byte> bytes) {
    const Nanos at = std::max(pipe.last_at, loop_->clock().boot() + net_->delay());
    if (pipe.chunks.empty() || pipe.last_at != at) pipe.chunks.push_back(Chunk{at, {}, 0});
    auto& to = pipe.chunks.back().bytes;
    to.insert(to.end(), bytes.begin(), bytes.end());
    pipe.last_at = at;
    pipe.under_way += bytes.size();
    net_->counters.bytes += bytes.size();
    pipe.reader.wake();  // it sees for itself when the chunk arrives
  }
  size_t take(Pipe& pipe, std::span<std::byte> out) {
    Chunk& c = pipe.chunks.front();
    size_t n = std::min(out.size(), c.bytes.size() - c.taken);
    if (net_->options.max_read) n = std::min<size_t>(n, 1 + net_->rng.below(net_->options.max_read));
    std::memcpy(out.data(), c.bytes.data() + c.taken, n);
    c.taken += n;
    pipe.under_way -= n;
    if (c.taken == c.bytes.size()) pipe.chunks.pop_front();
    if (pipe.under_way < net_->options.window) pipe.writer.wake();
    return n;
  }
  std::shared_ptr<MemoryNetwork::Core> net_;
  std::shared_ptr<Wire> wire_;
  int side_;
  Loop* loop_;
  bool closed_ = false, moved_ = false;
};

class MemoryAcceptor final : public rpc::Acceptor {
 public:
  MemoryAcceptor(std::shared_ptr<MemoryNetwork::Core> net, std::string address) : net_(std::move(net)), address_(std::move(address)) {}
  ~MemoryAcceptor() override { close(); }
  std::string address() const override { return address_; }
  void close() override {
    if (!std::exchange(closed_, true)) net_->listeners.erase(address_);
  }

 private:
  std::shared_ptr<MemoryNetwork::Core> net_;
  std::string address_;
  bool closed_ = false;
};

class MemoryTransport final : public rpc::Transport {
 public:
  MemoryTransport(std::shared_ptr<MemoryNetwork::Core> net, std::string name) : net_(std::move(net)), name_(std::move(name)) {}

  Task<Result<std::unique_ptr<rpc::Stream>>> connect(std::string address, Nanos deadline) override { return connect_on(net_, name_, std::move(address), deadline); }

  Result<std::unique_ptr<rpc::Acceptor>> listen(Loop& loop, std::string address, std::function<void(std::unique_ptr<rpc::Stream>)> on_stream) override {
    if (!address.starts_with(name_ + ":")) return Err(Errc::kConfig, fmt::format("{} is no address of {}", address, name_));
    if (address.ends_with(":0")) address = fmt::format("{}:{}", name_, net_->next_port++);
    auto [it, fresh] = net_->listeners.try_emplace(address, std::make_shared<Listener>(Listener{&loop, std::move(on_stream)}));
    if (!fresh) return Err(Errc::kInUse, fmt::format("{} is in use", address));
    return std::make_unique<MemoryAcceptor>(net_, address);
  }

 private:
  static Task<Result<std::unique_ptr<rpc::Stream>>> connect_on(std::shared_ptr<MemoryNetwork::Core> net, std::string from, std::string address, Nanos deadline) {
    const std::string to = address.substr(0, address.rfind(':'));
    Loop& loop = *Loop::current();
    const Nanos arrives = loop.clock().boot() + net->delay() + net->delay();
    if (net->is_apart(from, to)) {
      Signal never;
      auto waited = co_await never.wait(deadline);
      co_return Err(waited.error().code, fmt::format("{} didn't answer in time", address));
    }
    Signal pause;
    auto waited = co_await pause.wait(std::min(arrives, deadline));
    if (waited.error().code != Errc::kDeadline) co_return std::unexpected(std::move(waited).error());
    if (arrives > deadline) co_return Err(Errc::kDeadline, fmt::format("{} didn't answer in time", address));
    auto it = net->listeners.find(address);
    if (it == net->listeners.end()) co_return Err(Errc::kUnavailable, fmt::format("{} can't be reached: Connection refused", address));
    auto wire = std::make_shared<Wire>();
    wire->hosts[0] = from, wire->hosts[1] = to;
    wire->names[0] = fmt::format("{}:{}", from, net->next_port++), wire->names[1] = address;
    net->wires.push_back(wire);
    ++net->counters.connections;
    auto listener = it->second;
    listener->loop->post([net, wire, listener] { listener->on_stream(std::make_unique<MemoryStream>(net, wire, 1, *listener->loop)); });
    co_return std::make_unique<MemoryStream>(net, wire, 0, loop);
  }
  std::shared_ptr<MemoryNetwork::Core> net_;
  std::string name_;
};

MemoryNetwork::MemoryNetwork(uint64_t seed, MemoryNetworkOptions options) : core_(std::make_shared<Core>(seed, options)) {}
MemoryNetwork::~MemoryNetwork() = default;

std::unique_ptr<rpc::Transport> MemoryNetwork::host(const std::string& name) { return std::make_unique<MemoryTransport>(core_, name); }

void MemoryNetwork::set_partition(const std::string& a, const std::string& b, bool apart) {
  if (apart) core_->apart.insert(ordered(a, b));
  else core_->apart.erase(ordered(a, b));
  core_->each_wire([](Wire& w) { w.wake(); });
}
void MemoryNetwork::break_between(const std::string& a, const std::string& b) {
  core_->each_wire([&](Wire& w) {
    if (ordered(w.hosts[0], w.hosts[1]) == ordered(a, b)) core_->break_wire(w);
  });
}
void MemoryNetwork::break_all() {
  core_->each_wire([&](Wire& w) { core_->break_wire(w); });
}
void MemoryNetwork::set_breaks_per_million(uint32_t n) { core_->options.breaks_per_million = n; }
const MemoryNetwork::Counters& MemoryNetwork::counters() const { return core_->counters; }

}  // namespace nacre::testing
