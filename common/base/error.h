// SPDX-License-Identifier: Apache-2.0
// Error codes and Result<T>. Everything about a code (errno, text, retryable) derives from error_table.def.
// An Error carries a code and, where a human will read it, a sentence: what happened, to which object, what to do.
#pragma once
#include <cerrno>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace nacre {

enum class Errc : uint16_t {
#define NACRE_ERROR(name, number, err, retryable, text) name = number,
#include "common/base/error_table.def"
#undef NACRE_ERROR
};

int to_errno(Errc code);                ///< positive errno for applications; EIO for a number this build doesn't know
std::string_view text_of(Errc code);    ///< short lower-case text
std::string_view name_of(Errc code);    ///< "kNoEnt"
bool is_retryable(Errc code);
Errc from_errno(int err);               ///< err > 0; kIo where the table has no own code
Errc from_wire(uint16_t number);        ///< kProtocol for a number this build doesn't know

struct [[nodiscard]] Error {
  Errc code = Errc::kIo;
  std::string detail;  ///< may be empty; then text_of(code) is all there is to say

  Error() = default;
  Error(Errc c) : code(c) {}  // NOLINT: implicit on purpose, so that `return Errc::kNoEnt` reads well through Err()
  Error(Errc c, std::string d) : code(c), detail(std::move(d)) {}
  std::string message() const;  ///< "text" or "text: detail"
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Err(Errc code) { return std::unexpected<Error>(Error(code)); }
inline std::unexpected<Error> Err(Errc code, std::string detail) { return std::unexpected<Error>(Error(code, std::move(detail))); }
inline std::unexpected<Error> Err(Error e) { return std::unexpected<Error>(std::move(e)); }

}  // namespace nacre

// Leaves the function with the error of `expr`. NACRE_TRY(x, expr) binds the value; the CO_ forms are for coroutines.
#define NACRE_CAT2(a, b) a##b
#define NACRE_CAT(a, b) NACRE_CAT2(a, b)
#define NACRE_TRY_IMPL(tmp, var, expr, ret) \
  auto tmp = (expr);                        \
  if (!tmp) ret std::unexpected(std::move(tmp).error()); \
  var = std::move(*tmp)
#define NACRE_TRY(var, expr) NACRE_TRY_IMPL(NACRE_CAT(try_, __LINE__), var, expr, return)
#define CO_TRY(var, expr) NACRE_TRY_IMPL(NACRE_CAT(try_, __LINE__), var, expr, co_return)
// A check is one statement, so that one that stands between `if` and `else` doesn't take that else away.
#define NACRE_CHECK_OK_IMPL(tmp, expr, ret)                               \
  do {                                                                    \
    if (auto tmp = (expr); !tmp) ret std::unexpected(std::move(tmp).error()); \
  } while (false)
#define NACRE_CHECK_OK(expr) NACRE_CHECK_OK_IMPL(NACRE_CAT(ok_, __LINE__), expr, return)
#define CO_CHECK_OK(expr) NACRE_CHECK_OK_IMPL(NACRE_CAT(ok_, __LINE__), expr, co_return)
