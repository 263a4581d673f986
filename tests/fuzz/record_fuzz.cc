// SPDX-License-Identifier: Apache-2.0
// Stored records and superblocks: damaged bytes give kCorrupt or kVersion, never a crash, and what decodes encodes again.
#include <cstdlib>

#include "common/schema/codec.h"

using namespace nacre;

namespace {
template <class T>
void round_trip(std::string_view value) {
  auto r = decode_record<T>(value);
  if (r) {
    if (!decode_record<T>(encode_record(*r))) std::abort();
  } else if (r.error().code != Errc::kCorrupt && r.error().code != Errc::kVersion) {
    std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  std::string_view value(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 22) {
    case 0: round_trip<schema::InodeRecordT>(value); break;
    case 1: round_trip<schema::DentryRecordT>(value); break;
    case 2: round_trip<schema::LinkRecordT>(value); break;
    case 3: round_trip<schema::XattrRecordT>(value); break;
    case 4: round_trip<schema::FilesetRecordT>(value); break;
    case 5: round_trip<schema::UsageRecordT>(value); break;
    case 6: round_trip<schema::OwedRecordT>(value); break;
    case 7: round_trip<schema::SessionRecordT>(value); break;
    case 8: round_trip<schema::ReplyRecordT>(value); break;
    case 9: round_trip<schema::OpenRecordT>(value); break;
    case 10: round_trip<schema::RangeRecordT>(value); break;
    case 11: round_trip<schema::MetaSuperT>(value); break;
    case 12: round_trip<schema::OstRecordT>(value); break;
    case 13: round_trip<schema::ChangelogRecordT>(value); break;
    case 14: round_trip<schema::ChunkRecordT>(value); break;
    case 15: round_trip<schema::ObjectRecordT>(value); break;
    case 16: round_trip<schema::UndoRecordT>(value); break;
    case 17: round_trip<schema::TombstoneRecordT>(value); break;
    case 18: round_trip<schema::FenceRecordT>(value); break;
    case 19: round_trip<schema::EpochRecordT>(value); break;
    case 20: round_trip<schema::OstSuperT>(value); break;
    case 21: round_trip<schema::AllocatorRecordT>(value); break;
  }
  return 0;
}
