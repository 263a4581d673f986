// SPDX-License-Identifier: Apache-2.0
// docs/configuration.md, made from keys.def and settings.def. A unit test compares the committed file with this text.
#include <fmt/format.h>

#include "common/config/settings_table.h"

namespace nacre::config {
namespace {
constexpr std::string_view kHead = R"(# Configuration

<!-- Made by nacre_config_doc from common/config/keys.def and common/config/settings.def: change those, then run
     `nacre_config_doc > docs/configuration.md`. -->

A cluster is described by one TOML file, the cluster file, that every server and administrator's command reads at its
start. Commands look for it in this order: what `--cluster` names (the file, or a directory that holds `cluster.toml`), the
environment variable `NACRE_CLUSTER`, `/etc/nacre/cluster.toml`. Relative paths in it are relative to the directory of the
file. `configs/single-node.toml` is an example; `nacre cluster init` writes a complete file.

- Sizes are text with a unit (`"64KiB"`, `"1.5TiB"`; `K` `M` `G` `T`, `KB` and `KiB` are all binary) or a number of bytes.
- Durations are text with a unit (`"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"`) or a number of milliseconds.
- A key or section that Nacre doesn't know is an error that names the nearest known one; nothing is skipped silently.
- Two rules bind settings to each other: `lease.keepalive` is at most half of `lease.term`, and `oss.heartbeat` at most a third
  of `mds.ost_timeout`. `layout.stripe_size` and `layout.small` are multiples of 64 KiB.
- The column "takes effect" says when a change takes effect: `restart` = when the processes that use it start again.

)";

std::string intro(std::string_view section) {
  if (section == "cluster") return "Who the cluster is.";
  if (section == "mds") return "The metadata server: one `[mds]` section in this version.";
  if (section == "ost") return "One `[[ost]]` section per storage target.";
  if (section == "lease") return "How long clients may rely on what they were told.";
  if (section == "oss") return "All storage targets.";
  if (section == "client") return "Mounts.";
  if (section == "layout") return "Striping of files in directories without a layout of their own.";
  if (section == "rpc") return "Connections and threads of all programs.";
  return "What programs log.";
}

std::string code(std::string_view written) { return fmt::format("`{}`", written); }

/// A '|' would end the cell.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}
}  // namespace

std::string configuration_document() {
  std::string out(kHead);
  const Settings defaults;
  for (std::string_view section : section_names()) {
    out += fmt::format("## {}\n\n{}\n\n", section == "ost" ? "[[ost]]" : fmt::format("[{}]", section), intro(section));
    bool head = false;
    for (const KeyRow& k : key_rows()) {
      if (k.section != section) continue;
      if (!head) out += "| key | type | default | meaning |\n|---|---|---|---|\n";
      head = true;
      const bool literal = k.presence.starts_with('"') || k.presence == "0";
      out += fmt::format("| `{}` | {} | {} | {} |\n", k.name, k.type, literal ? code(k.presence) : cell(k.presence), cell(k.sentence));
    }
    if (head) out += "\n";
    head = false;
    for (const SettingRow& r : setting_rows()) {
      if (r.section != section) continue;
      if (!head) out += "| setting | default | takes effect | allowed | meaning |\n|---|---|---|---|---|\n";
      head = true;
      out += fmt::format("| `{}` | {} | {} | {} | {} |\n", r.name, code(written(r, defaults)), r.live, cell(allowed(r)), cell(r.sentence));
    }
    if (head) out += "\n";
  }
  out.pop_back();
  return out;
}
}  // namespace nacre::config
