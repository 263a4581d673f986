// SPDX-License-Identifier: Apache-2.0
#include "common/base/error.h"

namespace nacre {
namespace {
struct Row { Errc code; int err; bool retryable; std::string_view text; std::string_view name; };
constexpr Row kRows[] = {
#define NACRE_ERROR(name, number, err, retryable, text) {Errc::name, err, retryable, text, #name},
#include "common/base/error_table.def"
#undef NACRE_ERROR
};
const Row* find(Errc code) {
  for (const Row& r : kRows)
    if (r.code == code) return &r;
  return nullptr;
}
}  // namespace

int to_errno(Errc code) { const Row* r = find(code); return r ? r->err : EIO; }
std::string_view text_of(Errc code) { const Row* r = find(code); return r ? r->text : "unknown error"; }
std::string_view name_of(Errc code) { const Row* r = find(code); return r ? r->name : "unknown"; }
bool is_retryable(Errc code) { const Row* r = find(code); return r && r->retryable; }

Errc from_errno(int err) {
  for (const Row& r : kRows)
    if (static_cast<uint16_t>(r.code) < 200 && r.err == err) return r.code;
  return Errc::kIo;
}

Errc from_wire(uint16_t number) {
  Errc code = static_cast<Errc>(number);
  return find(code) ? code : Errc::kProtocol;
}

std::string Error::message() const {
  std::string out(text_of(code));
  if (!detail.empty()) out.append(": ").append(detail);
  return out;
}
}  // namespace nacre
