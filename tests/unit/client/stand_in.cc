// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/stand_in.h"

#include <future>

#include <gtest/gtest.h>

#include "common/wire/checksum.h"

namespace nacre::test {

// ---------------------------------------------------------------- StandIn

void StandIn::start() {
  // The listening socket is closed on its loop; only then is the address of an earlier start free.
  for (size_t i = 0; i < runtime_.size() && !by_hand_; ++i) {
    std::promise<void> closed;
    runtime_.loop(i).post([&closed] { closed.set_value(); });
    closed.get_future().wait();
  }
  {
    std::lock_guard lock(mutex_);
    ++incarnation_;
    restarted();
  }
  rpc::ServerOptions options;
  options.address = address_;
  options.cluster_id = kClusterId;
  options.key = kKey;
  options.incarnation = incarnation_;
  auto server = rpc::serve(runtime_, transport_, options, [this](rpc::PeerPtr peer, rpc::Request request) { return handle(this, std::move(peer), std::move(request)); });
  ASSERT_TRUE(server.has_value()) << server.error().message();
  server_ = std::move(*server);
  address_ = server_->address();
}

void StandIn::stop() {
  if (server_) server_->stop();
  server_.reset();
}

void StandIn::inject(rpc::Method method, Fault fault, int times) {
  std::lock_guard lock(mutex_);
  for (int i = 0; i < times; ++i) faults_[static_cast<uint16_t>(method)].push_back(fault);
}

void StandIn::release_held() {
  std::vector<Signal> held;
  {
    std::lock_guard lock(mutex_);
    held.swap(held_);
  }
  for (auto& s : held) s.set();
}

int StandIn::served(rpc::Method method) const {
  std::lock_guard lock(mutex_);
  auto it = served_.find(static_cast<uint16_t>(method));
  return it == served_.end() ? 0 : it->second;
}

int StandIn::received(rpc::Method method) const {
  std::lock_guard lock(mutex_);
  auto it = received_.find(static_cast<uint16_t>(method));
  return it == received_.end() ? 0 : it->second;
}

void StandIn::wait_received(rpc::Method method, int count) const {
  std::unique_lock lock(mutex_);
  bool there = arrived_.wait_for(lock, std::chrono::seconds(10), [&] {
    auto it = received_.find(static_cast<uint16_t>(method));
    return it != received_.end() && it->second >= count;
  });
  EXPECT_TRUE(there) << "never received " << rpc::method_name(static_cast<uint16_t>(method)) << " number " << count;
}

std::optional<Fault> StandIn::next_fault(uint16_t method) {
  auto it = faults_.find(method);
  if (it == faults_.end() || it->second.empty()) return std::nullopt;
  Fault f = it->second.front();
  it->second.pop_front();
  return f;
}

void StandIn::corrupt_payloads(rpc::Reply& reply) {
  if (reply.payload.empty()) return;
  reply.payload = Buffer::copy_of(reply.payload.span());
  reply.payload.span()[reply.payload.size() / 2] ^= std::byte{1};
}

Task<rpc::Reply> StandIn::handle(StandIn* self, rpc::PeerPtr peer, rpc::Request request) {
  std::optional<Fault> fault;
  Signal hold;
  {
    std::lock_guard lock(self->mutex_);
    ++self->received_[request.header.method];
    self->arrived_.notify_all();
    fault = self->next_fault(request.header.method);
    if (fault && (fault->kind == Fault::kHold || fault->kind == Fault::kHoldReply)) self->held_.push_back(hold);
  }
  if (fault && fault->kind == Fault::kHold) (void)co_await hold.wait();
  if (fault && fault->kind == Fault::kError) co_return rpc::fail(Error(fault->error, "as the test wants it"));
  rpc::Reply reply;
  if (!fault || fault->kind != Fault::kDropBefore) {
    std::lock_guard lock(self->mutex_);
    reply = self->serve(peer, request);
    if (fault && fault->kind == Fault::kCorrupt) self->corrupt_payloads(reply);
  }
  if (self->alter) self->alter(peer, request, reply);
  if (fault && fault->kind == Fault::kHoldReply) (void)co_await hold.wait();
  if (fault && (fault->kind == Fault::kDropBefore || fault->kind == Fault::kDropAfter)) peer->close(Error(Errc::kDisconnected, "as the test wants it"));
  co_return reply;
}

// ---------------------------------------------------------------- StandInOst

void StandInOst::lose_power() {
  std::lock_guard lock(mutex_);
  objects_ = stable_objects_;
}

void StandInOst::make_stable() {
  std::lock_guard lock(mutex_);
  stable_objects_ = objects_;
  stable_ = wseq_;
}

bool StandInOst::exists(const ObjectId& object) const {
  std::lock_guard lock(mutex_);
  return objects_.contains(object);
}

uint64_t StandInOst::size(const ObjectId& object) const {
  std::lock_guard lock(mutex_);
  auto it = objects_.find(object);
  return it == objects_.end() ? 0 : it->second.bytes.size();
}

void StandInOst::destroy(const ObjectId& object) {
  std::lock_guard lock(mutex_);
  objects_.erase(object);
  tombstones_.insert(object);
}

void StandInOst::truncate(const ObjectId& object, uint64_t size) {
  std::lock_guard lock(mutex_);
  if (auto it = objects_.find(object); it != objects_.end() && it->second.bytes.size() > size) it->second.bytes.resize(size);
}

void StandInOst::seal(const ObjectId& object, bool on) {
  std::lock_guard lock(mutex_);
  if (on) sealed_.insert(object);
  else sealed_.erase(object);
}

rpc::Reply StandInOst::serve(rpc::PeerPtr, const rpc::Request& request) {
  ++served_[request.header.method];
  switch (static_cast<rpc::Method>(request.header.method)) {
    case rpc::Method::kObjectWrite: return write(request);
    case rpc::Method::kObjectRead: return read(request);
    case rpc::Method::kObjectSeek: return seek(request);
    case rpc::Method::kObjectStat: {
      wire::ObjectStatReplyT r;
      auto q = decode<wire::ObjectStatRequestT>(request.body);
      for (const auto& ref : q->objects) {
        auto it = objects_.find(to_id(ref));
        if (it == objects_.end()) {
          r.stats.emplace_back();
          continue;
        }
        uint64_t last = 0;
        for (const auto& [block, wseq] : it->second.block_wseq) last = std::max(last, wseq);
        r.stats.emplace_back(it->second.bytes.size(), it->second.data_blocks.size() * kBlockSize, static_cast<int64_t>(last), last, true);
      }
      return rpc::ok(r);
    }
    case rpc::Method::kObjectCommit: {
      stable_objects_ = objects_;
      stable_ = wseq_;
      wire::ObjectCommitReplyT r;
      r.stable = stable_;
      r.incarnation = incarnation();
      return rpc::ok(r);
    }
    default: return rpc::fail(Error(Errc::kOpNotSupp));
  }
}

namespace {
Result<void> check_cap(const wire::CapabilityT* cap, const ObjectId& object, uint8_t mode, Nanos expired_before) {
  if (!cap || cap->mac.empty() || cap->ino != object.ino.v || cap->generation != object.generation.v || !(cap->mode & mode) || !(cap->components >> object.component & 1))
    return Err(Errc::kCapInvalid, "the capability doesn't fit");
  if (cap->expires < expired_before) return Err(Errc::kCapExpired);
  return {};
}
}  // namespace

rpc::Reply StandInOst::write(const rpc::Request& request) {
  auto r = decode<wire::ObjectWriteRequestT>(request.body);
  if (!r || !r->object) return rpc::fail(Error(Errc::kProtocol));
  ObjectId id = to_id(*r->object);
  if (tombstones_.contains(id) || (sealed_.contains(id) && r->wseq == 0)) return rpc::fail(Error(Errc::kStaleGeneration));
  if (auto ok = check_cap(r->cap.get(), id, wire::kCapWrite, expired_before); !ok) return rpc::fail(ok.error());
  if (r->length != request.payload.size() || wire::range_sums(id, r->offset, request.payload.span()) != r->sums) return rpc::fail(Error(Errc::kChecksum));
  if (auto it = dedup_.find({request.header.session, r->write_id}); it != dedup_.end()) return rpc::Reply{Errc::kOk, {}, it->second, {}};
  auto& o = objects_[id];
  uint64_t mine = r->wseq ? r->wseq : ++wseq_;
  resent_ += r->wseq != 0;
  wseq_ = std::max(wseq_, mine);
  const uint64_t end = r->offset + r->length;
  if (end > max_object || r->offset > max_object) return rpc::fail(Error(Errc::kFBig, "a stand-in keeps its objects in memory"));
  if (o.bytes.size() < end) o.bytes.resize(end);
  for (uint64_t b = r->offset / kBlockSize; b * kBlockSize < end; ++b) {
    auto& block = o.block_wseq[b];
    if (r->wseq && block >= mine) continue;
    block = mine;
    o.data_blocks.insert(b);
    uint64_t from = std::max(b * kBlockSize, r->offset), to = std::min((b + 1) * kBlockSize, end);
    std::memcpy(o.bytes.data() + from, request.payload.data() + (from - r->offset), to - from);
  }
  if (r->sync || always_stable_) {
    stable_objects_ = objects_;
    stable_ = wseq_;
  }
  wire::ObjectWriteReplyT out;
  out.wseq = mine;
  out.stable = stable_;
  out.incarnation = incarnation();
  out.size = o.bytes.size();
  out.allocated = o.data_blocks.size() * kBlockSize;
  out.changed = static_cast<int64_t>(mine);
  out.is_stable = r->sync || always_stable_;
  auto reply = rpc::ok(out);
  dedup_[{request.header.session, r->write_id}] = reply.body;
  return reply;
}

rpc::Reply StandInOst::read(const rpc::Request& request) {
  auto r = decode<wire::ObjectReadRequestT>(request.body);
  if (!r || !r->object) return rpc::fail(Error(Errc::kProtocol));
  ObjectId id = to_id(*r->object);
  if (tombstones_.contains(id)) return rpc::fail(Error(Errc::kStaleGeneration));
  if (auto ok = check_cap(r->cap.get(), id, wire::kCapRead, expired_before); !ok) return rpc::fail(ok.error());
  wire::ObjectReadReplyT out;
  out.stable = stable_;
  out.incarnation = incarnation();
  Buffer payload;
  if (auto it = objects_.find(id); it != objects_.end()) {
    auto& o = it->second;
    out.size = o.bytes.size();
    uint64_t from = round_down(r->offset, kBlockSize), to = round_up(std::min<uint64_t>(r->offset + r->length, o.bytes.size()), kBlockSize);
    if (from < to && r->offset < o.bytes.size()) {
      payload = Buffer::allocate(to - from).slice(0, to - from);
      std::memset(payload.data(), 0, payload.size());
      std::memcpy(payload.data(), o.bytes.data() + from, std::min<uint64_t>(to, o.bytes.size()) - from);
      for (uint64_t b = from / kBlockSize; b * kBlockSize < to; ++b)
        out.sums.push_back(o.data_blocks.contains(b) ? wire::block_sum(id, b, payload.span().subspan(b * kBlockSize - from, kBlockSize)) : 0);
    }
  }
  return rpc::ok(out, payload);
}

rpc::Reply StandInOst::seek(const rpc::Request& request) {
  auto r = decode<wire::ObjectSeekRequestT>(request.body);
  if (!r || !r->object) return rpc::fail(Error(Errc::kProtocol));
  wire::ObjectSeekReplyT out;
  auto it = objects_.find(to_id(*r->object));
  if (it != objects_.end()) {
    auto& o = it->second;
    out.size = o.bytes.size();
    for (uint64_t at = r->offset; at < o.bytes.size(); at = (at / kBlockSize + 1) * kBlockSize) {
      if (o.data_blocks.contains(at / kBlockSize) == r->hole) continue;
      out.found = true;
      out.offset = at;
      break;
    }
  }
  return rpc::ok(out);
}

}  // namespace nacre::test
