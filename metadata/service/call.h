// SPDX-License-Identifier: Apache-2.0
// A request on its way through a method, and the shapes that most methods have. A method is a coroutine that answers an encoded
// body; it stays on the loop on which the request arrived.
#pragma once
#include <memory>

#include "metadata/service/core.h"

namespace nacre::mds {

struct Call {
  rpc::PeerPtr peer;
  rpc::Request request;
  SessionPtr session;     ///< null for tools and storage servers
  Nanos arrived = 0;      ///< boot
  Nanos deadline = 0;     ///< boot: how long the caller will wait, and no longer than a request may

  Identity identity() const {
    Identity id;
    if (session) id.session = session->id();
    id.slot = request.header.slot;
    id.sequence = request.header.sequence;
    id.method = request.header.method;
    return id;
  }
  CancelPtr cancel() const { return session ? session->cancel() : nullptr; }
};
using CallPtr = std::shared_ptr<Call>;
using MethodFn = Task<Result<Bytes>> (*)(Core& core, CallPtr call);

/// Who asks, as far as he may say so himself: trusted peers speak for anybody, others for the one they proved to be.
inline Result<wire::CredT> cred_of(const Call& call, const std::unique_ptr<wire::CredT>& claimed) {
  const rpc::PeerInfo& peer = call.peer->info();
  if (!peer.trusted) {
    wire::CredT own;
    own.uid = own.gid = peer.uid;
    own.groups_known = true;
    return own;
  }
  if (!claimed) return Err(Errc::kProtocol, "a request without the caller's identity");
  return *claimed;
}

/// A method that only reads.
template <rpc::Method M, auto Op>
Task<Result<Bytes>> reading(Core& core, CallPtr call) {
  CO_TRY(auto request, decode<typename rpc::MethodTraits<M>::Request>(call->request.body));
  wire::CredT cred;
  if constexpr (requires { request.cred; }) {
    CO_TRY(cred, cred_of(*call, request.cred));
  }
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(auto reply, co_await core.driver->read(ctx, [&](OpContext& c) { return Op(c, request); }));
  co_return encode(reply);
}

/// A method that changes names or attributes, exactly once.
template <rpc::Method M, auto Op>
Task<Result<Bytes>> changing(Core& core, CallPtr call) {
  using Reply = typename rpc::MethodTraits<M>::Reply;
  CO_TRY(auto request, decode<typename rpc::MethodTraits<M>::Request>(call->request.body));
  wire::CredT cred;
  if constexpr (requires { request.cred; }) {
    CO_TRY(cred, cred_of(*call, request.cred));
  }
  OpContext ctx(*core.services, std::move(cred), call->identity());
  CO_TRY(Outcome<Reply> outcome, co_await core.driver->once<Reply>(ctx, [&](OpContext& c) { return Op(c, request); }));
  co_return encode(outcome.reply);
}

}  // namespace nacre::mds
