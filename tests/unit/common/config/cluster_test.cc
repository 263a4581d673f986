// SPDX-License-Identifier: Apache-2.0
// Cluster files: what is read, what is refused with which sentence, and that a dump parses to the same.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/cluster.h"
#include "common/config/settings_table.h"

namespace nacre::config {
namespace {
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kSmall = R"([mds]
address = "127.0.0.1:9000"
data = "mds"

[[ost]]
id = 0
address = "127.0.0.1:9010"
data = "ost0"
)";

Result<Cluster> parse(std::string_view text) { return parse_cluster(text, "c.toml"); }
/// The complaint about kSmall with `more` after it. Lines of `more` count from 9.
std::string complaint(std::string_view more) {
  auto c = parse(std::string(kSmall) + std::string(more));
  if (c) return "accepted";
  EXPECT_EQ(c.error().code, Errc::kConfig);
  return c.error().detail;
}

TEST(ParseCluster, SmallFileGetsDefaults) {
  auto c = parse(kSmall);
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->name, "nacre");
  EXPECT_EQ(c->key_file, "key");
  EXPECT_EQ(c->run_dir, "run");
  ASSERT_EQ(c->mds.size(), 1u);
  EXPECT_EQ(c->mds[0].host, "localhost");
  ASSERT_EQ(c->osts.size(), 1u);
  EXPECT_EQ(c->osts[0].size, 0u);
  EXPECT_EQ(c->settings.oss_txg_interval, Settings().oss_txg_interval);
}

