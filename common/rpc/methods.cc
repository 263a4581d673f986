// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "common/rpc/peer.h"

namespace nacre::rpc {
namespace {
constexpr size_t kNumbers = 256;  ///< method numbers lie below
struct Row { const char* name = nullptr; uint32_t flags = 0; };

constexpr std::array<Row, kNumbers> make_rows() {
  std::array<Row, kNumbers> rows{};
#define NACRE_METHOD(name, number, req, rep, flags) rows[number] = Row{#name, flags};
#include "common/rpc/methods.def"
#undef NACRE_METHOD
  return rows;
}
constexpr std::array<Row, kNumbers> kRows = make_rows();
}  // namespace

const char* method_name(uint16_t method) { return method < kNumbers && kRows[method].name ? kRows[method].name : "unknown"; }
uint32_t method_flags(uint16_t method) { return method < kNumbers ? kRows[method].flags : 0; }

}  // namespace nacre::rpc
