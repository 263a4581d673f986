// SPDX-License-Identifier: Apache-2.0
// What the MDS orders: destroy, truncate, punch, zero range, allocate, seal. A command holds its whole object. Its sequence is stored
// with the last of its batches, so that a repeat after that does nothing and a repeat after a crash in between does it all again.
// A cut makes older writes of the object stable first, and its own edge blocks too: resends don't come back past a cut, and a lost
// edge block could only be replaced by one that shows what was cut (P1.15, P1.17). Seals are memory only: a restart, or a resend of
// what an earlier incarnation lost, ends them, and who relies on one asks again whether it holds.
#include "storage/object/store.h"
#include "common/wire/bits.h"
#include "common/wire/checksum.h"

namespace nacre::storage {
namespace {
constexpr size_t kCutRows = 256;       ///< chunk records per batch: at most 2.5 MB of log
constexpr uint64_t kAllocateChunks = 64;  ///< chunks per batch
constexpr int kSpaceTries = 4;

/// A block of which only [from, to) is cut.
struct Edge {
  uint64_t block = 0;
  uint64_t from = 0, to = 0;  ///< bytes within the block
  bool wanted = false;        ///< it holds something there
  Run run{};                  ///< where the new version lies
  uint32_t sum = 0;
};
}  // namespace

/// One batch of a command.
struct CommandBatch {
  const Command& command;
  std::vector<Store::ChunkRow> rows{};  ///< new contents; empty ones are erased
  std::vector<Extent> freed{};
  int64_t grown = 0;                    ///< blocks allocated, less blocks freed
  bool last = false;                    ///< stores the sequence
  bool cut = false;                     ///< resends so far don't come back
  bool destroy = false;
  std::optional<uint64_t> shrink{};     ///< the size is at most this
};

Result<JournalNo> Store::commit_rows(Entry& entry, CommandBatch& part) {
  std::lock_guard lock(entry.mutex);
  ObjectState next = entry.state;
  std::string value;
  const auto build = [&](Batch& batch) -> Result<void> {
    for (const ChunkRow& row : part.rows) {
      const auto key = chunk_key(entry.id, row.chunk);
      if (row.content.empty()) {
        batch.erase(Family::kChunk, key);
      } else {
        row.content.encode(value);
        batch.put(Family::kChunk, key, value);
      }
    }
    next.allocated += static_cast<uint64_t>(part.grown) * kBlockSize;
    if (!next.exists) next.fileset = part.command.fileset;
    if (part.last && !part.destroy) next.exists = true;
    if (part.last) {
      next.command = part.command.command;
      if (part.shrink) next.size = std::min(next.size, *part.shrink);
      if (part.cut) next.truncate_wseq = txg_->last_wseq();
      note_command(batch, part.command.command);
      note_object(batch, entry.id);
    }
    if (part.last && part.destroy) {
      batch.erase(Family::kObject, object_key(entry.id));
      schema::TombstoneRecordT tombstone;
      tombstone.until = now() + kTombstoneTerm;
      tombstone.command = part.command.command.v;
      batch.put(Family::kTombstone, object_key(entry.id), encode_record(tombstone));
    } else if (next.exists) {
      next.encode(value);
      batch.put(Family::kObject, object_key(entry.id), value);
    }
    note_freed(entry.id, part.freed);
    txg_->touch();
    return {};
  };
  auto number = index_->commit(build);
  if (!number) return number;
  for (ChunkRow& row : part.rows) {
    auto it = entry.slots.find(row.chunk);
    if (it == entry.slots.end()) continue;
    it->second->chunk = std::move(row.content);
    it->second->loaded = true;  // a reader that is loading it drops what it found
  }
  if (part.last && part.destroy) {
    if (entry.state.exists) objects_.fetch_sub(1, std::memory_order_relaxed);
    next = ObjectState{};
    entry.stale = true;
    entry.tombstone = part.command.command;
    table_.drop_slots(entry, 0);
  } else if (next.exists && !entry.state.exists) {
    objects_.fetch_add(1, std::memory_order_relaxed);
  }
  entry.state = next;
  entry.last_change = *number;
  return number;
}

Task<Result<void>> Store::destroy(Command command, EntryPtr entry) {
  bool exists = false;
  {
    std::lock_guard lock(entry->mutex);
    exists = entry->state.exists;
  }
  for (bool last = false; !last;) {
    CommandBatch part{command};
    part.destroy = true;
    if (exists) {
      CO_TRY(part.rows, co_await rows(entry->id, 0, UINT64_MAX, kCutRows, /*with_damaged=*/true));
    }
    for (ChunkRow& row : part.rows) {
      if (row.damaged) rescan_ = true;  // nobody knows which blocks it had
      for (const Run& r : row.content.runs()) part.freed.push_back({r.at, r.length});
      part.grown -= row.content.blocks();
      row.content = Chunk();
    }
    part.last = last = part.rows.size() < kCutRows;
    auto number = commit_rows(*entry, part);
    if (!number) co_return std::unexpected(std::move(number).error());
  }
  co_return Result<void>{};
}

// ---- truncate, punch, zero range

static Buffer zero_block() {
  Buffer b = Buffer::allocate(kBlockSize);
  std::memset(b.data(), 0, b.size());
  return b;
}

struct CutOp {
  Store& store;
  const Command& command;
  EntryPtr entry;
  uint64_t from = 0, to = 0;             ///< bytes that go; to = UINT64_MAX: everything behind
  uint64_t first = 0, end = 0;           ///< whole blocks that go
  std::array<Edge, kMaxEdges> edges{};
  std::vector<Extent> fresh{};           ///< blocks of the edges

