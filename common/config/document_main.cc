// SPDX-License-Identifier: Apache-2.0
// nacre_config_doc: prints docs/configuration.md.
#include <cstdio>

#include "common/config/settings_table.h"

int main() {
  const std::string text = nacre::config::configuration_document();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0 ? 0 : 1;
}
