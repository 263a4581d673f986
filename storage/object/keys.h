// SPDX-License-Identifier: Apache-2.0
// Every key of an OST's index. Numbers are big-endian, so that byte order is number order and a range means something.
//   object     object(16)                       ObjectRecord
//   chunk      object(16) chunk(8)              ChunkRecord; chunk = object-local offset / 1 MiB
//   undo       txg(8) object(16) chunk(8)       UndoRecord: the chunk before this unsynced txg touched it
//   tombstone  object(16)                       TombstoneRecord
//   fence      session(8)                       FenceRecord
//   epoch      fileset(4)                       EpochRecord
//   super      names below                      OstSuper, RangeRecord, AllocatorRecord
// object = inode(8) generation(4) component(2) stripe(2).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace nacre::storage {

enum class Family : uint8_t { kSuper, kObject, kChunk, kUndo, kTombstone, kFence, kEpoch };
inline constexpr size_t kFamilies = 7;

/// A key of at most N bytes, built left to right without an allocation.
template <size_t N>
class Key {
 public:
  std::string_view view() const { return {bytes_, size_}; }
  operator std::string_view() const { return view(); }  // NOLINT: a key is its bytes
  template <class T>
  Key& add(T number) {
    for (size_t i = sizeof(T); i-- > 0;) bytes_[size_++] = static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
    return *this;
  }
  Key& add(const ObjectId& o) { return add(o.ino.v).add(o.generation.v).add(o.component).add(o.stripe); }

 private:
  char bytes_[N];
  size_t size_ = 0;
};

inline constexpr size_t kObjectKey = 16, kChunkKey = 24, kUndoKey = 32;

inline Key<kObjectKey> object_key(const ObjectId& o) { return Key<kObjectKey>().add(o); }
inline Key<kChunkKey> chunk_key(const ObjectId& o, uint64_t chunk) { return Key<kChunkKey>().add(o).add(chunk); }
inline Key<kUndoKey> undo_key(uint64_t txg, const ObjectId& o, uint64_t chunk) { return Key<kUndoKey>().add(txg).add(o).add(chunk); }
inline Key<8> undo_prefix(uint64_t txg) { return Key<8>().add(txg); }
inline Key<8> fence_key(SessionId s) { return Key<8>().add(s.v); }
inline Key<4> epoch_key(FilesetId f) { return Key<4>().add(f.v); }

inline constexpr std::string_view kSuperKey = "super";            ///< OstSuper
inline constexpr std::string_view kMaxInoKey = "max_ino";         ///< RangeRecord
inline constexpr std::string_view kMaxCommandKey = "max_command"; ///< RangeRecord
inline constexpr std::string_view kMaxSessionKey = "max_session"; ///< RangeRecord, in steps of kSessionsPerMark
inline constexpr uint64_t kSessionsPerMark = 1024;                ///< so a new session costs a row only now and then
inline constexpr std::string_view kAllocatorPrefix = "allocator/", kAllocatorEnd = "allocator0";  ///< '0' follows '/'
inline std::string allocator_key(uint32_t part) { return std::string(kAllocatorPrefix) + std::string(Key<4>().add(part).view()); }

// Reading keys back. The caller has checked nothing: a wrong size gives false.
template <class T>
T read_number(std::string_view key, size_t at) {
  uint64_t n = 0;
  for (size_t i = 0; i < sizeof(T); ++i) n = n << 8 | static_cast<uint8_t>(key[at + i]);
  return static_cast<T>(n);
}
inline ObjectId read_object(std::string_view key, size_t at) {
  return {Ino(read_number<uint64_t>(key, at)), Generation(read_number<uint32_t>(key, at + 8)), read_number<uint16_t>(key, at + 12),
          read_number<uint16_t>(key, at + 14)};
}
inline bool parse_object_key(std::string_view key, ObjectId& object) {
  if (key.size() != kObjectKey) return false;
  object = read_object(key, 0);
  return true;
}
inline bool parse_chunk_key(std::string_view key, ObjectId& object, uint64_t& chunk) {
  if (key.size() != kChunkKey) return false;
  object = read_object(key, 0);
  chunk = read_number<uint64_t>(key, kObjectKey);
  return true;
}
inline bool parse_undo_key(std::string_view key, uint64_t& txg, ObjectId& object, uint64_t& chunk) {
  if (key.size() != kUndoKey) return false;
  txg = read_number<uint64_t>(key, 0);
  object = read_object(key, 8);
  chunk = read_number<uint64_t>(key, 24);
  return true;
}

}  // namespace nacre::storage
