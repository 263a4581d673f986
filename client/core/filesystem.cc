// SPDX-License-Identifier: Apache-2.0
// Mounting and unmounting: options, the session's start, and an orderly end.
#include "client/core/filesystem.h"

#include "client/core/filesystem_impl.h"
#include "common/config/cluster.h"
#include "common/log/log.h"

namespace nacre::client {

Result<MountOptions> options_from_cluster(const config::Cluster& cluster) {
  MountOptions o;
  for (auto& m : cluster.mds) o.mds.push_back(m.address);
  if (o.mds.empty()) return Err(Errc::kConfig, cluster.file + ": no metadata server is named");
  o.cluster_id = cluster.id;
  NACRE_TRY(o.key, wire::read_key_file(cluster.key_file));
  o.warn_after = static_cast<Nanos>(cluster.settings.client_warn_after) * kMillisecond;
  o.retained = cluster.settings.client_retained;
  return o;
}

Result<std::unique_ptr<Filesystem>> Filesystem::make(Runtime& runtime, rpc::Transport& transport, MountOptions options) {
  if (options.mds.empty()) return Err(Errc::kConfig, "no metadata server to connect to: name one as HOST:PORT");
  if (!options.subdir.empty() && options.subdir.front() != '/') return Err(Errc::kConfig, fmt::format("subdir '{}': write it as an absolute path inside the filesystem, such as /projects", options.subdir));
  return std::make_unique<FilesystemImpl>(std::make_shared<Core>(runtime, transport, std::move(options)));
}

Task<Result<void>> FilesystemImpl::connect(Nanos deadline, CancelPtr cancel) {
  Caller caller;
  caller.cancel = std::move(cancel);
  auto op = begin("mount", std::move(caller));
  op->limit(deadline);
  CO_CHECK_OK(co_await core_->mds.open(op));
  Loop::current()->spawn(core_->mds.keep_alive(core_));
  Loop::current()->spawn(core_->housekeeping(core_));
  co_return Result<void>{};
}

Task<void> FilesystemImpl::disconnect(Nanos limit) {
  auto core = core_;
  if (core->stopping()) co_return;
  Nanos deadline = core->clock().boot() + limit;
  if (core->mds.session()) {
    auto op = make_op(core, "unmount", Caller{});
    op->limit(deadline);
    if (auto done = co_await core->commit_all(std::move(op)); !done) log::error("unmount: data may not be stable: {}", done.error().message());
    for (auto& handle : core->inodes.all_handles()) {
      if (core->clock().boot() >= deadline) break;
      (void)co_await core->close_handle(core, handle, 0, deadline);
    }
  }
  core->stop->fire(Error(Errc::kShutdown, "the filesystem is being unmounted"));
  co_await core->mds.close(std::min(deadline, core->clock().boot() + kCloseLimit));
  core->locks.lost(Error(Errc::kShutdown, "the filesystem is being unmounted"));
  auto targets = core->targets();
  co_await core->on_every_loop([targets](Loop& loop) {
    for (auto& t : targets) t->close_on(loop);
  });
  // Operations use this object until they end.
  const Nanos until = core->clock().boot() + kDrainLimit;
  while (core->operations.load(std::memory_order_acquire) > 0 && core->clock().boot() < until) (void)co_await sleep_for(2 * kMillisecond);
  if (auto left = core->operations.load()) log::warn("unmount: {} operations did not end in time", left);
}

Result<void> FilesystemImpl::may_change() const {
  if (core_->options.read_only) return Err(Errc::kRoFs);
  return {};
}

}  // namespace nacre::client
