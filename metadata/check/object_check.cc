// SPDX-License-Identifier: Apache-2.0
// See object_check.h.
#include "metadata/check/object_check.h"

#include <algorithm>

#include "common/base/units.h"
#include "common/log/log.h"
#include "common/wire/bits.h"

namespace nacre::mds::check {
namespace {
constexpr size_t kListLimit = 10'000;

bool differs(const schema::InodeRecordT& r, const Glimpse& g) { return g.allocated != r.allocated || g.size > r.size; }

/// A position in a target: object and chunk.
std::vector<uint8_t> encode_position(const schema::ObjectRef& object, uint64_t chunk) {
  std::vector<uint8_t> out;
  auto add = [&](uint64_t v, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
  };
  add(object.ino(), 8), add(object.generation(), 4), add(object.component(), 2), add(object.stripe(), 2), add(chunk, 8);
  return out;
}

struct Position { schema::ObjectRef object; uint64_t chunk = 0; };
Result<std::optional<Position>> decode_position(const std::vector<uint8_t>& in) {
  if (in.empty()) return std::optional<Position>();
  if (in.size() != 24) return Err(Errc::kInval, "a cursor of a check that is none");
  size_t at = 0;
  auto get = [&](int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v = v << 8 | in[at++];
    return v;
  };
  const uint64_t ino = get(8), generation = get(4), component = get(2), stripe = get(2);
  return std::optional(Position{schema::ObjectRef(ino, static_cast<uint32_t>(generation), static_cast<uint16_t>(component), static_cast<uint16_t>(stripe)), get(8)});
}
}  // namespace

Result<std::string> why_stray(const View& view, const ObjectId& o, OstId ost) {
  auto record = view.inode(o.ino);
  if (!record && is_damage(record.error())) return std::string();  // nobody knows: it stays
  if (!record) return std::unexpected(std::move(record).error());
  if (!*record) return fmt::format("there is no inode {}", o.ino);
  const schema::InodeRecordT& r = **record;
  if (!r.layout) return fmt::format("inode {} is no file", o.ino);
  if (o.generation.v != r.layout->generation) {
    NACRE_TRY(auto moving, view.get(Family::kMeta, migration_key(o.ino)));
    if (moving) return std::string();
    return fmt::format("the file's layout has generation {}", r.layout->generation);
  }
  if (o.component >= r.layout->components.size() || !r.layout->components[o.component]) return fmt::format("the file's layout has {} components", r.layout->components.size());
  const auto& c = *r.layout->components[o.component];
  if (!c.instantiated || o.stripe >= std::min<size_t>(c.osts.size(), c.stripes_used)) return fmt::format("the file uses {} stripes of component {}", c.instantiated ? c.stripes_used : 0, o.component);
  if (c.osts[o.stripe] != ost.v) return fmt::format("the file has this stripe on ost{}", c.osts[o.stripe]);
  return std::string();
}

template <rpc::Method M>
Task<Result<typename rpc::MethodTraits<M>::Reply>> ObjectCheck::ask(OstId ost, typename rpc::MethodTraits<M>::Request request) {
  const Nanos deadline = p_.runtime.clock().boot() + kTargetAnswer;
  for (;;) {
    auto endpoint = p_.registry.endpoint(ost);
    if (!endpoint) co_return Err(Errc::kNoEnt, fmt::format("there is no storage target ost{}", ost.v));
    const Nanos now = p_.runtime.clock().boot();
    auto reply = co_await p_.channels.call<M>(ost, request, endpoint->up ? deadline : std::min(deadline, now + kOstAttempt));
    if (reply || reply.error().code != Errc::kRecovering || now >= deadline) co_return reply;
    CO_CHECK_OK(co_await sleep_for(kOstRetryPause));  // it has registered and is about to serve
  }
}

// ---- files → objects

bool ObjectCheck::reachable(const schema::InodeRecordT& r) const {
  for (const auto& o : layout::used_objects(*r.layout, Ino(r.ino))) {
    auto endpoint = p_.registry.endpoint(o.ost);
    if (!endpoint || !endpoint->up || endpoint->state == wire::kOstInactive) return false;
  }
  return true;
}

/// One of its targets stopped uncleanly a moment ago: what it lost is what the clients still have and send again.
bool ObjectCheck::may_come_back(const schema::InodeRecordT& r) const {
  const Nanos now = p_.runtime.clock().real();
  return std::ranges::any_of(layout::used_objects(*r.layout, Ino(r.ino)), [&](const layout::StripeRef& o) {
    auto endpoint = p_.registry.endpoint(o.ost);
    return endpoint && endpoint->lost_until > now;
  });
}

/// What the objects say, in order of `records`, from which files drop out whose targets turn out not to answer.
Task<Result<std::vector<Glimpse>>> ObjectCheck::glimpses(std::vector<schema::InodeRecordT>& records) {
  for (int tries = 0;; ++tries) {
    std::erase_if(records, [&](const schema::InodeRecordT& r) { return !reachable(r); });
    std::vector<layout::StripeRef> all;
    std::vector<std::vector<layout::StripeRef>> each;
    for (const auto& r : records) {
      each.push_back(layout::used_objects(*r.layout, Ino(r.ino)));
      all.insert(all.end(), each.back().begin(), each.back().end());
    }
    auto stats = co_await p_.objects.stat(std::move(all), p_.runtime.clock().boot() + kOstAnswer);
    if (stats) {
      std::vector<Glimpse> out;
      size_t at = 0;
      for (size_t i = 0; i < records.size(); ++i) {
        out.push_back(each[i].empty() ? Glimpse{Ino(records[i].ino)} : glimpse_of(records[i], each[i], stats->data() + at));
        at += each[i].size();
      }
      co_return out;
    }
    const Errc code = stats.error().code;
    if (tries == 5 || (code != Errc::kOstDown && code != Errc::kRecovering)) co_return std::unexpected(std::move(stats).error());
    CO_CHECK_OK(co_await sleep_for(kSecond));
  }
}

/// The record and its objects as of one moment at which nobody could change them; nothing if there was no such moment.
Task<Result<std::optional<Seen>>> ObjectCheck::look_again(Ino ino) {
  using Out = std::optional<Seen>;
  Seen seen;
  seen.cuts = p_.opens.cuts(ino);
  if (p_.opens.open_for_write(ino)) co_return Out();
  auto read = [this, ino] { return View(p_.store, Tier::kFull).inode(ino); };
  CO_TRY(auto before, co_await run_blocking(read));
  if (!before || !before->layout || before->truncate_intent) co_return Out();
  std::vector<schema::InodeRecordT> one;
  one.push_back(*before);
  CO_TRY(auto objects, co_await glimpses(one));
  if (one.empty()) co_return Out();
  CO_TRY(auto after, co_await run_blocking(read));
  if (!after || encode_record(*after) != encode_record(*before)) co_return Out();
  if (p_.opens.open_for_write(ino) || p_.opens.cuts(ino) != seen.cuts) co_return Out();
  seen.record = std::move(*before);
  seen.objects = objects[0];
  co_return Out(std::move(seen));
}

/// Which bytes of the file are missing, as well as that can be told: objects that should hold some and don't exist.
Task<Result<Problem>> ObjectCheck::describe_loss(Seen seen) {
  const schema::InodeRecordT& r = seen.record;
  Problem p = make(kDataLost, Ino(r.ino), r.allocated, seen.objects.allocated, "");
  p.repairable = false;
  const auto used = layout::used_objects(*r.layout, Ino(r.ino));
  CO_TRY(auto stats, co_await p_.objects.stat(used, p_.runtime.clock().boot() + kOstAnswer));
  size_t missing = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto& c = *r.layout->components[used[i].object.component];
    const uint64_t first = c.start + uint64_t{used[i].object.stripe} * c.stripe_size;
    if (stats[i].exists() || first >= r.size) continue;
    if (missing++ == 0) {
      set_object(p, used[i].ost, used[i].object);
      p.offset = first;
      p.length = std::min<uint64_t>(c.osts.size() == 1 ? r.size - first : c.stripe_size, r.size - first);
    }
    if (missing <= kMaxMissingTold) p.detail += fmt::format("{}object {} on ost{} (from byte {} on, {} of every {})", p.detail.empty() ? "missing: " : "; ", used[i].object, used[i].ost.v, first, c.stripe_size, uint64_t{c.stripe_size} * c.osts.size());
  }
  if (missing == 0) p.detail = "blocks are missing inside of its objects: they read as zeros";
  if (missing > kMaxMissingTold) p.detail += fmt::format("; {} more", missing - kMaxMissingTold);
  co_return p;
}

