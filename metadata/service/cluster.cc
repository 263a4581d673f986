// SPDX-License-Identifier: Apache-2.0
// What is asked of the whole filesystem: sync, statfs, the cluster map, paths.
#include <algorithm>

#include "common/base/units.h"
#include "common/wire/bits.h"
#include "metadata/ops/ops.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr uint64_t kBytesPerInode = 1024;   ///< of the metadata's filesystem: record, name and index of a file, with room to spare
constexpr uint32_t kMaxPaths = 256;
}  // namespace

Task<Result<Bytes>> sync(Core& core, CallPtr call) {
  CO_CHECK_OK(view<wire::SyncRequestT>(call->request.body));
  CO_CHECK_OK(co_await core.journal->sync_to(core.journal->committed()));
  co_return encode(wire::EmptyT{});
}

/// From what the targets last told: never waits for anybody.
Task<Result<Bytes>> statfs(Core& core, CallPtr call) {
  CO_CHECK_OK(view<wire::StatfsRequestT>(call->request.body));
  const Registry::Space space = core.registry->space();
  wire::StatfsReplyT reply;
  reply.blocks = space.capacity / kBlockSize;
  reply.free = space.free / kBlockSize;
  reply.available = std::min(space.available, space.free) / kBlockSize;
  const auto used = core.journal->usage_total().inodes;
  reply.files_free = core.room.load() / kBytesPerInode;
  reply.files = static_cast<uint64_t>(std::max<int64_t>(used, 0)) + reply.files_free;
  co_return encode(reply);
}

Task<Result<Bytes>> map_get(Core& core, CallPtr call) {
  CO_CHECK_OK(view<wire::MapGetRequestT>(call->request.body));
  co_return encode(core.registry->map());
}

Task<Result<Bytes>> path_of(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::PathOfRequestT>(call->request.body));
  q.max_paths = std::clamp(q.max_paths, 1u, kMaxPaths);
  wire::CredT cred;
  if (call->session) {
    CO_TRY(cred, cred_of(*call, q.cred));
  }
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(auto reply, co_await core.driver->read(ctx, [&](OpContext& c) { return ops::path_of(c, q); }));
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
