// SPDX-License-Identifier: Apache-2.0
#include "metadata/background/aftermath.h"

#include <rocksdb/iterator.h>

#include "common/log/log.h"
#include "metadata/ops/common.h"
#include "metadata/store/rocks.h"

namespace nacre::mds {

Result<void> Aftermath::load() {
  Store& store = p_.services.store;
  active_ = !store.was_clean() && !store.restored();
  if (!active_) return {};
  std::unique_ptr<rocksdb::Iterator> last(store.rocks().db->NewIterator(rocksdb::ReadOptions(), store.rocks().family(Family::kChangelog)));
  last->SeekToLast();
  if (!last->status().ok()) return Err(to_error(last->status(), "reading the changelog"));
  if (!last->Valid()) return {};  // none is kept: every object is looked at
  auto entry = decode_record<schema::ChangelogRecordT>(text(last->value()));
  if (entry) since_ = std::max<Nanos>(entry->time - kAftermathMargin, 0);
  return {};
}

void Aftermath::target_up(OstId ost) {
  if (!active_) return;
  {
    std::lock_guard lock(mutex_);
    if (!seen_.insert(ost).second) return;
  }
  p_.runtime.loop(0).spawn(examine(ost));
}

Task<void> Aftermath::examine(OstId ost) {
  wire::ObjectListRequestT request;
  request.limit = kAftermathPage;
  request.after = std::make_unique<schema::ObjectRef>();
  for (bool end = false; !end;) {
    auto page = co_await p_.channels.call<rpc::Method::kObjectList>(ost, request, p_.runtime.clock().boot() + kOstAnswer);
    if (p_.runtime.stopping()) co_return;
    if (page && !page->objects.empty()) *request.after = page->objects.back().object();
    Result<void> done;
    if (page) done = co_await examine_page(ost, *page);
    end = page && done && (page->end || page->objects.empty());
    if (page && done) continue;
    const Error& why = page ? done.error() : page.error();
    if (why.code == Errc::kShutdown) co_return;
    log::warn("ost{}: what was written there before the restart can't be looked at yet: {}", ost.v, why.message());
    if (auto slept = co_await sleep_for(kSettleRetry); !slept) co_return;
  }
}

Task<Result<void>> Aftermath::examine_page(OstId ost, const wire::ObjectListReplyT& page) {
  ObjectId last;  // of a file that is to be settled; its other objects here add nothing
  for (const auto& o : page.objects) {
    const ObjectId object = to_id(o.object());
    if (o.stat().changed() < since_ || object.ino >= first_ || (object.ino == last.ino && object.generation == last.generation)) continue;
    CO_TRY(bool known, co_await judge(ost, object));
    if (known) last = object;
  }
  co_return Result<void>{};
}

/// True if the file is there with this generation: it is settled.
Task<Result<bool>> Aftermath::judge(OstId ost, const ObjectId& object) {
  OpContext ctx(p_.services, wire::CredT{});
  const SessionId nobody;
  CO_TRY(bool settle, co_await p_.driver.change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({object.ino}));
    NACRE_TRY(auto record, c.view().inode(object.ino));
    if (record && is_file(*record) && record->layout) {
      if (object.generation.v == record->layout->generation) {
        p_.opens.add_lost(object.ino, nobody);
        return true;
      }
      if (object.generation.v < record->layout->generation) return false;  // on its way out
      NACRE_TRY(auto moving, c.view().get_record<schema::MigrationRecordT>(Family::kMeta, migration_key(object.ino)));
      if (moving && moving->layout && moving->layout->generation == object.generation.v) return false;  // a mover of this run fills it, or its end is owed
      if (record->shadow_generation < object.generation.v) {
        record->shadow_generation = object.generation.v;
        c.put_inode(*record);
      }
    }
    NACRE_CHECK_OK(p_.owed.owe_object(c, ost, object));
    return false;
  }));
  if (settle) p_.settler.settle_later(object.ino, nobody);
  co_return settle;
}

}  // namespace nacre::mds