TEST(ParseCluster, EveryKindOfValue) {
  auto c = parse(R"(
[cluster]
name = "lab-1"
id = "00112233-4455-6677-8899-aabbccddeeff"
key = "/etc/nacre/key"
[mds]
host = "m1"
address = "m1:9000"
data = "/srv/mds"
commit_interval = "250ms"
block_cache = "64MiB"
session_slots = 16
[[ost]]
id = 7
host = "s1"
address = "[::1]:9010"
data = "/srv/ost7"
pools = ["ssd", "fast"]
size = "1.5TiB"
[[ost]]
id = 3
address = "s2.example.org:9010"
data = "/srv/ost3"
size = 134217728
[oss]
io = "direct"
uring = false
txg_interval = 2000
[rpc]
congestion = ""
)");
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(format_uuid(c->id), "00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(c->settings.mds_commit_interval, 250u);
  EXPECT_EQ(c->settings.mds_block_cache, 64u << 20);
  EXPECT_EQ(c->settings.mds_session_slots, 16u);
  EXPECT_EQ(c->settings.oss_io, "direct");
  EXPECT_FALSE(c->settings.oss_uring);
  EXPECT_EQ(c->settings.oss_txg_interval, 2000u);
  EXPECT_EQ(c->settings.rpc_congestion, "");
  ASSERT_EQ(c->osts.size(), 2u);
  EXPECT_EQ(c->osts[0].id, 7u);
  EXPECT_EQ(c->osts[0].size, 3ull << 39);
  EXPECT_EQ(c->osts[0].pools, (std::vector<std::string>{"ssd", "fast"}));
  EXPECT_EQ(c->osts[1].host, "s2.example.org");
  EXPECT_EQ(c->osts[1].size, 128u << 20);
}

TEST(ParseCluster, ComplaintsNameFileLineKeyAndWhatIsAllowed) {
  EXPECT_THAT(complaint("[oss]\ntxg_intervall = \"1s\"\n"), testing::AllOf(StartsWith("c.toml:10: "), HasSubstr("did you mean 'txg_interval'?")));
  EXPECT_THAT(complaint("[osss]\n"), testing::AllOf(StartsWith("c.toml:9: "), HasSubstr("did you mean [oss]?")));
  EXPECT_THAT(complaint("[lease]\ntxg_interval = \"1s\"\n"), HasSubstr("it belongs to [oss]"));
  EXPECT_THAT(complaint("[oss]\nio = \"odirect\"\n"), HasSubstr("[oss] io is \"odirect\"; allowed: \"buffered\" or \"direct\""));
  EXPECT_THAT(complaint("[oss]\nuring = \"yes\"\n"), HasSubstr("allowed: true or false"));
  EXPECT_THAT(complaint("[oss]\ntxg_interval = \"5ms\"\n"), HasSubstr("[oss] txg_interval is \"5ms\"; allowed: a duration from 10ms to 1m"));
  EXPECT_THAT(complaint("[oss]\ntxg_interval = 1.5\n"), HasSubstr("is the fraction 1.5"));
  EXPECT_THAT(complaint("[oss]\ntxg_interval = \"30\"\n"), HasSubstr("has no unit"));
  EXPECT_THAT(complaint("[oss]\nblock_cache = \"12 parsecs\"\n"), HasSubstr("unknown unit 'parsecs'"));
  EXPECT_THAT(complaint("[oss]\nblock_cache = -1\n"), HasSubstr("the number -1"));
  EXPECT_THAT(complaint("[mds.sub]\n"), HasSubstr("[mds] has no key 'sub'"));
  EXPECT_THAT(complaint("oops\n"), StartsWith("c.toml:9: this is no TOML: "));
  for (const char* header : {"[*]\n", "[\vR)\n", "[[@]]\n", "[\xe2\x80\xa8R]\n", "\xc5\xa1\n"}) EXPECT_THAT(complaint(header), StartsWith("c.toml:9: this is no TOML: ")) << header;
  EXPECT_THAT(complaint("[layout]\nstripe_size = 100000\n"), HasSubstr("multiple of 64 KiB"));
  EXPECT_THAT(complaint("[lease]\nterm = \"8s\"\n"), testing::AllOf(StartsWith("c.toml:10: "), HasSubstr("at most half")));
  EXPECT_THAT(complaint("[oss]\nheartbeat = \"5s\"\n"), HasSubstr("at most a third"));
}

TEST(ParseCluster, ComplaintsAboutServers) {
  EXPECT_THAT(complaint("[[ost]]\nid = 0\naddress = \"h:1\"\ndata = \"x\"\n"), HasSubstr("storage target 0 is listed twice"));
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"127.0.0.1:9010\"\ndata = \"x\"\n"), HasSubstr("another server has too"));
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"127.0.0.1:9011\"\ndata = \"ost0\"\n"), HasSubstr("its own directory"));
  EXPECT_THAT(complaint("[[ost]]\naddress = \"h:1\"\n"), HasSubstr("lacks the key 'id'"));
  EXPECT_THAT(complaint("[[ost]]\nid = 65536\naddress = \"h:1\"\ndata = \"x\"\n"), HasSubstr("from 0 to 65535"));
  for (const char* address : {"h", "h:0", "h:65536", ":1", "h:1x", "h:"})
    EXPECT_THAT(complaint(fmt::format("[[ost]]\nid = 1\naddress = \"{}\"\ndata = \"x\"\n", address)), HasSubstr("HOST:PORT")) << address;
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"h:1\"\ndata = \"x\"\nsize = \"1MiB\"\n"), HasSubstr("16MiB to 1PiB"));
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"h:1\"\ndata = \"x\"\npools = [\"a b\"]\n"), HasSubstr("1-15 letters"));
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"h:1\"\ndata = \"x\"\npools = \"ssd\"\n"), HasSubstr("a list"));
  EXPECT_THAT(complaint("[[ost]]\nid = 1\naddress = \"h:1\"\ndata = \"\"\n"), HasSubstr("the path of a directory"));
  EXPECT_THAT(parse("").error().detail, HasSubstr("[mds] is missing"));
  EXPECT_THAT(parse("[[mds]]\naddress = \"h:1\"\n").error().detail, HasSubstr("exactly one"));
  EXPECT_THAT(parse("[mds]\naddress = \"h:1\"\ndata = \"d\"\n[ost]\nid = 1\n").error().detail, HasSubstr("[[ost]]"));
  EXPECT_THAT(parse("[mds]\naddress = \"h:1\"\ndata = \"d\"\nost = 1\n").error().detail, HasSubstr("did you mean"));
  EXPECT_THAT(parse("ost = [1]\n[mds]\naddress = \"h:1\"\ndata = \"d\"\n").error().detail, HasSubstr("[[ost]]"));
  EXPECT_THAT(parse("[cluster]\nid = \"xyz\"\n[mds]\naddress = \"h:1\"\ndata = \"d\"\n").error().detail, HasSubstr("a UUID"));
  EXPECT_THAT(parse(std::string(2 << 20, '#')).error().detail, HasSubstr("at most"));
}

void expect_same(const Cluster& a, const Cluster& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(a.key_file, b.key_file);
  EXPECT_EQ(a.run_dir, b.run_dir);
  ASSERT_EQ(a.mds.size(), b.mds.size());
  EXPECT_EQ(std::tie(a.mds[0].host, a.mds[0].address, a.mds[0].data), std::tie(b.mds[0].host, b.mds[0].address, b.mds[0].data));
  ASSERT_EQ(a.osts.size(), b.osts.size());
  for (size_t i = 0; i < a.osts.size(); ++i) {
    const OstServer &x = a.osts[i], &y = b.osts[i];
    EXPECT_EQ(std::tie(x.id, x.host, x.address, x.data, x.pools, x.size), std::tie(y.id, y.host, y.address, y.data, y.pools, y.size));
  }
  for (const SettingRow& r : setting_rows()) EXPECT_EQ(written(r, a.settings), written(r, b.settings)) << r.name;
}

