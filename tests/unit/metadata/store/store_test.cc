// SPDX-License-Identifier: Apache-2.0
// Opening: what is refused, with which sentence, and what a start leaves behind.
#include <fstream>

#include <rocksdb/db.h>

#include "metadata/store/rocks.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
using test::must;
using test::options_for;
using test::TempDir;

std::string refusal(const Store::Options& o, Errc code) {
  auto r = Store::open(o);
  EXPECT_FALSE(r.has_value());
  if (r) return "";
  EXPECT_EQ(r.error().code, code) << r.error().message();
  return r.error().detail;
}

TEST(Store, FormatThenOpenHasARootAndCountsStarts) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  for (uint64_t start = 1; start <= 3; ++start) {
    test::OpenStore s(o);
    EXPECT_EQ(s.store->incarnation(), start);
    EXPECT_FALSE(s.store->was_clean());
    auto root = must(s.view().inode(kRootIno));
    ASSERT_TRUE(root);
    EXPECT_EQ(root->mode, 040755u);
    EXPECT_EQ(root->nlink, 2u);
    ASSERT_TRUE(s.store->fileset(kRootFileset));
    EXPECT_EQ(s.store->fileset(kRootFileset)->root, 1u);
    EXPECT_EQ(s.journal->usage_total().inodes, 1);
  }
}

TEST(Store, CleanStopIsRemembered) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  must(must(Store::open(o))->close_clean());
  auto again = must(Store::open(o));
  EXPECT_TRUE(again->was_clean());
  again.reset();
  EXPECT_FALSE(must(Store::open(o))->was_clean());
}

TEST(Store, FormatRefusesADirectoryWithContent) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  auto r = Store::format(o);
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.error().code, Errc::kExist);
}

TEST(Store, RefusesWhatIsNotItsDirectory) {
  TempDir dir;
  EXPECT_NE(refusal(options_for(dir / "missing"), Errc::kNoEnt).find("nacre cluster init"), std::string::npos);
  std::filesystem::create_directory(dir / "empty");
  EXPECT_NE(refusal(options_for(dir / "empty"), Errc::kNotOurs).find("no metadata directory"), std::string::npos);
  std::filesystem::create_directory(dir / "ost");
  std::ofstream(dir / "ost/identity") << "nacre storage 1\ncluster c1\n";
  EXPECT_NE(refusal(options_for(dir / "ost"), Errc::kNotOurs).find("Nacre storage server"), std::string::npos);
}

TEST(Store, RefusesAnotherClusterANewerFormatAndASecondProcess) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  auto other = o;
  other.cluster_id.fill(0xc2);
  EXPECT_NE(refusal(other, Errc::kNotOurs).find("belongs to cluster c1c1"), std::string::npos);
  {
    auto open = must(Store::open(o));
    EXPECT_NE(refusal(o, Errc::kInUse).find("another nacre-mds"), std::string::npos);
  }
  std::string cluster;
  for (int i = 0; i < 16; ++i) cluster += "c1";
  std::ofstream(dir / "mds/identity") << "nacre metadata 2\ncluster " << cluster << "\n";
  EXPECT_NE(refusal(o, Errc::kVersion).find("format 2"), std::string::npos);
}

TEST(Store, RefusesUnknownFeatureBitsAndFamilies) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  {
    test::OpenStore s(o);
    auto super = *must(s.view().get_record<schema::MetaSuperT>(Family::kMeta, kSuperKey));
    super.incompat = 1u << 5;
    Batch b;
    b.put_record(Family::kMeta, std::string(kSuperKey), super);
    must(s.journal->commit(std::move(b)));
  }
  EXPECT_NE(refusal(o, Errc::kVersion).find("0x20"), std::string::npos);

  auto two = options_for(dir / "mds2");
  must(Store::format(two));
  {
    auto s = must(Store::open(two));
    rocksdb::ColumnFamilyHandle* h = nullptr;
    ASSERT_TRUE(s->rocks().db->CreateColumnFamily({}, "stream", &h).ok());
    s->rocks().db->DestroyColumnFamilyHandle(h);
  }
  EXPECT_NE(refusal(two, Errc::kVersion).find("'stream'"), std::string::npos);
}

TEST(Store, DamagedDatabaseIsRefusedWithASentence) {
  TempDir dir;
  auto o = options_for(dir / "mds");
  must(Store::format(o));
  { must(must(Store::open(o))->close_clean()); }
  for (const auto& e : std::filesystem::directory_iterator(dir / "mds/db"))
    if (e.path().filename().string().starts_with("MANIFEST")) std::filesystem::resize_file(e.path(), 10);
  EXPECT_NE(refusal(o, Errc::kCorrupt).find("backup"), std::string::npos);
}

}  // namespace
}  // namespace nacre::mds
