// SPDX-License-Identifier: Apache-2.0
// The cluster file (TOML): which servers exist, where they listen and keep their data, and every setting with its range.
// A setting is one row of common/config/settings.def; parser, --dump-config, configs/*.toml and docs/configuration.md derive
// from it. Unknown keys are errors that name the nearest key. Read once at start; immutable afterwards.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/wire/capability.h"

namespace nacre::config {

/// All settings, with defaults from settings.def: NACRE_SETTING(section, name, type, default, unit, min, max, live, "sentence").
/// type is one of u64 (sizes in bytes, counts), ms (durations in milliseconds), text, flag.
struct Settings {
#define NACRE_SETTING_u64(section, name, def) uint64_t section##_##name = def;
#define NACRE_SETTING_ms(section, name, def) uint64_t section##_##name = def;
#define NACRE_SETTING_text(section, name, def) std::string section##_##name = def;
#define NACRE_SETTING_flag(section, name, def) bool section##_##name = def;
#define NACRE_SETTING(section, name, type, def, unit, min, max, live, doc) NACRE_SETTING_##type(section, name, def)
#include "common/config/settings.def"
#undef NACRE_SETTING
#undef NACRE_SETTING_u64
#undef NACRE_SETTING_ms
#undef NACRE_SETTING_text
#undef NACRE_SETTING_flag
};

struct MdsServer { std::string host, address, data; };
struct OstServer { uint32_t id = 0; std::string host, address, data; std::vector<std::string> pools; uint64_t size = 0; };  ///< size 0 = chosen at format

struct Cluster {
  std::string file;                    ///< absolute path of the cluster file
  std::string name;
  std::array<uint8_t, 16> id{};
  std::string key_file;                ///< absolute
  std::vector<MdsServer> mds;          ///< exactly one in this version
  std::vector<OstServer> osts;
  Settings settings;
  std::string run_dir;                 ///< pid files, logs: [cluster] run, default DIR/run beside the file
};

/// Finds the file: `named` (a file, or a directory with cluster.toml), else NACRE_CLUSTER, else /etc/nacre/cluster.toml.
Result<std::string> find_cluster_file(const std::string& named);
/// Relative paths are relative to the file. Errors: kConfig with file, line, key, and what to write instead.
Result<Cluster> load_cluster(const std::string& file);
Result<Cluster> parse_cluster(std::string_view toml, const std::string& file_name);
std::string dump_cluster(const Cluster& cluster);  ///< TOML that parses to the same

std::string format_uuid(std::span<const uint8_t> id);          ///< 16 bytes as 8-4-4-4-12
Result<std::array<uint8_t, 16>> parse_uuid(std::string_view);

}  // namespace nacre::config
