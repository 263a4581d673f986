// SPDX-License-Identifier: Apache-2.0
// Storage targets say that they are there. A target may know of higher numbers than this server (which was restored from a
// backup): they are never given out again.
#include "metadata/service/methods.h"

namespace nacre::mds::methods {

Task<Result<Bytes>> ost_register(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::OstRegisterRequestT>(call->request.body));
  if (q.max_ino >= kInoLimit || q.max_command >= uint64_t{1} << 62 || q.max_session >= uint64_t{1} << 62 || q.max_epoch >= uint32_t{1} << 31) co_return Err(Errc::kCorrupt, fmt::format("ost{} reports objects with impossible numbers: run nacre fsck", q.ost));
  CO_CHECK_OK(core.registry->may_enroll(q));
  core.restoration->seen(q);
  core.inos->skip_past(q.max_ino);  // before it is up: no new file may get the number of an object that lies there
  core.commands->skip_past(q.max_command);
  const OstId ost(q.ost);
  CO_TRY(auto reply, co_await core.registry->enroll(std::move(q)));
  core.aftermath->target_up(ost);
  co_return encode(reply);
}

Task<Result<Bytes>> ost_heartbeat(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::OstHeartbeatRequestT>(call->request.body));
  co_return encode(core.registry->heartbeat(q));
}

}  // namespace nacre::mds::methods
