// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/handshake.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/base/rng.h"
#include "common/wire/bits.h"

namespace nacre::rpc {
namespace {

std::vector<uint8_t> new_nonce() {
  std::vector<uint8_t> nonce(kNonceSize);
  system_rng().fill(std::as_writable_bytes(std::span(nonce)));
  return nonce;
}

std::string uuid(std::span<const uint8_t> id) {
  std::string out;
  for (size_t i = 0; i < id.size(); ++i) out += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
  return out;
}

/// What both ends have said, from the HELLO's own bytes on: nothing of it can be changed on the way.
std::array<uint8_t, 32> mac_of(const wire::Key& key, std::string_view who, std::span<const uint8_t> hello, const wire::HelloReplyT& reply) {
  std::vector<uint8_t> m;
  auto put = [&m](std::span<const uint8_t> part) {
    const auto n = static_cast<uint32_t>(part.size());
    for (int i = 0; i < 4; ++i) m.push_back(static_cast<uint8_t>(n >> (8 * i)));
    m.insert(m.end(), part.begin(), part.end());
  };
  put({reinterpret_cast<const uint8_t*>(who.data()), who.size()});
  put(hello);
  wire::HelloReplyT said = reply;
  said.mac.clear();
  auto number = [&m](uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) m.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  put(said.cluster_id);
  put(said.nonce);
  number(said.protocol, 2);
  number(said.features, 8);
  number(static_cast<uint64_t>(said.server_time), 8);
  number(said.incarnation, 8);
  return wire::hmac(key, m);
}

wire::FrameHeader request_header(Method method, uint32_t id) {
  wire::FrameHeader h;
  h.method = static_cast<uint16_t>(method);
  h.request = id;
  return h;
}

Task<Result<void>> answer(Stream& stream, wire::FrameHeader request, Errc status, Bytes body) {
  wire::FrameHeader h;
  h.kind = wire::FrameKind::kReply;
  h.method = request.method;
  h.request = request.request;
  h.status = static_cast<uint16_t>(status);
  co_return co_await write_frame(stream, h, std::move(body));
}

/// Tells the other end why it is refused, and returns that as the error.
Task<Result<PeerInfo>> refuse(Stream& stream, wire::FrameHeader request, Error why) {
  (void)co_await answer(stream, request, why.code, Bytes(why.detail.begin(), why.detail.end()));
  co_return std::unexpected(std::move(why));
}

/// A method that came before its time.
Error out_of_order(const wire::FrameHeader& h, const char* wanted) {
  return Error(Errc::kAuth, fmt::format("a {} message came where {} was due: nothing is served before a connection is authenticated with the cluster key", method_name(h.method), wanted));
}
}  // namespace

wire::Key derive_handshake_key(const wire::Key& cluster_key) { return wire::derive_key(cluster_key, "nacre rpc handshake 1"); }

Task<Result<PeerInfo>> accept_handshake(Stream& stream, ServerIdentity me, Nanos now_real, std::string full) {
  CO_TRY(Frame hello, co_await read_frame(stream));
  if (hello.header.kind != wire::FrameKind::kRequest) co_return Err(Errc::kProtocol, "a reply came where Hello was due");
  if (hello.header.method != static_cast<uint16_t>(Method::kHello)) co_return co_await refuse(stream, hello.header, out_of_order(hello.header, "Hello"));
  auto said = decode<wire::HelloRequestT>(hello.body);
  if (!said) co_return co_await refuse(stream, hello.header, std::move(said).error());
  if (!full.empty()) co_return co_await refuse(stream, hello.header, Error(Errc::kRetryLater, full));
  if (said->nonce.size() != kNonceSize || said->host.size() > kMaxHost) co_return co_await refuse(stream, hello.header, Error(Errc::kProtocol, "a Hello message with a nonce or host name of the wrong size"));
  if (said->cluster_id.size() != me.cluster_id.size() || !std::equal(me.cluster_id.begin(), me.cluster_id.end(), said->cluster_id.begin()))
    co_return co_await refuse(stream, hello.header, Error(Errc::kNotOurs, fmt::format("this server belongs to cluster {}, not to {}: use the cluster file of this cluster", uuid(me.cluster_id), uuid(said->cluster_id))));
  if (said->protocol_max < wire::kProtocolMin || said->protocol_min > wire::kProtocolMax)
    co_return co_await refuse(stream, hello.header,
                              Error(Errc::kVersion, fmt::format("this server speaks protocol versions {} to {}, the other end {} to {}: upgrade the older one", wire::kProtocolMin, wire::kProtocolMax, said->protocol_min, said->protocol_max)));

  wire::HelloReplyT reply;
  reply.cluster_id.assign(me.cluster_id.begin(), me.cluster_id.end());
  reply.protocol = std::min(said->protocol_max, wire::kProtocolMax);
  reply.nonce = new_nonce();
  reply.server_time = now_real;
  reply.incarnation = me.incarnation;
  const auto mine = mac_of(me.handshake_key, "server", hello.body, reply);
  reply.mac.assign(mine.begin(), mine.end());
  CO_CHECK_OK(co_await answer(stream, hello.header, Errc::kOk, encode(reply)));

  CO_TRY(Frame auth, co_await read_frame(stream));
  if (auth.header.kind != wire::FrameKind::kRequest) co_return Err(Errc::kProtocol, "a reply came where Auth was due");
  if (auth.header.method != static_cast<uint16_t>(Method::kAuth)) co_return co_await refuse(stream, auth.header, out_of_order(auth.header, "Auth"));
  auto proof = decode<wire::AuthRequestT>(auth.body);
  if (!proof) co_return co_await refuse(stream, auth.header, std::move(proof).error());
  if (!proof->munge.empty()) co_return co_await refuse(stream, auth.header, Error(Errc::kAuth, "MUNGE is not configured on this server: authenticate with the cluster key"));
  if (!wire::equal_constant_time(proof->mac, mac_of(me.handshake_key, "client", hello.body, reply)))
    co_return co_await refuse(stream, auth.header, Error(Errc::kAuth, "the cluster key of the caller is not this cluster's: copy the key file from a host of the cluster"));
  wire::AuthReplyT ok;
  ok.trusted = true;
  ok.uid = 0;
  CO_CHECK_OK(co_await answer(stream, auth.header, Errc::kOk, encode(ok)));

  PeerInfo info;
  info.role = said->role;
  info.cpu = said->cpu;
  info.host = printable(std::span(reinterpret_cast<const uint8_t*>(said->host.data()), said->host.size()));
  info.address = stream.remote();
  info.trusted = true;
  info.uid = 0;
  info.features = said->features;
  co_return info;
}

namespace {
/// One exchange of the client's side.
template <class Reply>
Task<Result<Reply>> exchange(Stream& stream, Method method, uint32_t id, Bytes body) {
  CO_CHECK_OK(co_await write_frame(stream, request_header(method, id), std::move(body)));
  auto frame = co_await read_frame(stream);
  if (!frame) {
    Error e = std::move(frame).error();
    if (e.code == Errc::kDisconnected) e = Error(Errc::kUnavailable, fmt::format("{} ended the connection before it was set up", stream.remote()));
    co_return std::unexpected(std::move(e));
  }
  const wire::FrameHeader& h = frame->header;
  if (h.kind != wire::FrameKind::kReply || h.method != static_cast<uint16_t>(method) || h.request != id)
    co_return Err(Errc::kProtocol, fmt::format("{} answered {} with something else", stream.remote(), method_name(static_cast<uint16_t>(method))));
  if (h.status != 0) co_return Err(from_wire(h.status), fmt::format("{}: {}", stream.remote(), printable(frame->body)));
  co_return decode<Reply>(frame->body);
}
}  // namespace

Task<Result<PeerInfo>> connect_handshake(Stream& stream, ConnectOptions options, int cpu) {
  const wire::Key key = derive_handshake_key(options.key);
  wire::HelloRequestT hello;
  hello.cluster_id.assign(options.cluster_id.begin(), options.cluster_id.end());
  hello.protocol_min = wire::kProtocolMin;
  hello.protocol_max = wire::kProtocolMax;
  hello.role = options.role;
  hello.cpu = static_cast<int16_t>(std::clamp(cpu, -1, INT16_MAX + 0));
  hello.host = options.host.substr(0, kMaxHost);
  hello.nonce = new_nonce();
  const Bytes hello_body = encode(hello);
  CO_TRY(wire::HelloReplyT reply, co_await exchange<wire::HelloReplyT>(stream, Method::kHello, 1, hello_body));
  if (reply.nonce.size() != kNonceSize || !wire::equal_constant_time(reply.mac, mac_of(key, "server", hello_body, reply)))
    co_return Err(Errc::kAuth, fmt::format("the server at {} doesn't hold this cluster's key: compare the key files of both hosts", stream.remote()));
  if (!std::equal(options.cluster_id.begin(), options.cluster_id.end(), reply.cluster_id.begin(), reply.cluster_id.end()))
    co_return Err(Errc::kNotOurs, fmt::format("the server at {} belongs to another cluster", stream.remote()));
  if (reply.protocol < wire::kProtocolMin || reply.protocol > wire::kProtocolMax)
    co_return Err(Errc::kVersion, fmt::format("the server at {} chose protocol version {}, which this release doesn't speak", stream.remote(), reply.protocol));

  wire::AuthRequestT auth;
  const auto mac = mac_of(key, "client", hello_body, reply);
  auth.mac.assign(mac.begin(), mac.end());
  CO_TRY(wire::AuthReplyT granted, co_await exchange<wire::AuthReplyT>(stream, Method::kAuth, 2, encode(auth)));

  PeerInfo info;
  info.address = stream.remote();
  info.trusted = granted.trusted;
  info.uid = granted.uid;
  info.features = reply.features;
  info.incarnation = reply.incarnation;
  info.server_time = reply.server_time;
  co_return info;
}

// ---------------------------------------------------------------- StreamDeadline

StreamDeadline::StreamDeadline(Stream& stream, Nanos deadline) : shared_(std::make_shared<Shared>(Shared{&stream, false, {}})) {
  if (deadline != kForever) Loop::current()->spawn(watch(shared_, deadline));
}

StreamDeadline::~StreamDeadline() {
  shared_->stream = nullptr;
  shared_->done.set();
}

Task<void> StreamDeadline::watch(std::shared_ptr<Shared> shared, Nanos deadline) {
  auto done = co_await shared->done.wait(deadline);
  if (done || !shared->stream) co_return;
  shared->passed = true;
  shared->stream->close();
}

}  // namespace nacre::rpc
