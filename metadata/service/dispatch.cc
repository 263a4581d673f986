// SPDX-License-Identifier: Apache-2.0
// See dispatch.h. The table below is the whole of the server's surface.
#include "metadata/service/dispatch.h"

#include "common/log/log.h"
#include "common/wire/bits.h"
#include "metadata/ops/ops.h"
#include "metadata/service/methods.h"

namespace nacre::mds {
namespace {
using rpc::Method;

enum class Who : uint8_t {
  kJoining,  ///< a client's connection that may have no session yet
  kClient,   ///< a client with a session
  kReader,   ///< a client with a session, or a tool with the cluster key
  kAdmin,    ///< a tool with the cluster key that speaks for root
  kOss,      ///< a storage server
};
enum class When : uint8_t {
  kAlways,   ///< also while the session still has to reclaim
  kActive,
};
enum class What : uint8_t {
  kReads,
  kChanges,  ///< refused for sessions that mounted read-only
};
}  // namespace

struct Dispatcher::Entry {
  Method method;
  Who who;
  When when;
  What what;
  MethodFn fn;
};

const Dispatcher::Entry* Dispatcher::find(uint16_t method) {
  using enum Who;
  using enum When;
  using enum What;
  static const Entry kTable[] = {
      {Method::kSessionOpen, kJoining, kAlways, kReads, methods::session_open},
      {Method::kSessionBind, kJoining, kAlways, kReads, methods::session_bind},
      {Method::kSessionClose, kClient, kAlways, kReads, methods::session_close},
      {Method::kKeepalive, kClient, kAlways, kReads, methods::keepalive},
      {Method::kReclaim, kClient, kAlways, kReads, methods::reclaim},
      {Method::kMapGet, kReader, kAlways, kReads, methods::map_get},

      {Method::kLookup, kReader, kActive, kReads, reading<Method::kLookup, ops::lookup>},
      {Method::kGetattr, kReader, kActive, kReads, reading<Method::kGetattr, ops::getattr>},
      {Method::kSetattr, kClient, kActive, kChanges, methods::setattr},
      {Method::kMknod, kClient, kActive, kChanges, changing<Method::kMknod, ops::mknod>},
      {Method::kCreate, kClient, kActive, kChanges, methods::create},
      {Method::kOpen, kClient, kActive, kReads, methods::open},
      {Method::kClose, kClient, kActive, kReads, methods::close},
      {Method::kUnlink, kClient, kActive, kChanges, changing<Method::kUnlink, [](OpContext& c, const wire::UnlinkRequestT& r) { return r.rmdir ? ops::rmdir(c, r) : ops::unlink(c, r); }>},
      {Method::kRename, kClient, kActive, kChanges, changing<Method::kRename, ops::rename>},
      {Method::kLink, kClient, kActive, kChanges, changing<Method::kLink, ops::link>},
      {Method::kReadlink, kReader, kActive, kReads, reading<Method::kReadlink, ops::readlink>},
      {Method::kReaddir, kReader, kActive, kReads, reading<Method::kReaddir, ops::readdir>},
      {Method::kAccess, kClient, kActive, kReads, reading<Method::kAccess, ops::access>},
      {Method::kStatfs, kReader, kAlways, kReads, methods::statfs},
      {Method::kXattrGet, kClient, kActive, kReads, reading<Method::kXattrGet, ops::xattr_get>},
      {Method::kXattrSet, kClient, kActive, kChanges, changing<Method::kXattrSet, ops::xattr_set>},
      {Method::kXattrList, kClient, kActive, kReads, reading<Method::kXattrList, ops::xattr_list>},
      {Method::kXattrRemove, kClient, kActive, kChanges, changing<Method::kXattrRemove, ops::xattr_remove>},
      {Method::kLayoutGrant, kClient, kActive, kReads, methods::layout_grant},
      {Method::kFallocate, kClient, kActive, kChanges, methods::fallocate},
      {Method::kAppendBegin, kClient, kActive, kChanges, methods::append_begin},
      {Method::kAppendEnd, kClient, kActive, kReads, methods::append_end},
      {Method::kSync, kReader, kActive, kReads, methods::sync},
      {Method::kLayoutSet, kClient, kActive, kChanges, methods::layout_set},
      {Method::kLayoutGet, kReader, kActive, kReads, methods::layout_get},

      {Method::kMigrate, kClient, kActive, kChanges, methods::migrate},

      {Method::kLock, kClient, kActive, kReads, methods::lock},
      {Method::kLockTest, kClient, kActive, kReads, methods::lock_test},
      {Method::kLockCancel, kClient, kActive, kReads, methods::lock_cancel},

      {Method::kPathOf, kReader, kActive, kReads, methods::path_of},
      {Method::kClientList, kAdmin, kAlways, kReads, methods::client_list},
      {Method::kClientEvict, kAdmin, kAlways, kReads, methods::client_evict},
      {Method::kOstSetState, kAdmin, kAlways, kReads, methods::ost_set_state},
      {Method::kOstFiles, kAdmin, kAlways, kReads, methods::ost_files},
      {Method::kMdsStatus, kAdmin, kAlways, kReads, methods::status},
      {Method::kFsck, kAdmin, kAlways, kReads, methods::fsck},
      {Method::kMdsBackup, kAdmin, kAlways, kReads, methods::backup},
      {Method::kChangelogControl, kAdmin, kAlways, kReads, methods::changelog_control},
      {Method::kChangelogRead, kAdmin, kAlways, kReads, methods::changelog_read},

      {Method::kOstRegister, kOss, kAlways, kReads, methods::ost_register},
      {Method::kOstHeartbeat, kOss, kAlways, kReads, methods::ost_heartbeat},
  };
  static const auto kIndex = [] {
    std::array<const Entry*, 128> out{};
    for (const Entry& e : kTable) out.at(static_cast<size_t>(e.method)) = &e;
    return out;
  }();
  return method < kIndex.size() ? kIndex[method] : nullptr;
}

/// Before a restored server knows which numbers are new it hears its storage targets, and administrators who look or give one up.
static bool serves_restoring(Method method) {
  return method == Method::kOstRegister || method == Method::kOstHeartbeat || method == Method::kMdsStatus || method == Method::kOstSetState || method == Method::kMapGet;
}

/// Who may call, and in which state of his session. Fills in call.session.
Result<void> Dispatcher::admit(const Entry& entry, Call& call) const {
  const rpc::PeerInfo& peer = call.peer->info();
  const std::string_view name = rpc::method_name(call.request.header.method);
  const bool tool = peer.role == wire::kRoleAdmin && peer.trusted && peer.uid == 0;
  if (core_.restoration->active() && !serves_restoring(entry.method)) return Err(Errc::kRecovering, fmt::format("the metadata was restored from a backup and is not served yet: see 'nacre mds status'"));
  switch (entry.who) {
    case Who::kOss:
      if (peer.role != wire::kRoleOss) return Err(Errc::kPerm, fmt::format("{} is for storage servers", name));
      return {};
    case Who::kAdmin:
      if (!tool) return Err(Errc::kPerm, fmt::format("{} is for administrators: it needs the cluster's key file", name));
      return {};
    case Who::kJoining:
      if (peer.role != wire::kRoleClient) return Err(Errc::kPerm, fmt::format("{} is for clients", name));
      return {};
    case Who::kReader:
      if (tool) return {};
      break;
    case Who::kClient: break;
  }
  if (peer.role != wire::kRoleClient) return Err(Errc::kPerm, fmt::format("{} is for clients", name));
  const auto* context = std::any_cast<PeerContext>(&call.peer->context);
  if (!context) return Err(Errc::kNoSession, "this connection belongs to no session");
  const SessionPtr& s = context->session;
  if (call.request.header.session != 0 && call.request.header.session != s->id().v) return Err(Errc::kNoSession, "the request names another session than its connection");
  if (call.request.header.sequence != 0 && call.request.header.slot >= core_.settings().mds_session_slots) return Err(Errc::kProtocol, fmt::format("a session has {} slots", core_.settings().mds_session_slots));
  if (s->state() == Session::State::kEvicting) return Err(Errc::kNoSession, fmt::format("session {} was evicted", s->id().v));
  s->seen(call.arrived);
  if (entry.when == When::kActive && s->state() == Session::State::kUnreclaimed) return Err(Errc::kRecovering, "the session has not given back what it holds since the server restarted");
  if (entry.what == What::kChanges && s->record().read_only) return Err(Errc::kRoFs);
  call.session = s;
  return {};
}

Task<Result<Bytes>> Dispatcher::run(const Entry& entry, CallPtr call) {
  // A goodbye waits for the other requests of its session, so it can't be one of them.
  if (!call->session || entry.method == Method::kSessionClose) co_return co_await entry.fn(core_, call);
  if (!call->session->enter()) co_return Err(Errc::kNoSession, "the session is being evicted");
  auto answer = co_await entry.fn(core_, call);
  call->session->leave();
  co_return answer;
}

/// "Setattr of session 5 (/scratch on node7)"
static std::string name_of(const Call& call) {
  const char* method = rpc::method_name(call.request.header.method);
  if (!call.session) return fmt::format("{} of {}", method, call.peer->info().host);
  return fmt::format("{} of session {} ({} on {})", method, call.session->id().v, call.session->record().mount, call.session->record().host);
}

void Dispatcher::note(const Call& call, const Result<Bytes>& answer) const {
  const Nanos took = core_.clock.boot() - call.arrived;
  if (call.request.header.method == static_cast<uint16_t>(Method::kFsck)) return;  // takes what its disks take
  if (took < static_cast<Nanos>(core_.settings().mds_slow_request) * kMillisecond) return;
  core_.slow_requests.fetch_add(1, std::memory_order_relaxed);
  log::warn("slow request: {} took {} ms: {}", name_of(call), took / kMillisecond, answer ? std::string("done") : answer.error().message());
}

Task<rpc::Reply> Dispatcher::handle(rpc::PeerPtr peer, rpc::Request request) {
  const Entry* entry = find(request.header.method);
  if (!entry) co_return rpc::fail(Error(Errc::kOpNotSupp, fmt::format("this server does not serve method {}", request.header.method)));
  auto call = std::make_shared<Call>();
  call->peer = std::move(peer);
  call->request = std::move(request);
  call->arrived = core_.clock.boot();
  const Nanos patience = call->request.header.timeout_ms ? Nanos{call->request.header.timeout_ms} * kMillisecond : kMaxRequestTime;
  call->deadline = call->arrived + std::min(patience, kMaxRequestTime);
  if (auto admitted = admit(*entry, *call); !admitted) co_return rpc::fail(std::move(admitted).error());
  Result<Bytes> answer = Err(Errc::kIo);
  {
    Watched watched(core_.requests, call->arrived, [c = call.get()] { return name_of(*c); });
    answer = co_await run(*entry, call);
  }
  core_.operations.note(call->request.header.method, core_.clock.boot() - call->arrived, !answer);
  note(*call, answer);
  if (!answer) co_return rpc::fail(std::move(answer).error());
  if (answer->size() > wire::kMaxBody) co_return rpc::fail(Error(Errc::kTooBig, fmt::format("the answer to {} is larger than a message may be", rpc::method_name(call->request.header.method))));
  rpc::Reply reply{Errc::kOk, {}, std::move(*answer), {}};
  if (call->request.header.sequence != 0) reply.journal = core_.journal->committed().v;
  co_return reply;
}

}  // namespace nacre::mds
