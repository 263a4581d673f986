// SPDX-License-Identifier: Apache-2.0
// Moving data: the steps of a mover (Migrate), and which files have objects on a target (OstFiles).
#include "common/wire/bits.h"
#include "metadata/ops/common.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
enum Step : uint8_t { kBegin = 1, kSeal = 2, kCommit = 3, kGiveUp = 4 };

constexpr size_t kRowsPerLook = 20'000;          ///< inode records one visit of a worker reads: some 20 ms
constexpr uint32_t kMaxFilesPerPage = 10'000;
constexpr Nanos kScanTime = 5 * kSecond;         ///< of one request; then the caller goes on from where it came to

wire::MigrateReplyT reply_of(Core& core, const Call& call, Migrations::State& s) {
  const SessionId session = call.session->id();
  wire::MigrateReplyT reply;
  reply.token = s.token;
  reply.attr = std::make_unique<wire::AttrT>(s.attr);
  if (s.token == 0 || !s.record.layout) return reply;
  reply.source = std::make_unique<schema::LayoutT>(*s.record.layout);
  reply.source_cap = core.rights(session, s.record, wire::kCapRead);
  s.record.layout = std::make_unique<schema::LayoutT>(s.target);
  reply.target = std::make_unique<schema::LayoutT>(s.target);
  reply.target_cap = core.rights(session, s.record, wire::kCapRead | wire::kCapWrite);
  core.capabilities->sign(*call.session, reply.source_cap);
  core.capabilities->sign(*call.session, reply.target_cap);
  return reply;
}
}  // namespace

Task<Result<Bytes>> migrate(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::MigrateRequestT>(call->request.body));
  CO_TRY(auto cred, cred_of(*call, q.cred));
  Migrations& m = *core.migrations;
  Migrations::Wish wish;
  if (q.layout && !q.layout->components.empty()) {
    CO_CHECK_OK(check_wish(core, *q.layout));
    wish.layout = *q.layout;
  }
  if (q.avoid.size() > kMaxAvoided) co_return Err(Errc::kTooBig, fmt::format("{} targets to avoid; at most {} can be named", q.avoid.size(), kMaxAvoided));
  wish.avoid = std::move(q.avoid);
  OpContext ctx(*core.services, std::move(cred), call->identity());
  const Ino ino(q.ino);
  Result<Migrations::State> state = Err(Errc::kInval, fmt::format("a migration has no step {}", q.step));
  switch (q.step) {
    case kBegin: state = q.token == 0 ? co_await m.begin(*core.driver, ctx, ino, std::move(wish)) : co_await m.look(*core.driver, ctx, ino, q.token); break;
    case kSeal: state = co_await m.seal(*core.driver, ctx, ino, q.token, call->deadline); break;
    case kCommit: state = co_await m.commit(*core.driver, ctx, ino, q.token, call->deadline); break;
    case kGiveUp:
      CO_CHECK_OK(co_await m.give_up(*core.driver, call->session->id(), ino, q.token));
      co_return encode(wire::MigrateReplyT{});
    default: break;
  }
  if (!state) co_return std::unexpected(std::move(state).error());
  co_return encode(reply_of(core, *call, *state));
}

// ---------------------------------------------------------------- files of a target

namespace {
struct Look {
  std::vector<uint64_t> inos;
  uint64_t last = 0;
  bool end = true;
};

bool lies_on(const schema::InodeRecordT& r, uint32_t ost) {
  if (!is_file(r) || !r.layout) return false;
  return std::any_of(r.layout->components.begin(), r.layout->components.end(), [&](const auto& c) { return std::find(c->osts.begin(), c->osts.end(), ost) != c->osts.end(); });
}

/// Some inode records from the one after `after` on.
Result<Look> look(const Store& store, uint32_t ost, uint64_t after, size_t limit) {
  Look out;
  out.last = after;
  size_t rows = 0;
  View view(store, Tier::kFull);
  auto scanned = view.scan(Family::kInode, inode_key(Ino(after + 1)), "", [&](std::string_view key, std::string_view value) {
    auto ino = parse_inode_key(key);
    auto record = decode_record<schema::InodeRecordT>(value);
    if (ino) out.last = ino->v;
    if (ino && record && lies_on(*record, ost)) out.inos.push_back(ino->v);
    out.end = ++rows < kRowsPerLook && out.inos.size() < limit;
    return out.end;
  });
  if (!scanned) return std::unexpected(std::move(scanned).error());
  return out;
}
}  // namespace

/// The last number of a page that isn't the end may be a file that lies elsewhere: it only says how far the search has come.
Task<Result<Bytes>> ost_files(Core& core, CallPtr call) {
  CO_TRY(auto q, decode<wire::OstFilesRequestT>(call->request.body));
  if (!core.registry->has(OstId(q.ost))) co_return Err(Errc::kNoEnt, fmt::format("there is no ost{}: see 'nacre ost list'", q.ost));
  if (q.after == UINT64_MAX) co_return Err(Errc::kInval, "there is no inode after that");
  const size_t limit = std::clamp(q.limit, 1u, kMaxFilesPerPage);
  const Nanos until = core.clock.boot() + kScanTime;
  wire::OstFilesReplyT reply;
  uint64_t after = q.after;
  do {
    CO_TRY(Look found, co_await run_blocking([&] { return look(*core.store, q.ost, after, limit - reply.inos.size()); }));
    reply.inos.insert(reply.inos.end(), found.inos.begin(), found.inos.end());
    reply.end = found.end;
    after = found.last;
  } while (!reply.end && reply.inos.size() < limit && core.clock.boot() < until);
  if (!reply.end && (reply.inos.empty() || reply.inos.back() != after)) reply.inos.push_back(after);
  auto status = co_await core.channels->call<rpc::Method::kOssStatus>(OstId(q.ost), {}, core.clock.boot() + kOstAttempt);
  if (!status) co_return std::unexpected(std::move(status).error());
  reply.objects = status->objects;
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