Task<Result<void>> ObjectCheck::tell(Seen seen, bool repair, std::vector<Problem>& out) {
  const schema::InodeRecordT& r = seen.record;
  std::vector<Problem> found;
  const bool lost = seen.objects.allocated < r.allocated;
  if (lost) {
    CO_TRY(Problem p, co_await describe_loss(seen));
    found.push_back(std::move(p));
  } else if (seen.objects.allocated > r.allocated) {
    found.push_back(make(kAllocated, Ino(r.ino), seen.objects.allocated, r.allocated, "its count of stored bytes is wrong"));
  }
  if (seen.objects.size > r.size) found.push_back(make(kSize, Ino(r.ino), seen.objects.size, r.size, "its data reaches beyond its size"));
  bool done = false;
  if (repair) {
    CO_TRY(done, co_await p_.repair.counters(seen));
  }
  for (Problem& p : found) {
    if (p.kind == kDataLost && done) p.detail += "; the counters now follow what is left";
    else p.repaired = done;
    out.push_back(std::move(p));
  }
  co_return Result<void>{};
}

/// An administrator gave a target up, or has not said yet that it is back: these files are what that costs.
void ObjectCheck::tell_unreachable(const schema::InodeRecordT& r, std::vector<Problem>& out) const {
  std::optional<Problem> p;
  for (const auto& o : layout::used_objects(*r.layout, Ino(r.ino))) {
    const auto& c = *r.layout->components[o.object.component];
    const uint64_t first = c.start + uint64_t{o.object.stripe} * c.stripe_size;
    auto endpoint = p_.registry.endpoint(o.ost);
    if (first >= r.size || r.allocated == 0 || !endpoint || endpoint->state != wire::kOstInactive) continue;
    if (!p) {
      p = make(kDataUnreachable, Ino(r.ino), false, "");
      set_object(*p, o.ost, o.object);
      p->offset = first;
      p->length = std::min<uint64_t>(c.osts.size() == 1 ? r.size - first : c.stripe_size, r.size - first);
    }
    ++p->found;
  }
  if (!p) return;
  p->detail = fmt::format("ost{} is inactive: what the file has there ({} objects, from byte {} on) can't be read; activate the target, or restore the file and delete this one", p->ost, p->found, p->offset);
  out.push_back(std::move(*p));
}

