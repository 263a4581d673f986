// SPDX-License-Identifier: Apache-2.0
// Striping arithmetic: which object holds which byte of a file. Pure functions over schema::LayoutT; no I/O, thread-safe.
// Object offsets are compact: stripe s of a component holds its pieces back to back (as in Lustre RAID0).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/schema/codec.h"

namespace nacre::layout {

inline constexpr uint32_t kMaxStripes = 2000;
inline constexpr size_t kMaxComponents = 32;

/// A run of file bytes that lie contiguously in one object.
struct Piece {
  uint16_t component = 0;
  uint16_t stripe = 0;
  OstId ost;
  uint64_t object_offset = 0;
  uint64_t file_offset = 0;
  uint64_t length = 0;
};

/// Splits [offset, offset + length) into pieces in file order, none longer than `max_piece`. Pieces of components that are not
/// instantiated are left out (reads of them are holes). Errors: kInval for a malformed layout.
Result<std::vector<Piece>> split(const schema::LayoutT& layout, uint64_t offset, uint64_t length, uint64_t max_piece);
/// True if every component that [offset, offset + length) touches is instantiated, with enough stripes_used.
bool is_instantiated(const schema::LayoutT& layout, uint64_t offset, uint64_t length);
/// Index of the component that holds `offset`; components.size() if none.
size_t component_at(const schema::LayoutT& layout, uint64_t offset);
/// File offset just past the last byte of an object of size `object_size`; 0 for size 0.
uint64_t file_end(const schema::ComponentT& component, uint16_t stripe, uint64_t object_size);
/// The object-local size of stripe `stripe` when the file is cut at `file_size`.
uint64_t object_end(const schema::ComponentT& component, uint16_t stripe, uint64_t file_size);
/// Object-local ranges of [offset, offset + length) in one stripe: first and one-past-last object offset.
struct ObjectRange { uint64_t begin = 0, end = 0; };
ObjectRange object_range(const schema::ComponentT& component, uint16_t stripe, uint64_t offset, uint64_t length);
/// Stripes that may have an object, over all instantiated components.
struct StripeRef { ObjectId object; OstId ost; };
std::vector<StripeRef> used_objects(const schema::LayoutT& layout, Ino ino);
/// Checks and normalises what a user asked for: ascending components from 0, sizes multiples of 64 KiB, counts in range.
/// Errors: kInval with a sentence that says what to do.
Result<void> validate(const schema::LayoutT& layout);

}  // namespace nacre::layout
