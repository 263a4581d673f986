// SPDX-License-Identifier: Apache-2.0
// See checker.h.
#include "metadata/check/checker.h"

#include <algorithm>

namespace nacre::mds::check {
namespace {
wire::FsckReplyT answer(std::vector<Problem> problems) {
  wire::FsckReplyT reply;
  for (Problem& p : problems) reply.problems.push_back(std::make_unique<Problem>(std::move(p)));
  return reply;
}
std::string text(const std::vector<uint8_t>& cursor) { return std::string(as_text(cursor)); }
}  // namespace

Checker::Checker(Parts parts)
    : p_(parts),
      repair_({p_.services, p_.driver, p_.opens, p_.orphans, p_.owed}),
      objects_({p_.runtime, p_.services.store, p_.opens, p_.registry, p_.channels, p_.objects, p_.services.inos, repair_}),
      recount_(p_.services.store, p_.services.clock) {}

uint64_t Checker::inode_count() const { return static_cast<uint64_t>(std::max<int64_t>(p_.services.journal.usage_total().inodes, 0)); }

Task<Result<wire::FsckReplyT>> Checker::page(wire::FsckRequestT q) {
  if (q.cursor.size() > 4096) co_return Err(Errc::kInval, "a cursor of a check that is none");
  q.budget = std::clamp<uint64_t>(q.budget, 1, q.phase == kChecksums ? kMaxPageBytes : kMaxRows);
  switch (q.phase) {
    case kInodes: co_return co_await inodes(std::move(q));
    case kEntryRows: co_return co_await entries(std::move(q));
    case kStrays: co_return co_await objects_.strays(OstId(q.ost), std::move(q.cursor), q.budget, q.repair);
    case kChecksums: co_return co_await objects_.checksums(OstId(q.ost), std::move(q.cursor), q.budget);
    case kUsage: co_return co_await usage(std::move(q));
    default: co_return Err(Errc::kInval, fmt::format("a check has no phase {}", q.phase));
  }
}

// ---- inodes

Result<Checker::Scan> Checker::scan_inodes(const std::string& cursor, uint64_t budget) const {
  Snapshot snapshot(p_.services.store);
  const View view(p_.services.store, snapshot);
  Scan out;
  InodeCheck check(view);
  Error failed(Errc::kOk);
  Ino last;
  const std::string from = cursor.empty() ? inode_key(Ino(1)) : cursor;
  out.end = true;
  NACRE_CHECK_OK(view.scan(Family::kInode, from, "", [&](std::string_view key, std::string_view value) {
    const auto ino = parse_inode_key(key);
    if (!ino) return true;
    if (out.rows == budget || out.problems.size() >= kMaxProblems) {
      out.end = false;
      return false;
    }
    ++out.rows;
    last = *ino;
    auto r = decode_record<schema::InodeRecordT>(value);
    if (!r || r->ino != ino->v) {
      out.problems.push_back(make(kInodeDamaged, *ino, false, r ? fmt::format("inode {} lies under its number", r->ino) : fmt::format("its record can't be read ({}): restore the metadata from a backup", r.error().message())));
      return true;
    }
    if (auto done = check.look(*r, out.problems); !done) {
      failed = std::move(done).error();
      return false;
    }
    if (is_file(*r) && r->layout && (r->allocated != 0 || !layout::used_objects(*r->layout, *ino).empty())) out.files.push_back(std::move(*r));
    return true;
  }));
  if (failed.code != Errc::kOk) return std::unexpected(std::move(failed));
  const Ino first = parse_inode_key(from).value_or(Ino(1));
  NACRE_CHECK_OK(check.look_rows(first, out.end ? Ino(0) : last, out.problems));
  NACRE_CHECK_OK(add_paths(view, out.problems));
  out.cursor = inode_key(Ino(last.v + 1));
  return out;
}

/// Repairs what the records alone say, once per inode.
Task<Result<void>> Checker::mend(std::vector<Problem>& problems) {
  for (size_t i = 0; i < problems.size(); ++i) {
    Problem& p = problems[i];
    if (!p.repairable || p.repaired) continue;
    const Ino ino(p.ino);
    if (p.kind == kRowsWithoutInode || p.kind == kOrphanNamed) {
      CO_TRY(p.repaired, co_await repair_.rows(ino));
      continue;
    }
    bool homeless = false;
    for (const Problem& other : problems) homeless = homeless || (other.ino == p.ino && (other.kind == kUnreachable || other.kind == kCycle));
    auto done = co_await repair_.inode(ino, homeless);
    if (!done && done.error().code != Errc::kNotDir && done.error().code != Errc::kExist) co_return std::unexpected(std::move(done).error());
    for (Problem& other : problems)
      if (other.ino == p.ino && other.repairable && other.kind != kRowsWithoutInode && other.kind != kOrphanNamed) other.repaired = done.value_or(false);
    if (p.repaired) continue;
    p.repairable = false;
    p.detail += done ? "; others kept changing it: run the repair again" : "; " + done.error().detail;
  }
  co_return Result<void>{};
}

/// Files against their objects, as long as the answer has room; if it has not, the page ends with the last file looked at, and what
/// the scan has found behind it is left to the next page.
Task<Result<void>> Checker::sizes_of(Scan& found, bool repair, std::vector<Problem>& out) {
  for (size_t at = 0; at < found.files.size(); at += kFilesAtOnce) {
    if (at > 0 && found.problems.size() + out.size() >= kMaxProblems) {
      const uint64_t last = found.files[at - 1].ino;
      std::erase_if(found.problems, [&](const Problem& p) { return p.ino > last; });
      found.cursor = inode_key(Ino(last + 1));
      found.end = false;
      co_return Result<void>{};
    }
    const auto begin = found.files.begin() + static_cast<ptrdiff_t>(at);
    std::vector<schema::InodeRecordT> some(begin, begin + static_cast<ptrdiff_t>(std::min(kFilesAtOnce, found.files.size() - at)));
    CO_CHECK_OK(co_await objects_.files(std::move(some), repair, out));
  }
  co_return Result<void>{};
}

Task<Result<wire::FsckReplyT>> Checker::inodes(wire::FsckRequestT q) {
  const std::string cursor = text(q.cursor);
  if (!cursor.empty() && !parse_inode_key(cursor)) co_return Err(Errc::kInval, "a cursor of a check that is none");
  auto scan = [&] { return scan_inodes(cursor, q.budget); };
  CO_TRY(Scan found, co_await run_blocking(scan));
  std::vector<Problem> sizes;
  CO_CHECK_OK(co_await sizes_of(found, q.repair, sizes));
  if (q.repair) CO_CHECK_OK(co_await mend(found.problems));
  auto name = [&] { return add_paths(View(p_.services.store, Tier::kFull), sizes); };
  CO_CHECK_OK(co_await run_blocking(name));
  std::ranges::move(sizes, std::back_inserter(found.problems));
  auto reply = answer(std::move(found.problems));
  reply.cursor = as_bytes(found.cursor);
  reply.end = found.end;
  reply.checked = found.rows;
  reply.total = inode_count();
  co_return reply;
}

// ---- names

Result<Checker::Scan> Checker::scan_entries(const std::string& cursor, uint64_t budget) const {
  Snapshot snapshot(p_.services.store);
  const View view(p_.services.store, snapshot);
  Scan out;
  EntryCheck check(view);
  Error failed(Errc::kOk);
  out.end = true;
  NACRE_CHECK_OK(view.scan(Family::kDentry, cursor, "", [&](std::string_view key, std::string_view value) {
    if (out.rows == budget || out.problems.size() >= kMaxProblems) {
      out.end = false;
      return false;
    }
    ++out.rows;
    out.cursor = std::string(key) + '\0';
    auto problem = check.look(key, value);
    if (!problem) {
      failed = std::move(problem).error();
      return false;
    }
    if (!*problem) return true;
    out.problems.push_back(std::move(**problem));
    out.keys.emplace_back(key);
    return true;
  }));
  if (failed.code != Errc::kOk) return std::unexpected(std::move(failed));
  return out;
}

Task<Result<wire::FsckReplyT>> Checker::entries(wire::FsckRequestT q) {
  const std::string cursor = text(q.cursor);
  auto scan = [&] { return scan_entries(cursor, q.budget); };
  CO_TRY(Scan found, co_await run_blocking(scan));
  for (size_t i = 0; q.repair && i < found.problems.size(); ++i) {
    CO_TRY(found.problems[i].repaired, co_await repair_.entry(found.keys[i]));
  }
  auto reply = answer(std::move(found.problems));
  reply.cursor = as_bytes(found.cursor);
  reply.end = found.end;
  reply.checked = found.rows;
  reply.total = inode_count();
  co_return reply;
}

// ---- usage

Task<Result<wire::FsckReplyT>> Checker::usage(wire::FsckRequestT q) {
  uint64_t token = 0;
  for (uint8_t b : q.cursor) token = token << 8 | b;
  auto look = [&] { return recount_.look(token, q.budget); };
  CO_TRY(auto page, co_await run_blocking(look));
  std::vector<Problem> found;
  Batch batch;
  for (const UsageGap& gap : page.gaps) {
    const std::string whose = fmt::format("the counter of fileset {}, uid {}, gid {} is wrong", gap.fileset.v, gap.uid, gap.gid);
    auto add = [&](std::string_view kind, int64_t stored, int64_t by) {
      if (by == 0 || found.size() >= kMaxProblems) return;
      found.push_back(make(kind, Ino(), static_cast<uint64_t>(std::max<int64_t>(stored + by, 0)), static_cast<uint64_t>(std::max<int64_t>(stored, 0)), stored < 0 ? fmt::format("{}: it is {}", whose, stored) : whose));
    };
    add(kUsageBytes, gap.stored_bytes, gap.bytes);
    add(kUsageInodes, gap.stored_inodes, gap.inodes);
    batch.charge({gap.fileset, gap.uid, gap.gid, gap.bytes, gap.inodes});
  }
  if (q.repair && !batch.empty()) {
    CO_TRY(const JournalNo number, p_.services.journal.commit(std::move(batch)));
    (void)number;
    for (Problem& p : found) p.repaired = true;
  }
  auto reply = answer(std::move(found));
  for (int i = 7; i >= 0; --i) reply.cursor.push_back(static_cast<uint8_t>(page.token >> (8 * i)));
  reply.end = page.end;
  reply.checked = page.rows;
  reply.total = inode_count();
  co_return reply;
}

}  // namespace nacre::mds::check
