// SPDX-License-Identifier: Apache-2.0
// One operation in progress: who asked, how long it may wait, and what is said when it waits long.
// An interrupt takes effect only when the servers don't answer within kInterruptGrace: programs that live with signals
// (timers, Go's preemption) must not see EINTR from a mkdir that takes a millisecond. Lock waits react at once.
// Waits is the list of everything that waits for a server; it is scanned for warnings and for `nacre client status`.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/core/filesystem.h"

namespace nacre::client {

class Core;

inline constexpr Nanos kInterruptGrace = 1 * kSecond;
inline constexpr Nanos kPauseMin = 10 * kMillisecond, kPauseMax = 500 * kMillisecond;  ///< between two tries of a request
inline constexpr size_t kMaxGroups = 65536;           ///< NGROUPS_MAX
inline constexpr Nanos kLookAround = 1 * kSecond;  ///< waits for a connection look this often whether they still make sense

class Op {
 public:
  Op(std::shared_ptr<Core> core, const char* name, Caller caller);
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  Core& core() const { return *core_; }
  const char* name() const { return name_; }
  Caller& caller() { return caller_; }
  Nanos deadline() const { return deadline_; }          ///< boot time; the soft limit, or kForever
  void unlimited() { deadline_ = kForever; }            ///< background work: no soft limit
  void limit(Nanos deadline) { deadline_ = std::min(deadline_, deadline); }
  /// The cancel that waits get: the caller's, after the grace.
  static CancelPtr cancel(const std::shared_ptr<Op>& op) { return op->caller_.cancel ? CancelPtr(op, &op->slow_) : nullptr; }
  bool cancelled() const { return slow_.fired(); }
  /// The caller's supplementary groups, read at most once.
  Result<std::vector<uint32_t>> groups();
  bool groups_read() const { return groups_.has_value(); }
  /// The error to end with when `deadline()` has passed while waiting for `server`.
  Error gave_up(std::string_view server) const;

 private:
  friend std::shared_ptr<Op> make_op(std::shared_ptr<Core>, const char*, Caller);
  std::shared_ptr<Core> core_;
  const char* name_;
  Caller caller_;
  Nanos deadline_ = kForever;
  Cancel slow_;
  uint64_t token_ = 0;
  std::optional<std::vector<uint32_t>> groups_;
};
using OpPtr = std::shared_ptr<Op>;
OpPtr make_op(std::shared_ptr<Core> core, const char* name, Caller caller);

/// Sleeps before try number `attempt` (from 1), with jitter. Errors: the cancel's, gave_up(server), kShutdown.
Task<Result<void>> pause_before_retry(OpPtr op, std::string_view server, uint32_t attempt);
/// The request may succeed when simply sent again.
bool is_transient(Errc code);

class Waits {
 public:
  explicit Waits(size_t loops) : shards_(std::max<size_t>(loops, 1)) {}

  /// In the list from construction to destruction. `server` must outlive it. Loop thread.
  class Entry {
   public:
    Entry(Waits& waits, const char* op, std::string_view server, Nanos since);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
   private:
    friend class Waits;
    size_t shard_;
    Waits& waits_;
    const char* op_;
    std::string_view server_;
    Nanos since_;
    bool warned_ = false;
    Entry* prev_ = nullptr;
    Entry* next_ = nullptr;
  };

  struct Oldest { Nanos age = 0; std::string text; uint64_t count = 0; };
  Oldest oldest(Nanos now) const;
  struct Waiting { Nanos age = 0; std::string operation, server; };
  /// The `most` that have waited longest, oldest first.
  std::vector<Waiting> list(Nanos now, size_t most) const;
  /// Logs each wait that is older than `warn_after`, once. Returns how many were logged.
  size_t warn(Nanos now, Nanos warn_after);

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    Entry* head = nullptr;
    uint64_t count = 0;
  };
  std::vector<Shard> shards_;
};

}  // namespace nacre::client
