// SPDX-License-Identifier: Apache-2.0
// Bodies of codec.h's templates, for codec_messages_*.cc and codec_records.cc, which instantiate them for the types of types.def.
#pragma once
#include "common/schema/codec.h"

namespace nacre {

namespace codec_detail {
inline flatbuffers::FlatBufferBuilder& builder() {
  thread_local flatbuffers::FlatBufferBuilder b(4096);
  b.Clear();
  return b;
}
}  // namespace codec_detail

template <class T>
Bytes encode(const T& native) {
  auto& b = codec_detail::builder();
  b.Finish(T::TableType::Pack(b, &native));
  return Bytes(b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
}

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

template <class T>
Result<const typename T::TableType*> view_record(std::string_view value) {
  if (value.empty() || value[0] == 0) return Err(Errc::kCorrupt, value.empty() ? "an empty record" : "a record of format 0, which there never was");
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

}  // namespace nacre

#define NACRE_INSTANTIATE_MESSAGE(T)                                                          \
  template Bytes encode<T>(const T&);                                                          \
  template Result<const typename T::TableType*> view<T>(std::span<const uint8_t>);             \
  template Result<T> decode<T>(std::span<const uint8_t>);
#define NACRE_INSTANTIATE_RECORD(T)                                                           \
  template std::string encode_record<T>(const T&);                                             \
  template Result<const typename T::TableType*> view_record<T>(std::string_view);              \
  template Result<T> decode_record<T>(std::string_view);
