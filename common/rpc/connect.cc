// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "common/rpc/handshake.h"

namespace nacre::rpc {

Task<Result<PeerPtr>> connect(Transport& transport, ConnectOptions options, Handler handler) {
  Loop* loop = Loop::current();
  const int cpu = options.cpu >= 0 ? options.cpu : loop->runtime().cpu_of(loop->index());
  CO_TRY(std::unique_ptr<Stream> stream, co_await transport.connect(options.address, options.deadline));
  auto info = Result<PeerInfo>();
  {
    StreamDeadline guard(*stream, options.deadline);
    info = co_await connect_handshake(*stream, options, cpu);
    if (!info && guard.passed()) info = Err(Errc::kDeadline, fmt::format("{} accepted the connection and didn't answer in time", options.address));
  }
  if (!info) {
    stream->close();
    co_return std::unexpected(std::move(info).error());
  }
  info->role = 0;
  co_return start_peer(*loop, std::move(stream), std::move(*info), std::move(handler));
}

}  // namespace nacre::rpc
