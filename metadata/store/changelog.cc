// SPDX-License-Identifier: Apache-2.0
// See changelog.h.
#include "metadata/store/changelog.h"

#include <algorithm>
#include <limits>

namespace nacre::mds {
namespace {
constexpr std::string_view kReaderRange = "changelog_reader";

Result<void> commit_row(Journal& journal, Batch batch) {
  auto number = journal.commit(std::move(batch));
  if (!number) return std::unexpected(std::move(number).error());
  return {};
}

Error no_reader(uint32_t number) { return Error(Errc::kNoEnt, fmt::format("there is no changelog reader {}: see 'nacre changelog list'", number)); }
}  // namespace

Result<std::vector<schema::ChangelogReaderRecordT>> Changelog::readers() const {
  std::vector<schema::ChangelogReaderRecordT> out;
  Result<void> bad;
  View view(journal_.store(), Tier::kFull);
  NACRE_CHECK_OK(view.scan(Family::kMeta, changelog_reader_prefix(), prefix_end(changelog_reader_prefix()), [&](std::string_view, std::string_view value) {
    auto record = decode_record<schema::ChangelogReaderRecordT>(value);
    if (!record) bad = Err(Errc::kCorrupt, "the record of a changelog reader is damaged: deregister it and register it anew");
    else out.push_back(std::move(*record));
    return true;
  }));
  if (!bad) return std::unexpected(std::move(bad).error());
  return out;
}

Result<schema::ChangelogReaderRecordT> Changelog::reader(uint32_t number) const {
  View view(journal_.store(), Tier::kFull);
  NACRE_TRY(auto record, view.get_record<schema::ChangelogReaderRecordT>(Family::kMeta, changelog_reader_key(number)));
  if (!record) return Err(no_reader(number));
  return std::move(*record);
}

Result<void> Changelog::put(const schema::ChangelogReaderRecordT& record) {
  Batch batch;
  batch.put_record(Family::kMeta, changelog_reader_key(record.reader), record);
  NACRE_CHECK_OK(commit_row(journal_, std::move(batch)));
  return journal_.sync_now();
}

Result<uint32_t> Changelog::add_reader(std::string name) {
  if (name.size() > kMaxReaderName) return Err(Errc::kInval, fmt::format("a reader's name has at most {} bytes", kMaxReaderName));
  std::lock_guard guard(mutex_);
  NACRE_TRY(auto known, readers());
  if (known.size() >= kMaxChangelogReaders) return Err(Errc::kTooBig, fmt::format("there are {} changelog readers, the most possible: deregister one that is not used", known.size()));
  for (const auto& r : known)
    if (!name.empty() && r.name == name) return Err(Errc::kExist, fmt::format("reader {} has the name {} already", r.reader, name));
  View view(journal_.store(), Tier::kFull);
  NACRE_TRY(auto given, view.get_record<schema::RangeRecordT>(Family::kRange, range_key(kReaderRange)));
  schema::RangeRecordT mark;
  mark.high = (given ? given->high : 0) + 1;
  NACRE_TRY(Range range, this->range());
  schema::ChangelogReaderRecordT record;
  record.reader = static_cast<uint32_t>(mark.high);
  record.name = std::move(name);
  record.cleared = range.last;
  record.created = options_.clock->real();
  Batch batch;
  batch.put_record(Family::kRange, range_key(kReaderRange), mark);
  batch.put_record(Family::kMeta, changelog_reader_key(record.reader), record);
  NACRE_CHECK_OK(commit_row(journal_, std::move(batch)));
  NACRE_CHECK_OK(journal_.sync_now());
  return record.reader;
}

Result<void> Changelog::clear(uint32_t number, uint64_t sequence) {
  {
    std::lock_guard guard(mutex_);
    NACRE_TRY(auto record, reader(number));
    NACRE_TRY(Range range, this->range());
    if (sequence > range.last) return Err(Errc::kInval, fmt::format("entry {} does not exist yet: the newest is {}", sequence, range.last));
    record.cleared = std::max(record.cleared, sequence ? sequence : range.last);
    NACRE_CHECK_OK(put(record));
  }
  return prune();
}

Result<void> Changelog::drop_reader(uint32_t number) {
  std::lock_guard guard(mutex_);
  NACRE_TRY(auto record, reader(number));
  Batch batch;
  batch.del(Family::kMeta, changelog_reader_key(record.reader));
  NACRE_CHECK_OK(commit_row(journal_, std::move(batch)));
  return journal_.sync_now();
}

Result<Changelog::Range> Changelog::range() const {
  Range out;
  View view(journal_.store(), Tier::kFull);
  NACRE_CHECK_OK(view.scan(Family::kChangelog, "", "", [&](std::string_view key, std::string_view) {
    out.first = parse_changelog_key(key).value_or(0);
    return false;
  }));
  out.last = out.first == 0 ? 0 : journal_.changelog_last();
  return out;
}

Result<Changelog::Page> Changelog::read(uint32_t number, uint64_t after, size_t limit) {
  NACRE_TRY(auto record, reader(number));
  if (after == 0) after = record.cleared;
  limit = std::clamp<size_t>(limit, 1, kMaxChangelogPage);
  Page out;
  out.end = true;
  Result<void> bad;
  if (after == std::numeric_limits<uint64_t>::max()) return out;
  View view(journal_.store(), Tier::kFull);
  NACRE_CHECK_OK(view.scan(Family::kChangelog, changelog_key(after + 1), "", [&](std::string_view key, std::string_view value) {
    auto sequence = parse_changelog_key(key);
    auto entry = decode_record<schema::ChangelogRecordT>(value);
    if (!sequence || !entry) {
      bad = Err(Errc::kCorrupt, "a changelog entry is damaged: run nacre fsck");
      return false;
    }
    if (out.entries.size() == limit) {
      out.end = false;
      return false;
    }
    const uint64_t expected = (out.entries.empty() ? after : out.entries.back().first) + 1;
    if (*sequence != expected && !out.entries.empty()) {  // a gap inside the page begins the next one
      out.end = false;
      return false;
    }
    if (out.entries.empty()) out.gap_before = *sequence - expected;
    out.entries.emplace_back(*sequence, std::move(*entry));
    return true;
  }));
  if (!bad) return std::unexpected(std::move(bad).error());
  NACRE_CHECK_OK(journal_.sync_now());
  return out;
}

/// The first entry that is not older than `time`; range.last if all but that are. Entries are numbered without gaps since the last
/// restore, and their times rise but for a step of the clock, so a search by halves finds it.
Result<uint64_t> Changelog::first_since(Range range, Nanos time) const {
  View view(journal_.store(), Tier::kFull);
  uint64_t low = range.first, high = range.last;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    uint64_t found = 0;
    bool old = true;
    NACRE_CHECK_OK(view.scan(Family::kChangelog, changelog_key(middle), "", [&](std::string_view key, std::string_view value) {
      found = parse_changelog_key(key).value_or(high);
      auto entry = decode_record<schema::ChangelogRecordT>(value);
      old = !entry || entry->time < time;
      return false;
    }));
    if (old && found != 0) low = std::min(std::max(found, middle) + 1, high);
    else high = middle;
  }
  return low;
}

Result<void> Changelog::prune() {
  NACRE_TRY(Range range, this->range());
  if (range.first == 0 || range.first >= range.last) return {};
  NACRE_TRY(uint64_t keep, first_since(range, options_.clock->real() - options_.age));
  NACRE_TRY(auto known, readers());
  uint64_t cleared = known.empty() ? 0 : range.last;
  for (const auto& r : known) cleared = std::min(cleared, r.cleared);
  keep = std::min(std::max(keep, cleared + 1), range.last);
  if (keep <= range.first) return {};
  Batch batch;
  batch.del_range(Family::kChangelog, changelog_key(0), changelog_key(keep));
  return commit_row(journal_, std::move(batch));
}

}  // namespace nacre::mds