  void measure();
  Task<Result<void>> write_edges();
  Task<Result<void>> write_edge(Edge& edge);
  Task<Result<void>> run(bool record);
  void cut_row(Store::ChunkRow& row, CommandBatch& part);
};

void CutOp::measure() {
  first = (from + kBlockSize - 1) / kBlockSize;
  end = to == UINT64_MAX ? UINT64_MAX : to / kBlockSize;
  const uint64_t head = from / kBlockSize;
  size_t n = 0;
  if (from % kBlockSize) edges[n++] = {head, from % kBlockSize, std::min(kBlockSize, to - head * kBlockSize), true};
  if (to != UINT64_MAX && to % kBlockSize && (n == 0 || to / kBlockSize != head)) edges[n++] = {to / kBlockSize, 0, to % kBlockSize, true};
  end = std::max(end, first);
}

Task<Result<void>> CutOp::write_edge(Edge& edge) {
  edge.wanted = false;
  auto loaded = co_await store.load_slot(entry, edge.block / kBlocksPerChunk);
  if (!loaded && loaded.error().code == Errc::kCorrupt) co_return Result<void>{};  // the chunk's record is damaged: it can't be read before or after
  CO_TRY(SlotPtr slot, std::move(loaded));
  const auto in_chunk = static_cast<uint32_t>(edge.block % kBlocksPerChunk);
  uint32_t sum = 0;
  {
    std::lock_guard lock(entry->mutex);
    sum = slot->chunk.sum(in_chunk);
    if (sum == 0) co_return Result<void>{};  // a hole, or allocated ahead: zeros already
    const Run* old = slot->chunk.find(in_chunk);
    edge.run = *old;  // keeps epoch and write sequence
    edge.run.at = slot->chunk.at(in_chunk);
    edge.run.first = static_cast<uint16_t>(in_chunk);
    edge.run.length = 1;
  }
  auto held = co_await store.read_block(entry->id, edge.block, edge.run.at, sum);
  // A damaged block stays one: what is left of it is unknown, and refusing would leave the whole file with a cut that never ends.
  const bool damaged = !held && held.error().code == Errc::kChecksum;
  if (damaged) held = zero_block();
  CO_TRY(Buffer old, std::move(held));
  const auto gone = old.span().subspan(edge.from, edge.to - edge.from);
  if (!damaged && std::all_of(gone.begin(), gone.end(), [](std::byte b) { return b == std::byte{0}; })) co_return Result<void>{};
  std::fill(gone.begin(), gone.end(), std::byte{0});
  auto taken = store.space_->take(1, Purpose::kCommand, {entry->id, kNoGoal, false});
  for (int tries = 0; !taken && tries < kSpaceTries && store.space_->any_pending(); ++tries) {
    CO_CHECK_OK(co_await store.txg_->force());
    store.space_->poll();
    taken = store.space_->take(1, Purpose::kCommand, {entry->id, kNoGoal, false});
  }
  if (!taken) co_return Err(Errc::kNoSpc, fmt::format("ost{}: {}", store.options_.ost, store.space_->shortage(1, Purpose::kCommand)));
  fresh.insert(fresh.end(), taken->begin(), taken->end());
  edge.run.at = taken->front().at;
  edge.sum = wire::block_sum(entry->id, edge.block, old.span());
  if (damaged) edge.sum = edge.sum == UINT32_MAX ? 1 : edge.sum + 1;  // reads of it go on to fail
  CO_CHECK_OK(co_await store.device_->write(edge.run.at * kBlockSize, old));
  edge.wanted = true;
  co_return Result<void>{};
}

Task<Result<void>> CutOp::write_edges() {
  for (Edge& edge : edges) {
    if (!edge.wanted) continue;
    CO_CHECK_OK(co_await write_edge(edge));
  }
  co_return Result<void>{};
}

/// What is left of a chunk.
void CutOp::cut_row(Store::ChunkRow& row, CommandBatch& part) {
  const uint64_t base = row.chunk * kBlocksPerChunk;
  const uint32_t before = row.content.blocks();
  const uint64_t lo = std::max(first, base), hi = std::min(end, base + kBlocksPerChunk);
  if (lo < hi) row.content.cut(static_cast<uint32_t>(lo - base), static_cast<uint32_t>(hi - lo), part.freed);
  for (const Edge& edge : edges) {
    if (!edge.wanted || edge.block / kBlocksPerChunk != row.chunk) continue;
    row.content.cut(edge.run.first, 1, part.freed);
    row.content.insert(edge.run, &edge.sum);
  }
  part.grown += int64_t{row.content.blocks()} - int64_t{before};
}

Task<Result<void>> CutOp::run(bool record) {
  CO_CHECK_OK(co_await write_edges());
  bool settled = false;
  {
    std::lock_guard lock(entry->mutex);
    settled = fresh.empty() && store.txg_->is_synced(entry->last_change);
  }
  if (!settled) CO_CHECK_OK(co_await store.txg_->force());

  uint64_t chunk = from / kChunkSize;
  const uint64_t stop = to == UINT64_MAX ? UINT64_MAX : (to - 1) / kChunkSize + 1;
  for (bool last = false; !last;) {
    CO_TRY(auto found, co_await store.rows(entry->id, chunk, stop, kCutRows, /*with_damaged=*/true));
    CommandBatch part{command};
    last = found.size() < kCutRows;
    if (!last) chunk = found.back().chunk + 1;
    for (Store::ChunkRow& row : found) {
      if (row.damaged) {  // goes as a whole or stays: a part of it can't be told from the rest
        const bool whole = first <= row.chunk * kBlocksPerChunk && (row.chunk + 1) * kBlocksPerChunk <= end;
        if (whole) store.rescan_ = true;
        if (whole) part.rows.push_back(std::move(row));
        continue;
      }
      const Chunk old = row.content;
      cut_row(row, part);
      if (!(row.content == old)) part.rows.push_back(std::move(row));
    }
    part.last = last && record;
    part.cut = true;
    if (command.kind == wire::kCmdTruncate) part.shrink = command.offset;
    if (part.rows.empty() && !part.last) continue;
    auto number = store.commit_rows(*entry, part);
    if (!number) co_return std::unexpected(std::move(number).error());
    // The edges lie in the first and the last chunk: with the batch of their chunk they belong to the index.
    std::erase_if(fresh, [&](const Extent& e) {
      return std::any_of(edges.begin(), edges.end(), [&](const Edge& g) { return g.wanted && g.run.at == e.at && (last || g.block / kBlocksPerChunk < chunk); });
    });
  }
  co_return Result<void>{};
}

Task<Result<void>> Store::cut(Command command, EntryPtr entry) {
  CutOp op{*this, command, entry};
  op.from = command.offset;
  op.to = command.kind == wire::kCmdTruncate ? UINT64_MAX : command.offset + command.length;
  op.measure();
  const bool record = command.kind != wire::kCmdZero;  // zero range: the allocation that follows stores the sequence
  auto ok = co_await op.run(record);
  if (!ok && !failed_.load()) space_->give_back(op.fresh);
  co_return ok;
}

// ---- allocate

/// Gives every hole of [from, to) within the chunk a block that reads as zeros.
static bool fill_holes(Chunk& chunk, uint32_t from, uint32_t to, Epoch birth, Space& space, const ObjectId& object, std::vector<Extent>& taken) {
  for (uint32_t block = from; block < to;) {
    if (const Run* run = chunk.find(block)) {
      block = run->end();
      continue;
    }
    auto next = std::partition_point(chunk.runs().begin(), chunk.runs().end(), [&](const Run& r) { return r.first < block; });
    const uint32_t end = next == chunk.runs().end() ? to : std::min<uint32_t>(next->first, to);
    const uint64_t goal = block > 0 && chunk.find(block - 1) ? chunk.at(block - 1) + 1 : kNoGoal;
    auto extents = space.take(end - block, Purpose::kNew, {object, goal, false});
    if (!extents) return false;
    for (const Extent& e : *extents) {
      taken.push_back(e);
      Run run;
      run.first = static_cast<uint16_t>(block);
      run.length = static_cast<uint16_t>(e.length);
      run.birth = birth.v;
      run.at = e.at;
      run.unwritten = 1;
      chunk.insert(run, nullptr);
      block += static_cast<uint32_t>(e.length);
    }
  }
  chunk.merge(UINT64_MAX);
  return true;
}

Task<Result<void>> Store::allocate(Command command, EntryPtr entry) {
  const uint64_t first = command.offset / kBlockSize, end = round_up(command.offset + command.length, kBlockSize) / kBlockSize;
  uint64_t holes = end - first;
  for (uint64_t chunk = first / kBlocksPerChunk;;) {  // how much is missing, before anything is taken
    CO_TRY(auto found, co_await rows(entry->id, chunk, (end - 1) / kBlocksPerChunk + 1, kCutRows, /*with_damaged=*/true));
    for (const ChunkRow& row : found)
      for (const Run& r : row.content.runs()) {
        const uint64_t lo = std::max(first, row.chunk * kBlocksPerChunk + r.first), hi = std::min(end, row.chunk * kBlocksPerChunk + r.end());
        if (lo < hi) holes -= hi - lo;
      }
    if (found.size() < kCutRows) break;
    chunk = found.back().chunk + 1;
  }
  for (int tries = 0; !space_->has(holes, Purpose::kNew); ++tries) {
    if (tries == kSpaceTries || !space_->any_pending()) co_return Err(Errc::kNoSpc, fmt::format("ost{}: {}", options_.ost, space_->shortage(holes, Purpose::kNew)));
    CO_CHECK_OK(co_await txg_->force());
    space_->poll();
  }
  for (uint64_t chunk = first / kBlocksPerChunk; chunk * kBlocksPerChunk < end; chunk += kAllocateChunks) {
    const uint64_t stop = std::min(chunk + kAllocateChunks, (end - 1) / kBlocksPerChunk + 1);
    CO_TRY(auto found, co_await rows(entry->id, chunk, stop, kAllocateChunks, /*with_damaged=*/true));
    CommandBatch part{command};
    std::vector<Extent> taken;
    bool enough = true;
    size_t next = 0;
    for (uint64_t c = chunk; c < stop && enough; ++c) {
      ChunkRow row{c, {}};
      if (next < found.size() && found[next].chunk == c) row = std::move(found[next++]);
      if (row.damaged) continue;
      const uint32_t before = row.content.blocks();
      const uint64_t base = c * kBlocksPerChunk;
      const auto lo = static_cast<uint32_t>(std::max(first, base) - base), hi = static_cast<uint32_t>(std::min(end, base + kBlocksPerChunk) - base);
      enough = fill_holes(row.content, lo, hi, epoch(command.fileset), *space_, entry->id, taken);
      part.grown += int64_t{row.content.blocks()} - int64_t{before};
      if (row.content.blocks() != before) part.rows.push_back(std::move(row));
    }
    if (!enough) {
      space_->give_back(taken);
      co_return Err(Errc::kNoSpc, fmt::format("ost{}: {}", options_.ost, space_->shortage(kBlocksPerChunk, Purpose::kNew)));
    }
    part.last = stop * kBlocksPerChunk >= end;
    part.cut = command.kind == wire::kCmdZero;
    auto number = commit_rows(*entry, part);
    if (!number) co_return std::unexpected(std::move(number).error());
    co_await yield_now();
  }
  co_return Result<void>{};
}

// ---- the call

static Result<void> check_command(const Command& c) {
  if (c.kind < wire::kCmdDestroy || c.kind > wire::kCmdUnseal) return Err(Errc::kInval, fmt::format("object {}: no such command kind {}", c.object, c.kind));
  if (!c.command) return Err(Errc::kInval, fmt::format("object {}: a command without a sequence", c.object));
  if (c.offset > kMaxFileSize || c.length > kMaxFileSize - c.offset) return Err(Errc::kFBig, fmt::format("object {}: a command reaches beyond {} bytes", c.object, kMaxFileSize));
  if (c.kind >= wire::kCmdPunch && c.kind <= wire::kCmdAllocate && c.length == 0) return Err(Errc::kInval, fmt::format("object {}: a command on an empty range", c.object));
  return {};
}

/// Seal and unseal, under the lock of the whole object: writes that came first are done. A seal with an offset only asks whether
/// the one of that number holds still.
Result<void> Store::seal(const Command& command) {
  std::unique_lock lock(state_mutex_);
  auto it = seals_.find(command.object);
  if (command.kind == wire::kCmdUnseal) {
    if (it != seals_.end() && it->second <= command.command) seals_.erase(it);
  } else if (command.offset != 0) {
    if (it == seals_.end() || it->second != command.command) return Err(Errc::kStale, "it is no longer sealed: the target has restarted since, or was sent what it had lost before");
  } else if (it == seals_.end()) {
    if (seals_.size() >= kMaxSeals) return Err(Errc::kRetryLater, fmt::format("{} objects are sealed already, the limit", kMaxSeals));
    seals_.emplace(command.object, command.command);
  } else {
    it->second = std::max(it->second, command.command);
  }
  seal_count_.store(seals_.size(), std::memory_order_relaxed);
  return {};
}

bool Store::sealed(const ObjectId& object) const {
  if (seal_count_.load(std::memory_order_relaxed) == 0) return false;
  std::shared_lock lock(state_mutex_);
  return seals_.contains(object);
}

void Store::break_seal(const ObjectId& object) {
  std::unique_lock lock(state_mutex_);
  seals_.erase(object);
  seal_count_.store(seals_.size(), std::memory_order_relaxed);
}

Task<Result<void>> Store::apply(Command command, EntryPtr entry) {
  CO_TRY(RangeLock lock, co_await lock_range(entry, BlockRange{}));
  CO_CHECK_OK(co_await load(entry));
  {
    std::lock_guard state(entry->mutex);
    if (entry->tombstone) co_return Result<void>{};  // gone: whatever it is, it is done
    if (command.kind >= wire::kCmdSeal) co_return seal(command);
    if (entry->state.exists && command.command <= entry->state.command) co_return Result<void>{};
    if (command.kind != wire::kCmdDestroy) CO_CHECK_OK(check_sound(*entry));
  }
  switch (command.kind) {
    case wire::kCmdDestroy:
      CO_CHECK_OK(co_await destroy(command, entry));
      break_seal(command.object);  // the tombstone refuses from now on
      co_return Result<void>{};
    case wire::kCmdTruncate:
    case wire::kCmdPunch: co_return co_await cut(command, entry);
    case wire::kCmdZero:
      // The blocks it allocates are others than those it frees: both must fit, before anything is cut.
      if (!space_->has(command.length / kBlockSize + 2, Purpose::kNew)) co_return Err(Errc::kNoSpc, fmt::format("ost{}: {}", options_.ost, space_->shortage(command.length / kBlockSize + 2, Purpose::kNew)));
      CO_CHECK_OK(co_await cut(command, entry));
      break;
    default: break;
  }
  co_return co_await allocate(command, entry);
}

Task<Result<CommandsResult>> Store::commands(std::vector<Command> commands, bool sync) {
  GateGuard open(gate_);
  if (!open) co_return Err(Errc::kShutdown);
  if (commands.size() > kMaxCommands) co_return Err(Errc::kInval, fmt::format("{} commands in one call; at most {} are possible", commands.size(), kMaxCommands));
  for (const Command& c : commands) CO_CHECK_OK(check_command(c));
  CommandsResult result;
  JournalNo newest;
  for (const Command& c : commands) {
    EntryPtr entry = table_.pin(c.object);
    auto ok = co_await apply(c, entry);
    if (!ok) co_return std::unexpected(about(c.object, c.offset, std::move(ok).error()));
    std::lock_guard lock(entry->mutex);
    newest = std::max(newest, entry->last_change);
    result.done.push_back(c.command);
    result.infos.push_back(info_of(entry->state));
  }
  if (index_->rotation_due()) txg_->kick();
  if (sync && newest) CO_CHECK_OK(co_await txg_->through(newest));
  co_return result;
}

}  // namespace nacre::storage