Task<Result<void>> ObjectCheck::files(std::vector<schema::InodeRecordT> records, bool repair, std::vector<Problem>& out) {
  std::erase_if(records, [&](const schema::InodeRecordT& r) { return p_.opens.open_for_write(Ino(r.ino)) || r.truncate_intent || !layout::validate(*r.layout); });
  for (const auto& r : records) tell_unreachable(r, out);
  CO_TRY(auto seen, co_await glimpses(records));
  std::vector<Ino> suspects;
  for (size_t i = 0; i < records.size(); ++i)
    if (differs(records[i], seen[i])) suspects.push_back(Ino(records[i].ino));
  if (suspects.empty()) co_return Result<void>{};
  CO_CHECK_OK(co_await sleep_for(kSecondLook));
  for (Ino ino : suspects) {
    CO_TRY(auto again, co_await look_again(ino));
    if (!again || !differs(again->record, again->objects)) continue;
    if (again->objects.allocated < again->record.allocated && may_come_back(again->record)) continue;
    CO_CHECK_OK(co_await tell(std::move(*again), repair, out));
  }
  co_return Result<void>{};
}

// ---- objects → files

/// Those whose destruction is owed.
Task<Result<std::set<ObjectId>>> ObjectCheck::owed(OstId ost, std::set<ObjectId> of) {
  auto job = [&]() -> Result<std::set<ObjectId>> {
    std::set<ObjectId> out;
    const std::string prefix = owed_prefix(ost);
    NACRE_CHECK_OK(View(p_.store, Tier::kFull).scan(Family::kOwed, prefix, prefix_end(prefix), [&](std::string_view, std::string_view value) {
      auto row = view_record<schema::OwedRecordT>(value);
      if (!row || (*row)->kind() != wire::kCmdDestroy) return true;
      for (uint32_t s = 0; s < std::max<uint32_t>((*row)->stripes(), 1); ++s) {
        const ObjectId o{Ino((*row)->ino()), Generation(static_cast<uint32_t>((*row)->generation())), (*row)->component(), static_cast<uint16_t>((*row)->stripe() + s)};
        if (of.contains(o)) out.insert(o);
      }
      return true;
    }));
    return out;
  };
  co_return co_await run_blocking(job);
}

