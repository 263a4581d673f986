// SPDX-License-Identifier: Apache-2.0
// What is under way, for the watchdog of a server: each request and each thing that a request waits for is in a list while it
// lasts, at the cost of one uncontended mutex. Nothing is formatted before it is old. Add and remove on one loop, look from any.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace nacre {

class Watch {
 public:
  explicit Watch(size_t loops) : shards_(std::max<size_t>(loops, 1)) {}

  /// In the list from construction to destruction.
  class Entry {
   public:
    Entry(Watch& watch, Nanos since);
    virtual ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    /// One line about it; called under the shard's mutex by whoever looks. The derived destructor must call leave() first.
    virtual std::string describe() const = 0;

   protected:
    void leave();

   private:
    friend class Watch;
    Watch& watch_;
    size_t shard_;
    Nanos since_, told_ = 0;
    Entry *prev_ = nullptr, *next_ = nullptr;
    bool listed_ = true;
  };

  struct Row { Nanos age = 0; std::string text; };
  /// Those older than `least`, oldest first, at most `most`.
  std::vector<Row> list(Nanos now, Nanos least, size_t most) const;
  /// The same, but each one only once per `again`.
  std::vector<Row> news(Nanos now, Nanos least, Nanos again, size_t most);
  size_t count() const;

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    Entry* head = nullptr;
    size_t count = 0;
  };
  std::vector<Row> collect(Nanos now, Nanos least, size_t most, const std::function<bool(Entry&)>& wanted) const;
  mutable std::vector<Shard> shards_;
};

/// An entry whose text is put together only when somebody looks.
template <class F>
class Watched final : public Watch::Entry {
 public:
  Watched(Watch& watch, Nanos since, F text) : Entry(watch, since), text_(std::move(text)) {}
  ~Watched() override { leave(); }
  std::string describe() const override { return text_(); }

 private:
  F text_;
};

}  // namespace nacre
