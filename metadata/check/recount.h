// SPDX-License-Identifier: Apache-2.0
// Recounts the usage counters from the inodes, page by page, in one snapshot that is kept between the pages: so what it finds is
// exact however busy the server is. One recount at a time; one that nobody goes on with is dropped after kRecountIdle, since its
// snapshot keeps old rows on disk. look() on workers; the rest anywhere.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "metadata/check/findings.h"

namespace nacre::mds::check {

inline constexpr Nanos kRecountIdle = 60 * kSecond;

/// A counter that is wrong by `bytes` and `inodes`.
struct UsageGap {
  FilesetId fileset;
  uint32_t uid = 0, gid = 0;
  int64_t bytes = 0, inodes = 0;            ///< to be added
  int64_t stored_bytes = 0, stored_inodes = 0;
};

class Recount {
 public:
  Recount(const Store& store, Clock& clock) : store_(store), clock_(clock) {}

  struct Page {
    uint64_t token = 0;                     ///< names the recount; give it back
    uint64_t rows = 0;
    bool end = false;
    std::vector<UsageGap> gaps;             ///< in the last page
  };
  /// The next `budget` inodes of recount `token`; 0, or one that is no more, begins a new one. Errors: kBusy, View's.
  Result<Page> look(uint64_t token, uint64_t budget);
  void drop_idle();

 private:
  using Cell = std::tuple<uint32_t, uint32_t, uint32_t>;
  struct State {
    explicit State(const Store& store) : snapshot(store) {}
    Snapshot snapshot;
    uint64_t token = 0;
    Ino next{1};
    Nanos used = 0;
    std::map<Cell, std::pair<int64_t, int64_t>> cells;
  };
  Result<std::shared_ptr<State>> take(uint64_t token);
  Result<std::vector<UsageGap>> compare(State& state) const;
  const Store& store_;
  Clock& clock_;
  std::mutex mutex_;
  std::shared_ptr<State> state_;            ///< null while a page is at work on it
  bool busy_ = false;
  uint64_t tokens_ = 0;
};

}  // namespace nacre::mds::check
