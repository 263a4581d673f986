// SPDX-License-Identifier: Apache-2.0
// See channels.h.
#include "metadata/targets/channels.h"

#include <algorithm>

#include "common/wire/bits.h"

namespace nacre::mds {

OstChannels::OstChannels(Runtime& runtime, rpc::Transport& transport, Registry& registry, Options options)
    : runtime_(runtime), transport_(transport), registry_(registry), options_(std::move(options)), links_(runtime.size()) {}

OstChannels::~OstChannels() = default;

rpc::Channel& OstChannels::channel(OstId ost, const std::string& address) {
  Link& link = links_[Loop::current()->index()][ost];
  if (!link.channel) {
    rpc::Channel::Options o;
    o.addresses = {address};
    o.connect.cluster_id = options_.cluster_id;
    o.connect.key = options_.key;
    o.connect.role = wire::kRoleMds;
    o.connect.host = options_.host;
    link.channel = std::make_unique<rpc::Channel>(transport_, std::move(o), nullptr);
  } else if (link.address != address) {
    link.channel->set_addresses({address});
  }
  link.address = address;
  return *link.channel;
}

/// Errors after which the same request may be sent again, because nothing says that the target refused it.
static bool lost(Errc code) { return code == Errc::kDisconnected || code == Errc::kUnavailable || code == Errc::kDeadline || code == Errc::kRetryLater || code == Errc::kShutdown; }

Task<Result<Bytes>> OstChannels::call_raw(OstId ost, rpc::Method method, Bytes body, Nanos deadline, CancelPtr cancel) {
  if (!options_.waits) co_return co_await call_until(ost, method, std::move(body), deadline, std::move(cancel));
  Watched wait(*options_.waits, runtime_.clock().boot(), [ost, method] { return fmt::format("ost{} to answer {}", ost.v, rpc::method_name(static_cast<uint16_t>(method))); });
  co_return co_await call_until(ost, method, std::move(body), deadline, std::move(cancel));
}

Task<Result<Bytes>> OstChannels::call_until(OstId ost, rpc::Method method, Bytes body, Nanos deadline, CancelPtr cancel) {
  Clock& clock = runtime_.clock();
  std::string last = "no answer";
  for (;;) {
    auto endpoint = registry_.endpoint(ost);
    if (!endpoint) co_return Err(Errc::kOstDown, fmt::format("ost{} has never registered", ost.v));
    if (endpoint->state == wire::kOstInactive) co_return Err(Errc::kOstInactive, fmt::format("ost{} was marked inactive by the administrator", ost.v));
    const Nanos now = clock.boot();
    if (now >= deadline) co_return Err(Errc::kOstDown, fmt::format("ost{} at {}: {}", ost.v, endpoint->address, last));
    if (runtime_.stopping()) co_return Err(Errc::kShutdown);
    auto peer = co_await channel(ost, endpoint->address).get(std::min(deadline, now + kOstAttempt), cancel);
    Error why;
    if (peer) {
      rpc::CallOptions options;
      options.deadline = deadline;
      options.cancel = cancel;
      auto reply = co_await (*peer)->call(method, body, std::move(options));
      if (reply) co_return std::move(reply->body);
      why = std::move(reply).error();
    } else {
      why = std::move(peer).error();
    }
    if (cancel && cancel->fired()) co_return std::unexpected(cancel->error());
    if (!lost(why.code)) co_return std::unexpected(std::move(why));
    last = why.message();
    if (auto slept = co_await sleep_for(kOstRetryPause); !slept) co_return std::unexpected(std::move(slept).error());
  }
}

void OstChannels::close() {
  for (size_t i = 0; i < links_.size(); ++i)
    runtime_.loop(i).post([this, i] {
      for (auto& [ost, link] : links_[i])
        if (link.channel) link.channel->close();
    });
}

}  // namespace nacre::mds
