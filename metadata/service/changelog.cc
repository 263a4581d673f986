// SPDX-License-Identifier: Apache-2.0
// Readers of the changelog, and pages of it.
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr uint8_t kRegister = 1, kClear = 2, kDeregister = 3, kList = 4;  ///< ChangelogControlRequest.action

Result<wire::ChangelogControlReplyT> control(Changelog& log, const wire::ChangelogControlRequestT& q) {
  wire::ChangelogControlReplyT reply;
  reply.reader = q.reader;
  switch (q.action) {
    case kRegister: {
      NACRE_TRY(reply.reader, log.add_reader(q.name));
      break;
    }
    case kClear: NACRE_CHECK_OK(log.clear(q.reader, q.sequence)); break;
    case kDeregister: NACRE_CHECK_OK(log.drop_reader(q.reader)); break;
    case kList: break;
    default: return Err(Errc::kInval, fmt::format("there is no action {} on the changelog", q.action));
  }
  NACRE_TRY(auto readers, log.readers());
  for (auto& r : readers) {
    auto out = std::make_unique<wire::ChangelogReaderT>();
    out->reader = r.reader;
    out->name = std::move(r.name);
    out->cleared = r.cleared;
    out->created = r.created;
    reply.readers.push_back(std::move(out));
  }
  NACRE_TRY(auto range, log.range());
  reply.first = range.first;
  reply.last = range.last;
  return reply;
}

std::unique_ptr<wire::ChangelogEntryT> shown(uint64_t sequence, schema::ChangelogRecordT&& r) {
  auto e = std::make_unique<wire::ChangelogEntryT>();
  e->sequence = sequence;
  e->time = r.time;
  e->kind = r.kind;
  e->ino = r.ino;
  e->parent = r.parent;
  e->name = std::move(r.name);
  e->new_parent = r.new_parent;
  e->new_name = std::move(r.new_name);
  e->uid = r.uid;
  e->session = r.session;
  return e;
}
}  // namespace

Task<Result<Bytes>> changelog_control(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::ChangelogControlRequestT>(call->request.body));
  if (q.action == kRegister && core.settings().mds_changelog_records == 0) co_return Err(Errc::kOpNotSupp, "this cluster keeps no changelog: set mds.changelog_records");
  CO_TRY(auto reply, co_await run_blocking([&] { return control(*core.changelog, q); }));
  co_return encode(reply);
}

Task<Result<Bytes>> changelog_read(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::ChangelogReadRequestT>(call->request.body));
  CO_TRY(auto page, co_await run_blocking([&] { return core.changelog->read(q.reader, q.after, q.limit); }));
  wire::ChangelogReadReplyT reply;
  reply.gap_before = page.gap_before;
  reply.end = page.end;
  for (auto& [sequence, record] : page.entries) reply.entries.push_back(shown(sequence, std::move(record)));
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
