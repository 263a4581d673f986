// SPDX-License-Identifier: Apache-2.0
// Exactly once: (session, slot, sequence). The last reply of a slot is stored with the change it belongs to; a repeat gets it,
// a repeat that overtakes its own first arrival waits for it, an older sequence is an error. Thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/runtime/sync.h"
#include "metadata/ops/op.h"

namespace nacre::mds {

class Slots {
 public:
  explicit Slots(Store& store);
  ~Slots();

  /// Marks the slot as busy until it is destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& o) noexcept : stored(std::move(o.stored)), slots_(std::exchange(o.slots_, nullptr)), identity_(o.identity_) {}
    Ticket& operator=(Ticket&& o) noexcept;
    ~Ticket();
    std::optional<schema::ReplyRecordT> stored;  ///< set: answer with this, run nothing

   private:
    friend class Slots;
    Slots* slots_ = nullptr;
    Identity identity_;
  };
  /// Errors: kProtocol (an older sequence, or the same one with another method). Unslotted identities always pass.
  Task<Result<Ticket>> enter(Identity identity);
  /// Drops what memory knows of a session (its reply rows are the caller's to delete).
  void forget(SessionId session);

 private:
  struct Shard;
  Shard& shard(const Identity& identity);
  void leave(const Identity& identity);
  Store& store_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace nacre::mds
