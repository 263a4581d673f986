// SPDX-License-Identifier: Apache-2.0
// docs/configuration.md is what settings.def and keys.def say (run from the repository root).
#include <fstream>

#include <gtest/gtest.h>

#include "common/config/settings_table.h"

namespace nacre::config {
namespace {

TEST(ConfigurationDocument, CommittedFileIsCurrent) {
  std::ifstream f("docs/configuration.md");
  ASSERT_TRUE(f) << "run from the repository root";
  const std::string text((std::istreambuf_iterator<char>(f)), {});
  EXPECT_EQ(text, configuration_document()) << "run: nacre_config_doc > docs/configuration.md";
}

TEST(ConfigurationDocument, NamesEverySettingAndKey) {
  const std::string text = configuration_document();
  for (const SettingRow& r : setting_rows()) {
    EXPECT_NE(text.find("| `" + std::string(r.name) + "` |"), std::string::npos) << r.name;
    const auto sections = section_names();
    EXPECT_NE(std::find(sections.begin(), sections.end(), r.section), sections.end()) << r.section;
  }
  for (const KeyRow& k : key_rows()) EXPECT_NE(text.find("| `" + std::string(k.name) + "` |"), std::string::npos) << k.name;
}

TEST(SettingRows, DefaultsLieInTheirRange) {
  const Settings d;
  for (const SettingRow& r : setting_rows()) {
    if (auto* n = std::get_if<uint64_t Settings::*>(&r.field)) {
      EXPECT_GE(d.*(*n), r.min) << r.name;
      EXPECT_LE(d.*(*n), r.max) << r.name;
    }
    if (auto* t = std::get_if<std::string Settings::*>(&r.field); t && !r.words.empty()) {
      EXPECT_NE(std::find(r.words.begin(), r.words.end(), d.*(*t)), r.words.end()) << r.name;
    }
    EXPECT_TRUE(r.live == "restart" || r.live == "live") << r.name;
  }
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string_view> words{"txg_interval", "io", "uring", "heartbeat", "block_cache"};
  EXPECT_EQ(nearest("txg_intervall", words), "txg_interval");
  EXPECT_EQ(nearest("hartbeat", words), "heartbeat");
  EXPECT_EQ(nearest("uirng", words), "uring");
  EXPECT_EQ(nearest("completely_different_name", words), "");
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

}  // namespace
}  // namespace nacre::config
