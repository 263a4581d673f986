// SPDX-License-Identifier: Apache-2.0
#include "client/core/core.h"

#include <unistd.h>

#include "common/base/rng.h"
#include "common/log/log.h"

namespace nacre::client {

namespace {
std::string machine_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? std::string(name) : std::string("unknown");
}
}  // namespace

Core::Core(Runtime& r, rpc::Transport& t, MountOptions o) : runtime(r), transport(t), options(std::move(o)), waits(r.size()), mds(*this) {
  if (options.host.empty()) options.host = machine_name();
  if (options.client_uuid == std::array<uint8_t, 16>{}) system_rng().fill(std::as_writable_bytes(std::span(options.client_uuid)));
}

rpc::ConnectOptions Core::connect_options() const {
  rpc::ConnectOptions c;
  c.cluster_id = options.cluster_id;
  c.key = options.key;
  c.role = wire::kRoleClient;
  c.host = options.host;
  return c;
}

TargetPtr Core::target(OstId id) {
  std::lock_guard lock(mutex_);
  auto it = targets_.find(id.v);
  return it == targets_.end() ? nullptr : it->second;
}

std::vector<TargetPtr> Core::targets() const {
  std::vector<TargetPtr> out;
  std::lock_guard lock(mutex_);
  for (auto& [id, t] : targets_) out.push_back(t);
  return out;
}

void Core::apply_map(const wire::ClusterMapT& map) {
  map_version_.store(map.version);
  for (auto& entry : map.osts) {
    if (!entry) continue;
    TargetPtr t;
    {
      std::lock_guard lock(mutex_);
      auto& slot = targets_[entry->id];
      if (!slot) {
        if (targets_.size() > kMaxTargets) {
          log::error("the cluster map names more than {} storage targets; ost{} is left out", kMaxTargets, entry->id);
          targets_.erase(entry->id);
          continue;
        }
        slot = std::make_shared<Target>(*this, OstId(entry->id));
      }
      t = slot;
    }
    t->update(*entry);
  }
}

void Core::session_lost(uint64_t new_session) {
  inodes.make_all_stale(new_session);
  locks.lost(Error(Errc::kNoLck, "the session was evicted"));
  uint64_t writes = 0;
  for (auto& t : targets()) writes += t->drop_all();
  if (writes) log::error("{} writes that were not yet known to be stable can't be sent again if a storage target loses them: the session was evicted", writes);
  if (options.hooks.session_lost) options.hooks.session_lost();
}

ClientStatus Core::status() const {
  ClientStatus s;
  s.session = mds.session();
  s.map_version = map_version_.load();
  s.evicted = mds.evicted();
  s.open_handles = inode_table->all_handles().size();
  s.held_locks = locks.count();
  auto oldest = waits.oldest(clock().boot());
  s.in_flight = oldest.count;
  s.oldest_wait = oldest.age;
  s.oldest_wait_text = oldest.text;
  for (auto& w : waits.list(clock().boot(), kMaxWaitingShown)) s.waiting.push_back({w.age, std::move(w.operation), std::move(w.server)});
  s.read_bytes = read_bytes.load();
  s.written_bytes = written_bytes.load();
  s.retries = retries.load() + mds.retries();
  s.servers.push_back(mds.status());
  for (auto& t : targets()) s.servers.push_back(t->status());
  return s;
}

Task<void> Core::housekeeping(std::shared_ptr<Core> self) {
  while (!stopping()) {
    Signal never;
    (void)co_await never.wait(clock().boot() + kHousekeeping, stop);
    if (stopping()) co_return;
    waits.warn(clock().boot(), options.warn_after);
    for (auto& t : targets()) {
      if (t->retained_bytes() == 0) continue;
      auto op = make_op(self, "tidy", Caller{});
      op->unlimited();
      op->limit(clock().boot() + 5 * kSecond);
      Loop::current()->spawn(t->tidy(op, kTidyAfter));
    }
  }
}

Task<void> Core::on_every_loop(std::function<void(Loop&)> fn) {
  struct Shared { std::atomic<size_t> left; Signal done; };
  auto shared = std::make_shared<Shared>();
  shared->left = runtime.size();
  for (size_t i = 0; i < runtime.size(); ++i) {
    Loop* loop = &runtime.loop(i);
    loop->post([shared, fn, loop] {
      fn(*loop);
      if (--shared->left == 0) shared->done.set();
    });
  }
  (void)co_await shared->done.wait(clock().boot() + 5 * kSecond);
}

Task<Result<void>> Core::bind_mds(std::weak_ptr<Core> weak, rpc::PeerPtr peer) {
  auto core = weak.lock();
  if (!core || core->stopping()) co_return Err(Errc::kShutdown);
  co_return co_await core->mds.bind(std::move(peer));
}

Task<Result<void>> Core::bind_target(std::weak_ptr<Core> weak, OstId id, rpc::PeerPtr peer) {
  auto core = weak.lock();
  if (!core || core->stopping()) co_return Err(Errc::kShutdown);
  auto t = core->target(id);
  if (!t) co_return Err(Errc::kShutdown);
  co_return co_await t->on_connected(std::move(peer));
}

Task<rpc::Reply> Core::handle_push(std::weak_ptr<Core> weak, rpc::PeerPtr peer, rpc::Request request) {
  auto core = weak.lock();
  if (!core) co_return rpc::fail(Error(Errc::kShutdown));
  co_return co_await core->mds.handle(std::move(peer), std::move(request));
}

Task<void> Core::reconnect(std::weak_ptr<Core> weak, TargetPtr target) {
  auto core = weak.lock();
  if (core) co_await target->reconnect(core);
}

}  // namespace nacre::client
