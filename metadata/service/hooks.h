// SPDX-License-Identifier: Apache-2.0
// The service's side of OpHooks: connects the namespace operations with the tables of opens, layouts, objects and owed commands.
#pragma once
#include "metadata/ops/hooks.h"

namespace nacre::mds {

struct Core;

class Hooks final : public OpHooks {
 public:
  explicit Hooks(Core& core);
  bool open_for_write(Ino ino) const override;
  bool open_elsewhere(Ino ino, SessionId self) const override;
  bool sole_quiet_writer(Ino ino, SessionId session) const override;
  bool writable_handle(SessionId session, Ino ino, uint64_t handle) const override;
  bool moving(Ino ino) const override;
  bool keep_unlinked(const schema::InodeRecordT& record, bool replaced) const override;
  Result<void> created(OpContext& ctx, schema::InodeRecordT& record, const wire::CreateRequestT& request) override;
  Result<void> destroy_objects(OpContext& ctx, const schema::InodeRecordT& record) override;
  Result<void> end_migration(OpContext& ctx, const schema::InodeRecordT& record) override;
  void orphaned(OpContext& ctx, const schema::InodeRecordT& record) override;
  schema::LayoutT cluster_layout() const override;
  Task<Result<std::vector<Glimpse>>> glimpse(std::vector<Ino> inos) override;
  Task<Result<void>> finish_intent(Ino ino) override;
  Task<Result<void>> wait_moved(Ino ino) override;
  Task<Result<void>> truncate(Ino ino, uint64_t size) override;

 private:
  Core& core_;
  const schema::LayoutT default_;
};

/// Registers an open inside an operation: the handle, and for a writer component 0 and the OpenRecord. Changes `record` (the
/// caller puts it if the result is true). Also what created() does. Errors: kNoMem (too many opens).
Result<bool> register_open(Core& core, OpContext& ctx, schema::InodeRecordT& record, uint64_t handle, uint32_t flags);

}  // namespace nacre::mds
