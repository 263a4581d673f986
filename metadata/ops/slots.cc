// SPDX-License-Identifier: Apache-2.0
// See slots.h.
#include "metadata/ops/slots.h"

namespace nacre::mds {
namespace {
constexpr size_t kShards = 64;
}

struct Slots::Shard {
  struct Slot {
    uint32_t sequence = 0;  ///< of the newest request seen in this run of the server
    bool busy = false, known = false;  ///< known: the stored reply has been looked at, so a higher sequence needs no read
    std::vector<Signal> waiting;
  };
  std::mutex mutex;
  std::map<std::pair<uint64_t, uint16_t>, Slot> slots;
};

Slots::Slots(Store& store) : store_(store) {
  for (size_t i = 0; i < kShards; ++i) shards_.push_back(std::make_unique<Shard>());
}
Slots::~Slots() = default;

Slots::Shard& Slots::shard(const Identity& id) { return *shards_[(id.session.v * 31 + id.slot) % kShards]; }

Slots::Ticket& Slots::Ticket::operator=(Ticket&& o) noexcept {
  if (this == &o) return *this;
  if (slots_) slots_->leave(identity_);
  stored = std::move(o.stored);
  slots_ = std::exchange(o.slots_, nullptr);
  identity_ = o.identity_;
  return *this;
}

Slots::Ticket::~Ticket() {
  if (slots_) slots_->leave(identity_);
}

void Slots::leave(const Identity& id) {
  std::vector<Signal> woken;
  {
    auto& s = shard(id);
    std::lock_guard lock(s.mutex);
    auto it = s.slots.find({id.session.v, id.slot});
    if (it == s.slots.end()) return;
    it->second.busy = false;
    woken.swap(it->second.waiting);
  }
  for (auto& w : woken) w.set();
}

Task<Result<Slots::Ticket>> Slots::enter(Identity id) {
  Ticket ticket;
  if (id.sequence == 0) co_return std::move(ticket);
  bool must_read = false;
  for (;;) {
    std::optional<Signal> wait;
    {
      auto& s = shard(id);
      std::lock_guard lock(s.mutex);
      auto& slot = s.slots[{id.session.v, id.slot}];
      if (id.sequence < slot.sequence) co_return Err(Errc::kProtocol, fmt::format("slot {} of session {} is at sequence {}, request {} is older", id.slot, id.session, slot.sequence, id.sequence));
      if (slot.busy) {
        slot.waiting.push_back(wait.emplace());
      } else {
        must_read = !slot.known || id.sequence == slot.sequence;
        slot.busy = true;
        slot.sequence = id.sequence;
      }
    }
    if (!wait) break;
    CO_CHECK_OK(co_await wait->wait());
  }
  ticket.slots_ = this;
  ticket.identity_ = id;
  if (!must_read) co_return std::move(ticket);

  std::string key = reply_key(id.session, id.slot);
  auto record = View(store_, Tier::kCached).get_record<schema::ReplyRecordT>(Family::kReply, key);
  if (!record && record.error().code == Errc::kIncomplete)
    record = co_await run_blocking([this, &key] { return View(store_, Tier::kFull).get_record<schema::ReplyRecordT>(Family::kReply, key); });
  if (!record) co_return std::unexpected(std::move(record).error());
  {
    auto& s = shard(id);
    std::lock_guard lock(s.mutex);
    s.slots[{id.session.v, id.slot}].known = true;
  }
  if (!*record || (*record)->sequence < id.sequence) co_return std::move(ticket);
  if ((*record)->sequence > id.sequence) co_return Err(Errc::kProtocol, fmt::format("slot {} of session {} has answered sequence {}, request {} is older", id.slot, id.session, (*record)->sequence, id.sequence));
  if ((*record)->method != id.method) co_return Err(Errc::kProtocol, fmt::format("sequence {} of slot {} was another kind of request", id.sequence, id.slot));
  ticket.stored = std::move(**record);
  co_return std::move(ticket);
}

void Slots::forget(SessionId session) {
  for (auto& s : shards_) {
    std::lock_guard lock(s->mutex);
    auto from = s->slots.lower_bound({session.v, 0});
    while (from != s->slots.end() && from->first.first == session.v) from = from->second.busy ? std::next(from) : s->slots.erase(from);
  }
}

}  // namespace nacre::mds
