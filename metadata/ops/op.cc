// SPDX-License-Identifier: Apache-2.0
// What an operation can do with its context. See op.h.
#include "metadata/ops/op.h"

#include "metadata/ops/locks.h"
#include "metadata/ops/turn.h"

namespace nacre::mds {

void OpContext::begin_run(Tier tier, Turn* turn, bool overlay) {
  batch_.clear();
  turn_ = turn;
  view_ = overlay ? View(services_.store, tier, &batch_, turn ? &turn->batch() : nullptr) : View(services_.store, tier);
  now_ = services_.clock.real();
  park_.reset();
  staged_.clear();
  committed_.clear();
  needs_sync_ = false;
  restart_ = false;
  asked_.clear();
  open_.clear();
}

Result<void> OpContext::lock_stripe(uint32_t stripe) {
  if (!turn_) return {};
  asked_.push_back(stripe);
  if (!restart_ && turn_->try_lock(stripe)) return {};
  restart_ = true;
  return Err(Errc::kRetryLater);
}

Result<void> OpContext::lock(std::initializer_list<Ino> inos) {
  Result<void> out;
  for (Ino ino : inos)  // asks for all, even after one was refused: the next run waits for all of them at once
    if (auto r = lock_stripe(Locks::stripe_of(ino)); !r) out = std::move(r);
  return out;
}

Result<void> OpContext::lock_moves(FilesetId fileset) { return lock_stripe(Locks::move_stripe_of(fileset)); }

bool OpContext::look_open(Ino ino) {
  if (!services_.hooks.open_for_write(ino)) {
    closed_.insert(ino);
    open_.erase(ino);
    return false;
  }
  if (closed_.contains(ino)) return false;  // it was opened during this request: the record is true of a moment in it
  open_.insert(ino);
  return true;
}

Result<schema::InodeRecordT> OpContext::inode(Ino ino, Errc absent) {
  look_open(ino);
  auto record = view_.inode(ino);
  if (!record) return std::unexpected(std::move(record).error());
  if (!*record) return Err(absent);
  return std::move(**record);
}

Result<schema::InodeRecordT> OpContext::settled_inode(Ino ino, Errc absent) {
  auto record = inode(ino, absent);
  if (record && record->truncate_intent) return park({Park::Kind::kIntent, {ino}, 0});
  return record;
}

void OpContext::put_dentry(Ino parent, std::string_view name, Ino ino, schema::FileType type, uint32_t birth_epoch) {
  schema::DentryRecordT record;
  record.ino = ino.v;
  record.type = type;
  record.birth_epoch = birth_epoch;
  batch_.put_record(Family::kDentry, dentry_key(parent, services_.store.names()(name), name), record);
}

void OpContext::del_dentry(Ino parent, std::string_view name) { batch_.del(Family::kDentry, dentry_key(parent, services_.store.names()(name), name)); }

Result<std::shared_ptr<const schema::FilesetRecordT>> OpContext::fileset(uint32_t id) {
  auto record = services_.store.fileset(FilesetId(id));
  if (!record) return Err(Errc::kCorrupt, fmt::format("fileset {} has no record", id));
  needs_sync_ |= record->durability_sync;
  return record;
}

Result<Ino> OpContext::new_ino() {
  if (!new_ino_) {
    auto number = services_.inos.take();
    if (!number) return park({Park::Kind::kNumbers, {}, 0});
    if (*number >= kInoLimit) return Err(Errc::kNoSpc, "all inode numbers of this metadata server have been given out");
    new_ino_ = Ino(*number);
  }
  return *new_ino_;
}

void OpContext::log(uint16_t kind, Ino ino, Ino parent, std::string_view name, Ino new_parent, std::string_view new_name) {
  schema::ChangelogRecordT entry;
  entry.time = now_;
  entry.kind = kind;
  entry.ino = ino.v;
  entry.parent = parent.v;
  entry.name = as_bytes(name);
  entry.new_parent = new_parent.v;
  entry.new_name = as_bytes(new_name);
  entry.uid = cred_.uid;
  entry.session = identity_.session.v;
  batch_.log(std::move(entry));
}

std::unexpected<Error> OpContext::park(Park why) {
  park_ = std::move(why);
  return Err(Errc::kRetryLater);
}

const Glimpse* OpContext::glimpse(Ino ino) const {
  auto it = glimpses_.find(ino);
  return it == glimpses_.end() ? nullptr : &it->second;
}

void OpContext::note_truncated(Ino ino, uint64_t size) {
  truncated_[ino] = size;
  glimpses_.erase(ino);  // it told of what has been cut off
}

std::optional<uint64_t> OpContext::truncated(Ino ino) const {
  auto it = truncated_.find(ino);
  return it == truncated_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace nacre::mds
