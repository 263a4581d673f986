// SPDX-License-Identifier: Apache-2.0
// Files whose data is on its way to other objects (docs/protocol.md, "A migration"). A mover, which is a client, fills the
// objects of a new generation while the file is in use; then the old objects are sealed, what has changed is copied again, and one
// commit makes the new layout the file's.
// Invariants: every layout whose objects must go if nothing else happens lies in a MigrationRecord: the new one until the commit,
// the old one from then until its objects are destroyed or no capability can name them. From the seal to the end of the switch
// nobody gets a right to write (moving()). A migration that a restart, an eviction, a cut or the time limit meets has not happened.
// Any loop; memory under one short mutex.
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "metadata/background/owed.h"
#include "metadata/leases/open_table.h"
#include "metadata/leases/sessions.h"
#include "metadata/ops/driver.h"
#include "metadata/targets/capabilities.h"
#include "metadata/targets/layout_policy.h"
#include "metadata/targets/objects.h"

namespace nacre::mds {

inline constexpr size_t kMaxMigrations = 1000;               ///< at once; a record and some KiB of memory each
inline constexpr Nanos kMigrationPoll = 200 * kMillisecond;
inline constexpr Nanos kMovedPatience = 20 * kSecond;        ///< of a request that waits for the end of one; then it is told to come back
inline constexpr Nanos kSwitchRetry = 500 * kMillisecond;
inline constexpr size_t kMaxAvoided = 1000;                  ///< targets of one request

class Migrations {
 public:
  struct Parts {
    Runtime& runtime;
    Services& services;
    OpenTable& opens;
    Objects& objects;
    OwedSender& owed;
    Registry& registry;
    Sessions& sessions;
    RangeAllocator& commands;
    OstChooser& chooser;
    Capabilities& capabilities;
    Nanos pause = 30 * kSecond;                              ///< from seal to commit at most
  };
  explicit Migrations(Parts parts) : p_(std::move(parts)) {}

  struct Wish {
    std::optional<schema::LayoutT> layout;                   ///< template; none = as the file's
    std::vector<uint32_t> avoid;                             ///< targets to leave; without a template a file that has none of them stays
  };
  /// Where a migration stands: token 0 = there is nothing to move.
  struct State {
    uint64_t token = 0;
    schema::InodeRecordT record;                             ///< with the layout to read
    schema::LayoutT target;
    wire::AttrT attr;
  };

  // --- the steps of a mover. Errors: kPerm, kInval, kBusy (another mover), kStale (this migration is over, begin anew), kRetryLater,
  // what targets answer.
  Task<Result<State>> begin(Driver& driver, OpContext& ctx, Ino ino, Wish wish);
  /// Is still under way; for a fresh capability.
  Task<Result<State>> look(Driver& driver, OpContext& ctx, Ino ino, uint64_t token);
  Task<Result<State>> seal(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, Nanos deadline);
  Task<Result<State>> commit(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, Nanos deadline);
  Task<Result<void>> give_up(Driver& driver, SessionId session, Ino ino, uint64_t token);

  // --- what others have to do with it
  bool moving(Ino ino) const;
  Task<Result<void>> wait(Ino ino);
  /// Inside an operation that holds the inode's lock: the migration is over, its new objects are owed. Nothing if there is none, or
  /// if it is committed already.
  Result<void> end(OpContext& ctx, const schema::InodeRecordT& record);
  /// Takes off seals that a migration has left behind.
  Task<Result<void>> unseal(Driver& driver, Ino ino);

  Result<void> load();
  Task<void> run(Driver& driver);                            ///< until the runtime stops; spawn once
  size_t size() const;

 private:
  enum class Stage : uint8_t { kCopying, kSealing, kSealed, kSwitching };
  struct Active {
    Stage stage = Stage::kCopying;
    SessionId session;                                       ///< none: of before a restart
    uint64_t token = 0;                                      ///< = generation of `target`
    schema::LayoutT target;                                  ///< of a switch: the old layout, whose objects go
    std::vector<uint32_t> avoid;
    std::map<OstId, uint64_t> incarnations;                  ///< of the source's targets at the begin
    CmdSeq seal;
    Glimpse sealed;                                          ///< the file's objects under the seal
    std::vector<wire::ObjectStat> stats;
    Nanos heard = 0, until = 0;                              ///< boot: of the mover; of the seal, or of capabilities for what was replaced
    bool driven = false;                                     ///< somebody finishes it
    std::vector<Signal> waiting;
  };
  Result<State> begin_op(OpContext& c, Ino ino, const Wish& wish);
  Result<bool> fill(schema::LayoutT& target, uint64_t size, const std::vector<uint32_t>& avoid);
  Result<void> check_targets(const std::vector<layout::StripeRef>& sources, std::map<OstId, uint64_t>& incarnations) const;
  Task<Result<State>> close_seal(Driver& driver, OpContext& ctx, Ino ino, uint64_t token, std::vector<layout::StripeRef> sources, std::vector<wire::ObjectStat> stats);
  Result<State> commit_op(OpContext& c, Ino ino, const Active& seen, const Glimpse& target);
  Task<void> finish_switch(Driver& driver, Ino ino, schema::LayoutT old, FilesetId fileset);
  Task<Result<void>> abort(Driver& driver, Ino ino, uint64_t token);
  static Task<void> abort_later(Migrations& self, Driver& driver, Ino ino, uint64_t token, std::string why);
  Task<Result<std::vector<wire::ObjectStat>>> command(uint8_t kind, const std::vector<layout::StripeRef>& objects, CmdSeq number, FilesetId fileset, uint64_t offset, Nanos deadline);
  Task<Result<CmdSeq>> number();

  std::optional<Active> find(Ino ino) const;
  Result<Active> mine(Ino ino, SessionId session, uint64_t token);
  void forget(OpContext& c, Ino ino);
  void change(Ino ino, const std::function<void(Active&)>& fn);

  Parts p_;
  mutable std::mutex mutex_;
  std::map<Ino, Active> active_;
  std::atomic<size_t> count_{0};                             ///< of active_: most requests need to know no more
};

}  // namespace nacre::mds
