// SPDX-License-Identifier: Apache-2.0
// A metadata directory of a test's own: formatted, opened, closed, opened again, copied as after a crash.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "metadata/store/journal.h"
#include "metadata/store/store.h"
#include "tests/support/memory_dir.h"

namespace nacre::mds::test {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (nacre::test::memory_dir() / "nacre-meta-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TempDir(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline Store::Options options_for(const std::string& path, uint64_t write_buffer = 4 << 20) {
  Store::Options o;
  o.path = path;
  o.cluster_id.fill(0xc1);
  o.block_cache = 32 << 20;
  o.write_buffer = write_buffer;
  return o;
}

/// Fails the test if the result is an error.
template <class T>
T must(Result<T> r) {
  if (!r) {
    ADD_FAILURE() << r.error().message();
    std::abort();
  }
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

struct OpenStore {
  explicit OpenStore(const Store::Options& options, Journal::Options journal_options = {}) {
    store = must(Store::open(options));
    journal = must(Journal::open(*store, std::move(journal_options)));
  }
  View view(Tier tier = Tier::kFull) const { return View(*store, tier); }
  std::unique_ptr<Store> store;
  std::unique_ptr<Journal> journal;
};

inline schema::InodeRecordT some_inode(uint64_t ino, uint32_t uid = 0, uint64_t allocated = 0) {
  schema::InodeRecordT r;
  r.ino = ino;
  r.mode = 0100644;
  r.nlink = 1;
  r.uid = uid;
  r.fileset = 1;
  r.allocated = allocated;
  return r;
}

}  // namespace nacre::mds::test
