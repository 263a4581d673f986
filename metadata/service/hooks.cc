// SPDX-License-Identifier: Apache-2.0
// See hooks.h and metadata/ops/hooks.h, which has the contract.
#include "metadata/service/hooks.h"

#include "metadata/ops/common.h"
#include "metadata/service/core.h"

namespace nacre::mds {

Hooks::Hooks(Core& core) : core_(core), default_(default_layout(core.settings())) {}

bool Hooks::open_for_write(Ino ino) const { return core_.opens.open_for_write(ino); }
bool Hooks::sole_quiet_writer(Ino ino, SessionId session) const { return core_.opens.sole_quiet_writer(ino, session); }

/// During the recovery window nobody knows who has what open for reading.
bool Hooks::open_elsewhere(Ino ino, SessionId self) const { return core_.opens.open_elsewhere(ino, self) || core_.sessions->recovering(); }

bool Hooks::writable_handle(SessionId session, Ino ino, uint64_t handle) const {
  auto flags = core_.opens.flags(ino, session, handle);
  return flags && flags_write(*flags);
}

/// Kept: what is open or may be; what a rename has replaced, since a client that has just looked the name up is about to open
/// it by number; and directories, which a process may be standing in.
bool Hooks::keep_unlinked(const schema::InodeRecordT& record, bool replaced) const {
  return replaced || is_dir(record) || core_.opens.is_open(Ino(record.ino)) || core_.sessions->recovering();
}

Result<bool> register_open(Core& core, OpContext& ctx, schema::InodeRecordT& record, uint64_t handle, uint32_t flags) {
  const Ino ino(record.ino);
  const SessionId session = ctx.identity().session;
  if (core.opens.count(session) >= kMaxOpensPerSession) return Err(Errc::kNoMem, fmt::format("session {} has {} open files, the limit", session.v, kMaxOpensPerSession));
  bool changed = false;
  std::shared_ptr<schema::LayoutT> before;
  if (flags_write(flags) && is_file(record) && record.layout) {
    before = std::make_shared<schema::LayoutT>(*record.layout);
    // While the data moves nothing new is added to what it moves from: the first write gets it.
    auto made = core.migrations->moving(ino) ? Result<bool>(false) : instantiate(*record.layout, 0, 0, [&core](const schema::ComponentT& c) { return core.choose(c); });
    // Without room the open still succeeds: the first write will say so.
    if (!made && made.error().code != Errc::kNoSpc) return std::unexpected(std::move(made).error());
    changed = made && *made;
    if (!core.opens.writes(ino, session)) {
      schema::OpenRecordT open;
      open.mode = wire::kCapWrite;
      ctx.batch().put_record(Family::kOpen, open_key(session, ino), open);
    }
  }
  ctx.on_staged([&core, ino, session, handle, flags, before] { core.opens.add(ino, session, handle, flags, before.get()); });
  return changed;
}

Result<void> Hooks::created(OpContext& ctx, schema::InodeRecordT& record, const wire::CreateRequestT& request) {
  auto done = register_open(core_, ctx, record, request.handle, request.flags);
  if (!done) return std::unexpected(std::move(done).error());
  return {};
}

Result<void> Hooks::destroy_objects(OpContext& ctx, const schema::InodeRecordT& record) {
  NACRE_CHECK_OK(core_.migrations->end(ctx, record));
  return core_.owed->owe(ctx, record);
}

Result<void> Hooks::end_migration(OpContext& ctx, const schema::InodeRecordT& record) { return core_.migrations->end(ctx, record); }
bool Hooks::moving(Ino ino) const { return core_.migrations->moving(ino); }
Task<Result<void>> Hooks::wait_moved(Ino ino) { return core_.migrations->wait(ino); }

void Hooks::orphaned(OpContext& ctx, const schema::InodeRecordT& record) {
  const bool grace = ctx.identity().method == static_cast<uint16_t>(rpc::Method::kRename) || is_dir(record);
  const Nanos not_before = grace ? core_.clock.boot() + kReplacedGrace : 0;
  ctx.on_commit([this, ino = Ino(record.ino), not_before] { core_.orphans->add(ino, not_before); });
}

schema::LayoutT Hooks::cluster_layout() const { return default_; }

Task<Result<std::vector<Glimpse>>> Hooks::glimpse(std::vector<Ino> inos) { return core_.objects->glimpse(std::move(inos), core_.clock.boot() + kOstAnswer); }

Task<Result<void>> Hooks::finish_intent(Ino ino) { return core_.intents->finish(*core_.driver, ino); }

Task<Result<void>> Hooks::truncate(Ino ino, uint64_t size) {
  Intents::Change change;
  change.kind = kIntentTruncate;
  change.new_size = size;
  return core_.intents->carry_out(*core_.driver, ino, change);
}

}  // namespace nacre::mds
