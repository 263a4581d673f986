// SPDX-License-Identifier: Apache-2.0
// Backups made while something is written, and putting them back.
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "metadata/store/backup.h"
#include "tests/unit/metadata/store/fixture.h"

namespace nacre::mds {
namespace {
using namespace test;
namespace fs = std::filesystem;

void put(Journal& journal, uint64_t ino) {
  Batch batch;
  batch.put_inode(some_inode(ino));
  must(journal.commit(std::move(batch)));
}

struct Directories {
  TempDir root;
  std::string data = root / "mds", backup = root / "backup";
  Directories() { must(Store::format(options_for(data))); }
};

TEST(Backup, OfABusyServerHoldsAPrefixOfItsHistory) {
  Directories d;
  uint64_t before = 0;
  {
    OpenStore open(options_for(d.data));
    std::atomic<uint64_t> last{1};
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      for (uint64_t i = 2; !stop; ++i) put(*open.journal, i), last = i;
    });
    while (last < 500) std::this_thread::yield();
    before = last;
    auto made = must(make_backup(*open.journal, d.backup));
    EXPECT_GT(made.bytes, 0u);
    EXPECT_GT(made.journal, before);
    stop = true;
    writer.join();
    EXPECT_EQ(make_backup(*open.journal, d.backup).error().code, Errc::kExist);
    EXPECT_EQ(make_backup(*open.journal, d.data + "/inside").error().code, Errc::kInval);
    EXPECT_EQ(make_backup(*open.journal, "relative").error().code, Errc::kInval);
    EXPECT_EQ(make_backup(*open.journal, d.root / "no/parent").error().code, Errc::kNoEnt);
    EXPECT_EQ(restore_backup(options_for(d.data), d.backup).error().code, Errc::kInUse);
  }
  EXPECT_EQ(fs::status(d.backup).permissions(), fs::perms::owner_all);
  auto done = must(restore_backup(options_for(d.data), d.backup));
  EXPECT_TRUE(fs::exists(done.kept + "/db")) << "what was there is kept";
  OpenStore open(options_for(d.data));
  EXPECT_TRUE(open.store->restored());
  uint64_t rows = 0, highest = 0;
  must(open.view().scan(Family::kInode, inode_key(Ino(2)), "", [&](std::string_view key, std::string_view) {
    ++rows;
    highest = parse_inode_key(key)->v;
    return true;
  }));
  EXPECT_GE(highest, before);
  EXPECT_EQ(rows, highest - 1) << "no hole";
}

TEST(Backup, ARestoredDatabaseSaysSoUntilItsNumbersAreRaised) {
  Directories d;
  uint64_t incarnation = 0;
  {
    OpenStore open(options_for(d.data));
    incarnation = open.store->incarnation();
    EXPECT_FALSE(open.store->restored());
    EXPECT_EQ(open.store->first_generation(), 0u);
    must(make_backup(*open.journal, d.backup));
  }
  for (int i = 0; i < 3; ++i) { OpenStore again(options_for(d.data)); }  // incarnations of which the backup knows nothing
  must(restore_backup(options_for(d.data), d.backup));
  {
    OpenStore open(options_for(d.data));
    EXPECT_TRUE(open.store->restored());
    EXPECT_GT(open.store->incarnation(), incarnation + 3);
  }
  OpenStore open(options_for(d.data));
  EXPECT_TRUE(open.store->restored()) << "also after a crash meanwhile";
  must(open.store->raise_epochs(*open.journal, Epoch(7)));
  EXPECT_EQ(open.store->fileset(kRootFileset)->epoch, 7u);
  must(open.store->end_restore(*open.journal));
  EXPECT_FALSE(open.store->restored());
  EXPECT_EQ(open.store->first_generation(), kGenerationsPerRestore);
}

TEST(Backup, OnlyAWholeOneOfThisClusterIsPutBack) {
  Directories d;
  { OpenStore open(options_for(d.data)); must(make_backup(*open.journal, d.backup)); }
  auto other = options_for(d.data);
  other.cluster_id.fill(0x77);
  EXPECT_EQ(restore_backup(other, d.backup).error().code, Errc::kNotOurs);
  EXPECT_EQ(restore_backup(options_for(d.data), d.data).error().code, Errc::kNotOurs) << "a metadata directory is no backup";
  fs::remove(d.backup + "/identity");
  EXPECT_EQ(restore_backup(options_for(d.data), d.backup).error().code, Errc::kNotOurs);
  OpenStore unharmed(options_for(d.data));
  EXPECT_FALSE(unharmed.store->restored());
}

TEST(Backup, ARestoreThatWasInterruptedIsSimplyRepeated) {
  Directories d;
  { OpenStore open(options_for(d.data)); must(make_backup(*open.journal, d.backup)); }
  fs::remove(d.data + "/identity");             // as if it had ended after moving things aside
  fs::create_directory(d.data + "/restoring");
  EXPECT_FALSE(Store::open(options_for(d.data)));
  must(restore_backup(options_for(d.data), d.backup));
  EXPECT_FALSE(fs::exists(d.data + "/restoring"));
  OpenStore open(options_for(d.data));
  EXPECT_TRUE(open.store->restored());
}

}  // namespace
}  // namespace nacre::mds
