// SPDX-License-Identifier: Apache-2.0
#include "common/log/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace nacre::log {
namespace {
spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = [] {
    auto l = std::make_shared<spdlog::logger>("nacre", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    l->set_level(spdlog::level::warn);
    return l;
  }();
  return instance;
}
}  // namespace

void open(std::string_view program, const std::string& path, Level level) {
  spdlog::sink_ptr sink;
  if (path.empty()) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  else sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  auto l = std::make_shared<spdlog::logger>(std::string(program), sink);
  l->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %L %n[%P]: %v", spdlog::pattern_time_type::utc);
  l->set_level(to_spdlog(level));
  l->flush_on(spdlog::level::info);
  logger() = std::move(l);
}
void set_level(Level level) { logger()->set_level(to_spdlog(level)); }
bool enabled(Level level) { return logger()->should_log(to_spdlog(level)); }
void write(Level level, std::string_view text) { logger()->log(to_spdlog(level), text); }
}  // namespace nacre::log
