// SPDX-License-Identifier: Apache-2.0
// See recount.h.
#include "metadata/check/recount.h"

namespace nacre::mds::check {

void Recount::drop_idle() {
  std::lock_guard guard(mutex_);
  if (state_ && clock_.boot() - state_->used > kRecountIdle) state_.reset();
}

Result<std::shared_ptr<Recount::State>> Recount::take(uint64_t token) {
  std::lock_guard guard(mutex_);
  const bool idle = !state_ || clock_.boot() - state_->used > kRecountIdle;
  if (busy_ || (!idle && state_->token != token)) return Err(Errc::kBusy, "another check is counting usage: try again when it is through");
  busy_ = true;
  auto out = std::exchange(state_, nullptr);
  if (out && out->token == token) return out;
  out = std::make_shared<State>(store_);
  out->token = static_cast<uint64_t>(clock_.real()) + ++tokens_;
  return out;
}

Result<Recount::Page> Recount::look(uint64_t token, uint64_t budget) {
  NACRE_TRY(auto state, take(token));
  const View view(store_, state->snapshot);
  Page page;
  page.token = state->token;
  auto scanned = view.scan(Family::kInode, inode_key(state->next), "", [&](std::string_view key, std::string_view value) {
    const auto ino = parse_inode_key(key);
    if (!ino) return true;
    if (page.rows == budget) return false;
    ++page.rows;
    state->next = Ino(ino->v + 1);
    auto r = view_record<schema::InodeRecordT>(value);
    if (!r) return true;  // told in the inodes' phase
    auto& cell = state->cells[{(*r)->fileset(), (*r)->uid(), (*r)->gid()}];
    cell.first += static_cast<int64_t>((*r)->allocated());
    cell.second += 1;
    return true;
  });
  Result<std::vector<UsageGap>> gaps;
  page.end = scanned && page.rows < budget;
  if (page.end) gaps = compare(*state);
  std::lock_guard guard(mutex_);
  busy_ = false;
  if (!scanned) return std::unexpected(std::move(scanned).error());
  if (!gaps) return std::unexpected(std::move(gaps).error());
  page.gaps = std::move(*gaps);
  state->used = clock_.boot();
  if (!page.end) state_ = std::move(state);
  return page;
}

Result<std::vector<UsageGap>> Recount::compare(State& state) const {
  const View view(store_, state.snapshot);
  std::map<Cell, std::pair<int64_t, int64_t>> stored;
  NACRE_CHECK_OK(view.scan(Family::kUsage, "", "", [&](std::string_view key, std::string_view value) {
    auto cell = parse_usage_key(key);
    auto record = view_record<schema::UsageRecordT>(value);
    if (cell && record) stored[{cell->fileset.v, cell->uid, cell->gid}] = {(*record)->bytes(), (*record)->inodes()};
    return true;
  }));
  for (const auto& [cell, amount] : state.cells) stored.try_emplace(cell);
  std::vector<UsageGap> out;
  for (const auto& [cell, have] : stored) {
    const auto it = state.cells.find(cell);
    const auto want = it == state.cells.end() ? std::pair<int64_t, int64_t>() : it->second;
    if (want == have) continue;
    const auto [fileset, uid, gid] = cell;
    out.push_back({FilesetId(fileset), uid, gid, want.first - have.first, want.second - have.second, have.first, have.second});
  }
  return out;
}

}  // namespace nacre::mds::check
