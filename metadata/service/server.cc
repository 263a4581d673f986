// SPDX-License-Identifier: Apache-2.0
// See server.h.
#include "metadata/service/server.h"

#include "common/log/log.h"
#include "metadata/service/dispatch.h"

namespace nacre::mds {

MetadataServer::MetadataServer() = default;
MetadataServer::~MetadataServer() = default;

Result<std::unique_ptr<MetadataServer>> MetadataServer::start(Runtime& runtime, rpc::Transport& transport, CoreOptions options, std::string address) {
  std::unique_ptr<MetadataServer> out(new MetadataServer());
  rpc::ServerOptions so;
  so.address = std::move(address);
  so.cluster_id = options.cluster.id;
  so.key = options.key;
  out->core_ = std::make_unique<Core>(runtime, transport, std::move(options));
  NACRE_CHECK_OK(out->core_->open());
  Core& core = *out->core_;
  so.incarnation = core.store->incarnation();
  if (core.store->recovered_to_gap()) log::warn("the journal ended at a gap: what was written after it and not fsynced is gone");
  if (core.sessions->recovering())
    log::info("{} sessions of before the restart have {} s to come back", core.sessions->unreclaimed(), (core.sessions->window_end() - core.clock.boot()) / kSecond);
  out->dispatcher_ = std::make_unique<Dispatcher>(core);
  core.spawn_background();
  core.open_metrics();
  NACRE_TRY(out->server_, rpc::serve(runtime, transport, std::move(so), [d = out->dispatcher_.get()](rpc::PeerPtr peer, rpc::Request request) { return d->handle(std::move(peer), std::move(request)); }));
  return out;
}

std::string MetadataServer::address() const { return server_->address(); }

void MetadataServer::stop() {
  core_->endpoint.reset();
  if (server_) server_->stop();
  core_->channels->close();
}

Result<void> MetadataServer::close_clean() { return core_->close_clean(); }

}  // namespace nacre::mds
