// SPDX-License-Identifier: Apache-2.0
// The changelog as its readers see it. The journal writes an entry with each operation (journal.h) and bounds their number; here
// are the readers, the bound by age, and pages of entries. An entry goes when all registered readers have cleared it, or when a
// bound says so: a slow reader holds nothing back, it is told how many entries it has lost. The newest entry always stays, so
// that numbers go on after a restart. Blocking: on workers. Thread-safe.
#pragma once
#include <mutex>
#include <vector>

#include "metadata/store/journal.h"

namespace nacre::mds {

inline constexpr size_t kMaxChangelogReaders = 64;
inline constexpr size_t kMaxReaderName = 64;           ///< bytes
inline constexpr size_t kMaxChangelogPage = 1000;      ///< with two names of 255 bytes each a page fits into a message
inline constexpr Nanos kChangelogPrune = 10 * kSecond;

class Changelog {
 public:
  struct Options {
    Nanos age = 7 * 24 * 3600 * kSecond;
    Clock* clock = &system_clock();
  };
  Changelog(Journal& journal, Options options) : journal_(journal), options_(options) {}

  /// A new reader, which begins behind the newest entry of now. Its number is never used again. Errors: kInval, kTooBig.
  Result<uint32_t> add_reader(std::string name);
  /// The reader needs nothing up to `sequence` (0 = up to the newest) any more. Errors: kNoEnt, kInval (beyond the newest).
  Result<void> clear(uint32_t reader, uint64_t sequence);
  Result<void> drop_reader(uint32_t reader);           ///< kNoEnt
  Result<std::vector<schema::ChangelogReaderRecordT>> readers() const;
  struct Range { uint64_t first = 0, last = 0; };      ///< 0, 0 = empty
  Result<Range> range() const;

  struct Page {
    std::vector<std::pair<uint64_t, schema::ChangelogRecordT>> entries;
    uint64_t gap_before = 0;                           ///< entries between `after` and the first of the page that are lost
    bool end = false;
  };
  /// Entries after `after` (0 = after what the reader has cleared), at most `limit`. Only such that are on disk: what was told
  /// can't be taken back by a power loss. Errors: kNoEnt.
  Result<Page> read(uint32_t reader, uint64_t after, size_t limit);
  /// Applies the bound by age, and drops what all readers have cleared. Call now and then.
  Result<void> prune();

 private:
  Result<schema::ChangelogReaderRecordT> reader(uint32_t number) const;
  Result<void> put(const schema::ChangelogReaderRecordT& record);
  Result<uint64_t> first_since(Range range, Nanos time) const;
  Journal& journal_;
  Options options_;
  std::mutex mutex_;  ///< readers' rows
};

}  // namespace nacre::mds