TEST(DumpCluster, ParsesToTheSame) {
  Cluster c;
  c.file = "c.toml";
  c.name = "x";
  for (size_t i = 0; i < c.id.size(); ++i) c.id[i] = static_cast<uint8_t>(i * 17);
  c.key_file = "odd \"key\" \\ with\ttab and ümlaut";
  c.run_dir = "/r";
  c.mds.push_back({"h", "h:1", "/m"});
  c.osts.push_back({5, "h", "h:2", "/o 5", {"ssd", "a.b"}, 12345678901});
  c.osts.push_back({0, "g", "g:2", "/o0", {}, 0});
  // Every setting away from its default: numbers to a prime in range, words to the last, flags turned.
  for (const SettingRow& r : setting_rows()) {
    if (auto* n = std::get_if<uint64_t Settings::*>(&r.field)) c.settings.*(*n) = r.min + 7 <= r.max ? r.min + 7 : r.max;
    if (auto* t = std::get_if<std::string Settings::*>(&r.field)) c.settings.*(*t) = r.words.empty() ? "re\"no" : std::string(r.words.back());
    if (auto* f = std::get_if<bool Settings::*>(&r.field)) c.settings.*(*f) = !(c.settings.*(*f));
  }
  c.settings.lease_keepalive = 201, c.settings.lease_term = 1007;
  c.settings.oss_heartbeat = 57, c.settings.mds_ost_timeout = 507;
  c.settings.layout_stripe_size = 192 << 10, c.settings.layout_small = 0;
  auto again = parse(dump_cluster(c));
  ASSERT_TRUE(again) << again.error().message() << "\n" << dump_cluster(c);
  expect_same(c, *again);

  Cluster plain;
  plain.name = "nacre", plain.key_file = "key", plain.run_dir = "run";
  plain.mds.push_back({"h", "h:1", "/m"});
  auto plain_again = parse(dump_cluster(plain));
  ASSERT_TRUE(plain_again) << plain_again.error().message();
  expect_same(plain, *plain_again);
}

class ClusterFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/nacre-config-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    std::ofstream(dir_ + "/cluster.toml") << kSmall;
    ::unsetenv("NACRE_CLUSTER");
  }
  void TearDown() override {
    std::filesystem::remove_all(dir_);
    ::unsetenv("NACRE_CLUSTER");
  }
  std::string dir_;
};

TEST_F(ClusterFiles, RelativePathsAreBelowTheFile) {
  auto c = load_cluster(dir_ + "/cluster.toml");
  ASSERT_TRUE(c) << c.error().message();
  EXPECT_EQ(c->file, dir_ + "/cluster.toml");
  EXPECT_EQ(c->key_file, dir_ + "/key");
  EXPECT_EQ(c->run_dir, dir_ + "/run");
  EXPECT_EQ(c->mds[0].data, dir_ + "/mds");
  EXPECT_EQ(c->osts[0].data, dir_ + "/ost0");
  auto again = parse(dump_cluster(*c));
  ASSERT_TRUE(again) << again.error().message();
  expect_same(*c, *again);
}

TEST_F(ClusterFiles, AreFoundByNameDirectoryOrEnvironment) {
  EXPECT_EQ(find_cluster_file(dir_).value(), dir_ + "/cluster.toml");
  EXPECT_EQ(find_cluster_file(dir_ + "/cluster.toml").value(), dir_ + "/cluster.toml");
  ::setenv("NACRE_CLUSTER", dir_.c_str(), 1);
  EXPECT_EQ(find_cluster_file("").value(), dir_ + "/cluster.toml");
  auto missing = find_cluster_file(dir_ + "/absent");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().detail, HasSubstr("nacre cluster init"));
  EXPECT_THAT(load_cluster(dir_).error().detail, HasSubstr("is a directory"));
}

TEST(Examples, Parse) {
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".toml") continue;
    auto c = load_cluster(entry.path().string());
    EXPECT_TRUE(c) << c.error().message();
  }
}

TEST(Uuid, RoundTripAndRefusals) {
  auto id = parse_uuid("6F1c0b52-7d0a-4d3e-9a57-0c1f2e3d4b5a");
  ASSERT_TRUE(id);
  EXPECT_EQ(format_uuid(*id), "6f1c0b52-7d0a-4d3e-9a57-0c1f2e3d4b5a");
  for (const char* wrong : {"", "6f1c0b527d0a4d3e9a570c1f2e3d4b5a", "6f1c0b52-7d0a-4d3e-9a57-0c1f2e3d4b5", "6f1c0b52-7d0a-4d3e-9a57-0c1f2e3d4b5g", "6f1c0b5-27d0a-4d3e-9a57-0c1f2e3d4b5a"})
    EXPECT_FALSE(parse_uuid(wrong)) << wrong;
}

}  // namespace
}  // namespace nacre::config