/// Is it there, and not about to go? By a list, since a stat hides objects whose record is damaged.
Task<Result<bool>> ObjectCheck::stays(OstId ost, ObjectId object) {
  CO_TRY(const auto leaving, co_await owed(ost, {object}));
  if (!leaving.empty()) co_return false;
  wire::ObjectListRequestT request;
  request.limit = 1;
  ObjectId before = object;
  if (before.stripe > 0) --before.stripe;
  else if (before.component > 0) --before.component, before.stripe = UINT16_MAX;
  else if (before.generation.v > 0) --before.generation.v, before.component = before.stripe = UINT16_MAX;
  else --before.ino.v, before.generation = Generation(UINT32_MAX), before.component = before.stripe = UINT16_MAX;
  request.after = std::make_unique<schema::ObjectRef>(to_ref(before));
  CO_TRY(auto list, co_await ask<rpc::Method::kObjectList>(ost, std::move(request)));
  co_return !list.objects.empty() && to_id(list.objects[0].object()) == object;
}

/// An object that looked like no file's: it must look so again, and still be there.
Task<Result<void>> ObjectCheck::stray(OstId ost, const wire::ListedObject& listed, bool repair, std::vector<Problem>& out) {
  const ObjectId object = to_id(listed.object());
  auto why = [this, object, ost] {
    Snapshot snapshot(p_.store);
    return why_stray(View(p_.store, snapshot), object, ost);
  };
  CO_TRY(const std::string reason, co_await run_blocking(why));
  if (reason.empty()) co_return Result<void>{};
  CO_TRY(const bool there, co_await stays(ost, object));
  if (!there) co_return Result<void>{};
  Problem p = make(kObjectWithoutFile, object.ino, true, fmt::format("{}; it holds {}", reason, format_size(listed.stat().allocated())));
  set_object(p, ost, object);
  p.found = listed.stat().allocated();
  p.length = listed.stat().size();
  if (repair) {
    CO_TRY(p.repaired, co_await p_.repair.destroy(ost, object, [object, ost](const View& view) -> Result<bool> {
      NACRE_TRY(const std::string now, why_stray(view, object, ost));
      return !now.empty();
    }));
  }
  out.push_back(std::move(p));
  co_return Result<void>{};
}

Task<Result<wire::FsckReplyT>> ObjectCheck::strays(OstId ost, std::vector<uint8_t> cursor, uint64_t budget, bool repair) {
  CO_TRY(const auto from, decode_position(cursor));
  const Nanos began = p_.runtime.clock().real();
  wire::ObjectListRequestT request;
  if (from) request.after = std::make_unique<schema::ObjectRef>(from->object);
  request.limit = static_cast<uint32_t>(std::clamp<uint64_t>(budget, 1, kListLimit));
  CO_TRY(auto list, co_await ask<rpc::Method::kObjectList>(ost, std::move(request)));
  const uint64_t given_out = p_.inos.next();  // after the list: an object of a number above it is none of this server's yet
  std::vector<Problem> damaged;
  auto look = [&]() -> Result<std::set<ObjectId>> {
    Snapshot snapshot(p_.store);
    const View view(p_.store, snapshot);
    std::set<ObjectId> out;
    for (const auto& o : list.objects) {
      const ObjectId object = to_id(o.object());
      if (object.ino.v >= given_out || o.stat().changed() >= began) continue;
      NACRE_TRY(const std::string why, why_stray(view, object, ost));
      if (!why.empty()) out.insert(object);
      else if (!o.stat().exists()) {
        damaged.push_back(make(kObjectDamaged, object.ino, false, "its record on the target can't be read, so this part of the file is lost: restore the file from a copy, or delete it"));
        set_object(damaged.back(), ost, object);
      }
    }
    return out;
  };
  CO_TRY(auto suspects, co_await run_blocking(look));
  if (!suspects.empty()) {
    CO_TRY(const auto leaving, co_await owed(ost, suspects));
    for (const ObjectId& o : leaving) suspects.erase(o);
  }
  wire::FsckReplyT reply;
  reply.end = list.end;
  reply.total = list.total;
  std::vector<Problem> found;
  for (const auto& o : list.objects) {
    const ObjectId object = to_id(o.object());
    reply.cursor = encode_position(o.object(), 0);
    ++reply.checked;
    for (Problem& p : damaged)
      if (p.object && to_id(*p.object) == object) found.push_back(std::move(p));
    if (suspects.contains(object)) CO_CHECK_OK(co_await stray(ost, o, repair, found));
    if (found.size() < kMaxProblems) continue;
    reply.end = false;
    break;
  }
  auto name = [&] { return add_paths(View(p_.store, Tier::kFull), found); };
  CO_CHECK_OK(co_await run_blocking(name));
  for (Problem& p : found) reply.problems.push_back(std::make_unique<Problem>(std::move(p)));
  co_return reply;
}

