// SPDX-License-Identifier: Apache-2.0
// What commands ask through a mount: a few metadata requests with the caller's identity put in, and `nacre sync`.
#include "client/core/filesystem_impl.h"

namespace nacre::client {

#define NACRE_TOOL_METHODS(X) X(kLookup) X(kGetattr) X(kReadlink) X(kStatfs) X(kLayoutGet) X(kLayoutSet) X(kPathOf) X(kMapGet) X(kSync) X(kMigrate)

bool Filesystem::is_tool_method(uint16_t method) {
  switch (static_cast<rpc::Method>(method)) {
#define NACRE_CASE(m) case rpc::Method::m: return true;
    NACRE_TOOL_METHODS(NACRE_CASE)
#undef NACRE_CASE
    default: return false;
  }
}

namespace {
template <rpc::Method M>
Task<Result<Bytes>> pass_on(std::shared_ptr<Core> core, Bytes body, OpPtr op) {
  CO_TRY(auto request, decode<typename rpc::MethodTraits<M>::Request>(body));
  CO_TRY(auto reply, co_await core->mds.call<M>(std::move(request), op));
  co_return encode(reply);
}
}  // namespace

Task<Result<Bytes>> FilesystemImpl::call_method(uint16_t method, Bytes body, Caller caller) {
  auto m = static_cast<rpc::Method>(method);
  if (!is_tool_method(method)) co_return Err(Errc::kPerm, fmt::format("{} is not a request for users' commands", rpc::method_name(method)));
  if (core_->options.read_only && (rpc::method_flags(method) & rpc::kOnce)) co_return Err(Errc::kRoFs);
  if (m == rpc::Method::kMigrate) {  // the whole of it, not one of its steps
    CO_CHECK_OK(may_change());
    CO_TRY(auto request, decode<wire::MigrateRequestT>(body));
    co_return co_await migrate(std::move(request), std::move(caller));
  }
  auto op = begin(rpc::method_name(method), std::move(caller));
  if (m == rpc::Method::kSync) CO_CHECK_OK(co_await core_->commit_all(op));
  switch (m) {
#define NACRE_CASE(x) case rpc::Method::x: co_return co_await pass_on<rpc::Method::x>(core_, std::move(body), op);
    NACRE_TOOL_METHODS(NACRE_CASE)
#undef NACRE_CASE
    default: co_return Err(Errc::kPerm);
  }
}

Task<Result<void>> FilesystemImpl::sync_all(Caller caller) {
  auto op = begin("Sync", std::move(caller));
  CO_CHECK_OK(co_await core_->commit_all(op));
  CO_CHECK_OK(co_await core_->mds.call<rpc::Method::kSync>(wire::SyncRequestT{}, op));
  co_return core_->mds.nothing_lost(core_->losses_seen);
}

}  // namespace nacre::client
