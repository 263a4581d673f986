// SPDX-License-Identifier: Apache-2.0
// A client joins, says that it is still there, and leaves.
#include "common/log/log.h"
#include "metadata/ops/common.h"
#include "metadata/ops/ops.h"
#include "metadata/service/methods.h"

namespace nacre::mds::methods {
namespace {
constexpr size_t kMaxSubdir = 4096;             ///< bytes, PATH_MAX
constexpr size_t kMaxAtimes = 4096;             ///< of one keepalive
constexpr size_t kAtimesAtOnce = 64;

wire::CredT root_cred() {
  wire::CredT cred;
  cred.groups_known = true;
  return cred;
}

/// The attributes of "/a/b", without following symlinks.
Task<Result<wire::AttrT>> directory_at(Core& core, std::string path) {
  if (path.size() > kMaxSubdir) co_return Err(Errc::kNameTooLong, "the subdirectory's path is too long");
  Ino at = kRootIno;
  OpContext ctx(*core.services, root_cred());
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    wire::LookupRequestT q;
    q.parent = at.v;
    q.name = as_bytes(std::string_view(path).substr(begin, end - begin));
    begin = end + 1;
    if (q.name.empty() || as_text(q.name) == ".") continue;
    if (as_text(q.name) == "..") co_return Err(Errc::kInval, fmt::format("the subdirectory {} must not contain '..'", path));
    OpContext step(*core.services, root_cred());
    auto found = co_await core.driver->read(step, [&](OpContext& c) { return ops::lookup(c, q); });
    if (!found) co_return Err(found.error().code, fmt::format("the subdirectory {} can't be mounted: {}", path, found.error().message()));
    at = Ino(found->attr->ino);
  }
  wire::GetattrRequestT q;
  q.ino = at.v;
  CO_TRY(auto reply, co_await core.driver->read(ctx, [&](OpContext& c) { return ops::getattr(c, q); }));
  if ((reply.attr->mode & 0170000) != 0040000) co_return Err(Errc::kNotDir, fmt::format("{} is no directory", path));
  co_return std::move(*reply.attr);
}
}  // namespace

/// A connection belongs to one session for good: what the server calls over it is meant for that one.
static Result<void> check_free(const Call& call, SessionId wanted) {
  const auto* context = std::any_cast<PeerContext>(&call.peer->context);
  if (!context || context->session->id() == wanted) return {};
  return Err(Errc::kProtocol, fmt::format("this connection belongs to session {}: open another one", context->session->id()));
}

/// The same client has a new session: its process died and its supervisor has started another, or it did not hear of the old one.
/// Nobody has to wait until that one's lease ends.
static Task<void> replace(Core& core, SessionPtr old) {
  auto done = co_await core.evictor->evict(old, "its client has begun anew");
  if (!done && done.error().code != Errc::kShutdown) log::error("session {} can't be evicted: {}", old->id().v, done.error().message());
}

Task<Result<Bytes>> session_open(Core& core, CallPtr call) {
  CO_TRY(auto request, decode<wire::SessionOpenRequestT>(call->request.body));
  SessionPtr session = request.resume ? core.sessions->resume(SessionId(request.resume), request.client_uuid) : nullptr;
  const uint64_t session_acked = request.resume ? request.acked : 0;
  CO_CHECK_OK(check_free(*call, session ? session->id() : SessionId()));
  const std::string subdir = session ? session->record().subdir : request.subdir;
  CO_TRY(wire::AttrT root, co_await directory_at(core, subdir));  // first: a mount of nothing leaves no session behind
  wire::SessionOpenReplyT reply;
  reply.resumed = session != nullptr;
  if (!session) {
    CO_TRY(session, co_await core.sessions->create(std::move(request), call->peer->info()));
    log::info("session {}: {} on {}", session->id().v, session->record().mount, session->record().host);
    for (SessionPtr& old : core.sessions->others_of(session->record().client_uuid, session->id())) Loop::current()->spawn(replace(core, std::move(old)));
  }
  session->seen(core.clock.boot());
  if (!session->attach(call->peer)) co_return Err(Errc::kRetryLater, "the session has its most connections");
  reply.session = session->id().v;
  reply.incarnation = core.store->incarnation();
  reply.slots = static_cast<uint16_t>(core.settings().mds_session_slots);
  reply.lease_term_ms = static_cast<uint32_t>(core.settings().lease_term);
  reply.keepalive_ms = static_cast<uint32_t>(core.settings().lease_keepalive);
  reply.recovering = session->state() == Session::State::kUnreclaimed;
  reply.map = std::make_unique<wire::ClusterMapT>(core.registry->map());
  reply.root = std::make_unique<wire::AttrT>(std::move(root));
  reply.time = core.clock.real();
  reply.lost = session_acked != 0 && !core.store->survived(session_acked);
  co_return encode(reply);
}

Task<Result<Bytes>> session_bind(Core& core, CallPtr call) {
  CO_TRY(auto request, decode<wire::SessionBindRequestT>(call->request.body));
  CO_CHECK_OK(check_free(*call, SessionId(request.session)));
  SessionPtr session = core.sessions->find(SessionId(request.session));
  if (!session || session->state() == Session::State::kEvicting) co_return Err(Errc::kNoSession, fmt::format("session {} is unknown or was evicted", request.session));
  session->seen(core.clock.boot());
  if (!session->attach(call->peer)) co_return Err(Errc::kRetryLater, "the session has its most connections");
  co_return encode(wire::EmptyT{});
}

Task<Result<Bytes>> session_close(Core& core, CallPtr call) {
  CO_CHECK_OK(view<wire::SessionCloseRequestT>(call->request.body));
  log::info("session {}: {} on {} ends", call->session->id().v, call->session->record().mount, call->session->record().host);
  CO_CHECK_OK(co_await core.evictor->end(call->session));
  co_return encode(wire::EmptyT{});
}

/// A read moved the access time. Never backwards; ctime stays.
static Task<Result<bool>> move_atime(Core& core, Ino ino, Nanos atime) {
  OpContext ctx(*core.services, root_cred());
  co_return co_await core.driver->change(ctx, [&](OpContext& c) -> Result<bool> {
    NACRE_CHECK_OK(c.lock({ino}));
    NACRE_TRY(auto record, c.inode(ino));
    if (atime <= record.atime) return false;
    record.atime = atime;
    c.put_inode(record);
    return true;
  });
}

Task<Result<Bytes>> keepalive(Core& core, CallPtr call) {
  CO_TRY(auto request, decode<wire::KeepaliveRequestT>(call->request.body));
  if (request.atimes.size() > kMaxAtimes) co_return Err(Errc::kTooBig, fmt::format("a keepalive brings at most {} access times", kMaxAtimes));
  call->session->waiting(request.oldest_wait_ms, request.oldest_wait);
  if (call->session->state() == Session::State::kActive && !call->session->record().read_only) {
    for (size_t at = 0; at < request.atimes.size(); at += kAtimesAtOnce) {
      std::vector<Task<Result<bool>>> moves;
      for (size_t i = at; i < std::min(at + kAtimesAtOnce, request.atimes.size()); ++i) moves.push_back(move_atime(core, Ino(request.atimes[i].ino()), request.atimes[i].atime()));
      (void)co_await when_all(std::move(moves));  // of files that are gone there is nothing to say
    }
  }
  wire::KeepaliveReplyT reply;
  reply.map_version = core.registry->version();
  reply.time = core.clock.real();
  co_return encode(reply);
}

}  // namespace nacre::mds::methods
