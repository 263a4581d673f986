// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes every message (namespace wire) and record (namespace schema) through FlatBuffers' object API.
// Nothing is read before flatbuffers::Verifier accepted it. Thread-safe (no state but a thread-local builder).
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

namespace codec_detail {
inline flatbuffers::FlatBufferBuilder& builder() {
  thread_local flatbuffers::FlatBufferBuilder b(4096);
  b.Clear();
  return b;
}
}  // namespace codec_detail

/// T: a native type such as wire::LookupRequestT.
template <class T>
Bytes encode(const T& native) {
  auto& b = codec_detail::builder();
  b.Finish(T::TableType::Pack(b, &native));
  return Bytes(b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
}

/// A verified view into `bytes` (which must outlive it and be 8-byte aligned for 64-bit fields where the CPU needs it; x86-64 and ARMv8 don't).
/// T: a native type. Errors: kProtocol.
template <class T>
Result<const typename T::TableType*> view(std::span<const uint8_t> bytes) {
  flatbuffers::Verifier v(bytes.data(), bytes.size(), kMaxDepth, kMaxTables, /*check_alignment=*/false);
  if (!v.VerifyBuffer<typename T::TableType>(nullptr)) return Err(Errc::kProtocol, "a message body failed verification");
  return flatbuffers::GetRoot<typename T::TableType>(bytes.data());
}

template <class T>
Result<T> decode(std::span<const uint8_t> bytes) {
  auto root = view<T>(bytes);
  if (!root) return std::unexpected(std::move(root).error());
  T out;
  (*root)->UnPackTo(&out);
  return out;
}

/// Stored form: format byte, then the buffer.
template <class T>
std::string encode_record(const T& native) {
  auto& b = codec_detail::builder();
  b.Finish(T::TableType::Pack(b, &native));
  std::string out;
  out.reserve(1 + b.GetSize());
  out.push_back(static_cast<char>(kRecordFormat));
  out.append(reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize());
  return out;
}

/// Errors: kVersion for a newer format, kCorrupt for bytes that fail verification.
template <class T>
Result<const typename T::TableType*> view_record(std::string_view value) {
  if (value.empty()) return Err(Errc::kCorrupt, "an empty record");
  if (static_cast<uint8_t>(value[0]) > kRecordFormat)
    return Err(Errc::kVersion, "a record of format " + std::to_string(static_cast<uint8_t>(value[0])) + " was written by a newer version of Nacre");
  auto p = reinterpret_cast<const uint8_t*>(value.data()) + 1;
  flatbuffers::Verifier v(p, value.size() - 1, kMaxDepth, kMaxTables, false);
  if (!v.VerifyBuffer<typename T::TableType>(nullptr)) return Err(Errc::kCorrupt, "a stored record failed verification");
  return flatbuffers::GetRoot<typename T::TableType>(p);
}

template <class T>
Result<T> decode_record(std::string_view value) {
  auto root = view_record<T>(value);
  if (!root) return std::unexpected(std::move(root).error());
  T out;
  (*root)->UnPackTo(&out);
  return out;
}

inline std::string_view as_text(const std::vector<uint8_t>& b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }
inline std::vector<uint8_t> as_bytes(std::string_view s) { return {s.begin(), s.end()}; }

inline ObjectId to_id(const schema::ObjectRef& r) { return {Ino(r.ino()), Generation(r.generation()), r.component(), r.stripe()}; }
inline schema::ObjectRef to_ref(const ObjectId& o) { return schema::ObjectRef(o.ino.v, o.generation.v, o.component, o.stripe); }

}  // namespace nacre
