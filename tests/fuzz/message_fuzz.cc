// SPDX-License-Identifier: Apache-2.0
// Message bodies: each method's request and reply type decodes any bytes to a message or an error, and what decodes encodes
// again to something that decodes. Layouts that arrive go through validation and striping arithmetic as they would in use.
#include <cstdlib>

#include "common/base/units.h"
#include "common/layout/layout.h"
#include "common/rpc/peer.h"

using namespace nacre;

namespace {
template <class T>
void round_trip(std::span<const uint8_t> body) {
  auto m = decode<T>(body);
  if (m && !decode<T>(encode(*m))) std::abort();
}

void use_layout(const schema::LayoutT& layout) {
  if (!layout::validate(layout)) return;
  (void)layout::used_objects(layout, Ino(7));
  if (auto pieces = layout::split(layout, 1'000'001, 3 * MiB, kMaxIo)) {
    uint64_t total = 0;
    for (const auto& p : *pieces) total += p.length;
    if (total > 3 * MiB) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint16_t method = data[0];
  const bool reply = data[1] & 1;
  std::span<const uint8_t> body(data + 2, size - 2);
  switch (method) {
#define NACRE_METHOD(name, number, req, rep, flags) \
  case number:                                      \
    if (reply) round_trip<wire::rep##T>(body);      \
    else round_trip<wire::req##T>(body);            \
    break;
#include "common/rpc/methods.def"
#undef NACRE_METHOD
    default: break;
  }
  if (auto m = decode<wire::LayoutReplyT>(body); m && m->layout) use_layout(*m->layout);
  if (auto m = decode<wire::LayoutSetRequestT>(body); m && m->layout) use_layout(*m->layout);
  return 0;
}
