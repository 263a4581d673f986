// SPDX-License-Identifier: Apache-2.0
// Where new data goes: the default layout, which storage targets a component gets, and how many of its stripes may hold an
// object. Choice is round robin, weighted by free space once targets differ noticeably; it skips targets that are down,
// inactive, draining or more than 95 % full while others are left. All arithmetic is pure; the chooser's memory is guarded, any
// thread.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/config/cluster.h"
#include "common/schema/codec.h"

namespace nacre::mds {

inline constexpr uint64_t kFullPercent = 95;        ///< a target that is fuller gets no new objects while others are left
inline constexpr uint64_t kEvenPercent = 20;        ///< free space that differs by less counts as even: plain round robin
inline constexpr uint16_t kFirstStripes = 8;        ///< stripes_used of a fresh component; doubled as the file grows (P1.16)

/// What files get whose directory says nothing: up to layout.small on one target, then wide_count.
schema::LayoutT default_layout(const config::Settings& settings);

/// A storage target as the choice sees it.
struct Candidate {
  OstId id;
  uint64_t capacity = 0, available = 0;  ///< bytes
  bool active = false;                   ///< neither inactive nor draining
  bool up = false;
  std::vector<std::string> pools;
};

class OstChooser {
 public:
  /// `count` different targets (0 = all that fit) of `pool` (empty = any), `first` at the head if it can be used (-1 = any).
  /// Fewer if there are fewer; down ones only if no other is left. Errors: kNoSpc if none may be used, kRetryLater
  /// if `candidates` is empty.
  Result<std::vector<OstId>> choose(const std::vector<Candidate>& candidates, size_t count, const std::string& pool, int32_t first);

 private:
  std::mutex mutex_;
  std::map<OstId, double> credit_;       ///< of targets that exist; one entry each
};

/// Makes [offset, offset + length) writable: instantiates the components it touches and raises stripes_used. length 0 = the
/// component that holds `offset`. True if the layout changed. Errors: kFBig (no component there), the chooser's.
using Choose = std::function<Result<std::vector<OstId>>(const schema::ComponentT&)>;
Result<bool> instantiate(schema::LayoutT& layout, uint64_t offset, uint64_t length, const Choose& choose);

/// Bit per instantiated component, as capabilities have it.
uint64_t component_bits(const schema::LayoutT& layout);

}  // namespace nacre::mds
