// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes every message (namespace wire) and record (namespace schema) through FlatBuffers' object API.
// Nothing is read before flatbuffers::Verifier accepted it. Thread-safe (no state but a thread-local builder).
// The templates are compiled once for each type of types.def (codec_impl.h): packing inlined into every user cost more than half
// of all compile time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "records_generated.h"
#include "types_generated.h"
#include "wire_generated.h"

namespace nacre {

using Bytes = std::vector<uint8_t>;

/// First byte of every stored value. A record whose meaning changes incompatibly gets a new number and a conversion.
inline constexpr uint8_t kRecordFormat = 1;
inline constexpr uint32_t kMaxTables = 200'000;  ///< a readdir page of 1 MiB has at most 2 tables of 40 bytes each per entry
inline constexpr uint32_t kMaxDepth = 16;

/// T: a native type such as wire::LookupRequestT.
template <class T>
Bytes encode(const T& native);

/// A verified view into `bytes` (which must outlive it and be 8-byte aligned for 64-bit fields where the CPU needs it; x86-64 and ARMv8 don't).
/// T: a native type. Errors: kProtocol.
template <class T>
Result<const typename T::TableType*> view(std::span<const uint8_t> bytes);

template <class T>
Result<T> decode(std::span<const uint8_t> bytes);

/// Stored form: format byte, then the buffer.
template <class T>
std::string encode_record(const T& native);

/// Errors: kVersion for a newer format, kCorrupt for bytes that fail verification.
template <class T>
Result<const typename T::TableType*> view_record(std::string_view value);

template <class T>
Result<T> decode_record(std::string_view value);

inline std::string_view as_text(const std::vector<uint8_t>& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
inline std::vector<uint8_t> as_bytes(std::string_view s) { return {s.begin(), s.end()}; }

inline ObjectId to_id(const schema::ObjectRef& r) { return {Ino(r.ino()), Generation(r.generation()), r.component(), r.stripe()}; }
inline schema::ObjectRef to_ref(const ObjectId& o) { return schema::ObjectRef(o.ino.v, o.generation.v, o.component, o.stripe); }

}  // namespace nacre
