// SPDX-License-Identifier: Apache-2.0
// Logging behind one door. Lines go to stderr or a file: time, level, program, text. Thread-safe. Programs call log::open once.
#pragma once
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace nacre::log {

enum class Level { kDebug, kInfo, kWarn, kError };
void open(std::string_view program, const std::string& path, Level level);  ///< path empty = stderr
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view text);

template <class... A> void debug(fmt::format_string<A...> f, A&&... a) { if (enabled(Level::kDebug)) write(Level::kDebug, fmt::format(f, std::forward<A>(a)...)); }
template <class... A> void info(fmt::format_string<A...> f, A&&... a) { if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(f, std::forward<A>(a)...)); }
template <class... A> void warn(fmt::format_string<A...> f, A&&... a) { if (enabled(Level::kWarn)) write(Level::kWarn, fmt::format(f, std::forward<A>(a)...)); }
template <class... A> void error(fmt::format_string<A...> f, A&&... a) { if (enabled(Level::kError)) write(Level::kError, fmt::format(f, std::forward<A>(a)...)); }

}  // namespace nacre::log
