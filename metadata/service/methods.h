// SPDX-License-Identifier: Apache-2.0
// The methods that are more than one namespace operation, by the file that has them. Contracts: common/schema/wire.fbs and
// docs/protocol.md.
#pragma once
#include "metadata/service/call.h"

namespace nacre::mds::methods {

// session.cc
Task<Result<Bytes>> session_open(Core& core, CallPtr call);
Task<Result<Bytes>> session_bind(Core& core, CallPtr call);
Task<Result<Bytes>> session_close(Core& core, CallPtr call);
Task<Result<Bytes>> keepalive(Core& core, CallPtr call);
Task<Result<Bytes>> reclaim(Core& core, CallPtr call);  // reclaim.cc
// open.cc
Task<Result<Bytes>> open(Core& core, CallPtr call);
Task<Result<Bytes>> create(Core& core, CallPtr call);
Task<Result<Bytes>> close(Core& core, CallPtr call);
// size.cc
Task<Result<Bytes>> setattr(Core& core, CallPtr call);
Task<Result<Bytes>> fallocate(Core& core, CallPtr call);
// layout.cc
Task<Result<Bytes>> layout_grant(Core& core, CallPtr call);
Task<Result<Bytes>> layout_set(Core& core, CallPtr call);
Task<Result<Bytes>> layout_get(Core& core, CallPtr call);
/// A layout as a user may ask for it: well-formed, nothing in it that only the server decides. Error: kInval with a sentence.
Result<void> check_wish(Core& core, const schema::LayoutT& layout);
// migrate.cc
Task<Result<Bytes>> migrate(Core& core, CallPtr call);
Task<Result<Bytes>> ost_files(Core& core, CallPtr call);
// append.cc
Task<Result<Bytes>> append_begin(Core& core, CallPtr call);
Task<Result<Bytes>> append_end(Core& core, CallPtr call);
// lock.cc
Task<Result<Bytes>> lock(Core& core, CallPtr call);
Task<Result<Bytes>> lock_test(Core& core, CallPtr call);
Task<Result<Bytes>> lock_cancel(Core& core, CallPtr call);
// cluster.cc
Task<Result<Bytes>> sync(Core& core, CallPtr call);
Task<Result<Bytes>> statfs(Core& core, CallPtr call);
Task<Result<Bytes>> map_get(Core& core, CallPtr call);
Task<Result<Bytes>> path_of(Core& core, CallPtr call);
// admin.cc
Task<Result<Bytes>> client_list(Core& core, CallPtr call);
Task<Result<Bytes>> client_evict(Core& core, CallPtr call);
Task<Result<Bytes>> ost_set_state(Core& core, CallPtr call);
Task<Result<Bytes>> status(Core& core, CallPtr call);
Task<Result<Bytes>> fsck(Core& core, CallPtr call);
Task<Result<Bytes>> backup(Core& core, CallPtr call);
// changelog.cc
Task<Result<Bytes>> changelog_control(Core& core, CallPtr call);
Task<Result<Bytes>> changelog_read(Core& core, CallPtr call);
// ost.cc
Task<Result<Bytes>> ost_register(Core& core, CallPtr call);
Task<Result<Bytes>> ost_heartbeat(Core& core, CallPtr call);

}  // namespace nacre::mds::methods