// ---- checksums

/// The damaged bytes as bytes of the file, if it is one.
static Result<Problem> as_file_range(const View& view, OstId ost, const wire::ScrubBad& bad) {
  const ObjectId object = to_id(bad.object());
  Problem p = make(kChecksum, object.ino, false, "");
  set_object(p, ost, object);
  p.offset = bad.offset();
  p.length = bad.length();
  NACRE_TRY(const std::string stray, why_stray(view, object, ost));
  auto record = view.inode(object.ino);
  if (!record && !is_damage(record.error())) return std::unexpected(std::move(record).error());
  const bool known = stray.empty() && record && *record && (*record)->layout && object.generation.v == (*record)->layout->generation;
  if (!known) {
    p.detail = "the stored bytes don't match their checksums; they belong to no file, or to one that is being moved (offset: of the object)";
    return p;
  }
  const auto& c = *(*record)->layout->components[object.component];
  p.offset = layout::file_end(c, object.stripe, bad.offset() + 1) - 1;
  p.detail = fmt::format("the stored bytes don't match their checksums (offset {} of the object), there is no second copy: restore the file, overwrite these bytes, or delete it", bad.offset());
  return p;
}

Task<Result<wire::FsckReplyT>> ObjectCheck::checksums(OstId ost, std::vector<uint8_t> cursor, uint64_t budget) {
  CO_TRY(const auto from, decode_position(cursor));
  wire::ObjectScrubRequestT request;
  if (from) request.after = std::make_unique<schema::ObjectRef>(from->object);
  if (from) request.chunk = from->chunk;
  request.max_bytes = budget;
  CO_TRY(auto scrubbed, co_await ask<rpc::Method::kObjectScrub>(ost, std::move(request)));
  wire::FsckReplyT reply;
  reply.end = scrubbed.end;
  reply.bytes = scrubbed.bytes;
  if (!scrubbed.last) co_return Err(Errc::kProtocol, fmt::format("ost{} does not say how far its check came", ost.v));
  reply.cursor = encode_position(*scrubbed.last, scrubbed.chunk);
  // What was just deleted is about to go, damaged or not.
  std::set<ObjectId> going;
  for (const wire::ScrubBad& bad : scrubbed.bad) {
    const ObjectId object = to_id(bad.object());
    auto look = [&]() -> Result<bool> {
      const View view(p_.store, Tier::kFull);
      auto record = view.inode(object.ino);
      return record && *record && (*record)->nlink == 0;
    };
    CO_TRY(const bool deleted, co_await run_blocking(look));
    CO_TRY(const bool there, co_await stays(ost, object));
    if (deleted || !there) going.insert(object);
  }
  auto tell = [&]() -> Result<std::vector<Problem>> {
    const View view(p_.store, Tier::kFull);
    std::vector<Problem> out;
    for (const wire::ScrubBad& bad : scrubbed.bad) {
      if (going.contains(to_id(bad.object()))) continue;
      NACRE_TRY(Problem p, as_file_range(view, ost, bad));
      out.push_back(std::move(p));
    }
    NACRE_CHECK_OK(add_paths(view, out));
    return out;
  };
  CO_TRY(auto found, co_await run_blocking(tell));
  for (Problem& p : found) {
    log::error("ost{} object {}: {} damaged bytes at offset {} of inode {}: {}", ost.v, to_id(*p.object), p.length, p.offset, p.ino, p.path.empty() ? std::string("no file") : std::string(as_text(p.path)));
    reply.problems.push_back(std::make_unique<Problem>(std::move(p)));
  }
  co_return reply;
}

}  // namespace nacre::mds::check
