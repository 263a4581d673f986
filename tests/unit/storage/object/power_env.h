// SPDX-License-Identifier: Apache-2.0
// A RocksDB environment over real files that shares the power of a simulated machine: after the cut nothing is written any
// more, and restore_files() shortens every file to a length between what was synced and what was written. Nothing is really
// synced or allocated ahead: in memory that costs far more than the test.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include <rocksdb/env.h>

#include "common/base/rng.h"
#include "common/testing/memory_device.h"

namespace nacre::testing {

class PowerEnv final : public rocksdb::EnvWrapper {
 public:
  explicit PowerEnv(std::shared_ptr<Power> power) : EnvWrapper(rocksdb::Env::Default()), power_(std::move(power)) {}

  rocksdb::Status NewWritableFile(const std::string& name, std::unique_ptr<rocksdb::WritableFile>* out, const rocksdb::EnvOptions& options) override {
    if (power_->off()) return off();
    auto s = target()->NewWritableFile(name, out, plain(options));
    if (s.ok()) wrap(name, out);
    return s;
  }
  rocksdb::Status ReopenWritableFile(const std::string& name, std::unique_ptr<rocksdb::WritableFile>* out, const rocksdb::EnvOptions& options) override {
    if (power_->off()) return off();
    auto s = target()->ReopenWritableFile(name, out, plain(options));
    if (s.ok()) wrap(name, out);
    return s;
  }
  rocksdb::Status ReuseWritableFile(const std::string&, const std::string&, std::unique_ptr<rocksdb::WritableFile>*, const rocksdb::EnvOptions&) override {
    return rocksdb::Status::NotSupported("logs are never recycled");
  }
  rocksdb::Status RenameFile(const std::string& from, const std::string& to) override {
    if (power_->off()) return off();
    std::lock_guard lock(mutex_);
    if (auto it = files_.find(from); it != files_.end()) {
      files_[to] = it->second;
      files_.erase(it);
    }
    return target()->RenameFile(from, to);
  }
  rocksdb::Status DeleteFile(const std::string& name) override {
    if (power_->off()) return off();
    std::lock_guard lock(mutex_);
    files_.erase(name);
    return target()->DeleteFile(name);
  }

  rocksdb::Status NewDirectory(const std::string&, std::unique_ptr<rocksdb::Directory>* out) override {
    *out = std::make_unique<UnsyncedDirectory>();
    return rocksdb::Status::OK();
  }

  /// RocksDB waits a second after a flush that failed, which each of them does once the power is off.
  void SleepForMicroseconds(int micros) override { target()->SleepForMicroseconds(std::min(micros, 1000)); }

  /// The power is back: files are as long as the disk had them. Of what wasn't synced often all or nothing is there, since a
  /// disk writes pages, not bytes; sometimes it ends inside a record. Call when nobody has them open.
  void restore_files(Rng& rng) {
    std::lock_guard lock(mutex_);
    for (auto& [name, file] : files_) {
      if (file.written == file.synced) continue;
      const uint64_t dice = rng.below(4);
      const uint64_t kept = dice == 0 ? file.written : dice == 1 ? file.synced : file.synced + rng.below(file.written - file.synced + 1);
      if (::truncate(name.c_str(), static_cast<off_t>(kept)) != 0) std::abort();
    }
    files_.clear();
  }

 private:
  struct File { uint64_t written = 0, synced = 0; };
  struct UnsyncedDirectory final : rocksdb::Directory {
    rocksdb::Status Fsync() override { return rocksdb::Status::OK(); }
  };
  static rocksdb::EnvOptions plain(const rocksdb::EnvOptions& options) {
    rocksdb::EnvOptions out = options;
    out.use_mmap_writes = false;
    out.allow_fallocate = false;
    return out;
  }
  static rocksdb::Status off() { return rocksdb::Status::IOError("the power is off"); }

  class Writable final : public rocksdb::WritableFileWrapper {
   public:
    Writable(PowerEnv& env, std::string name, std::unique_ptr<rocksdb::WritableFile> file)
        : WritableFileWrapper(file.get()), env_(env), name_(std::move(name)), file_(std::move(file)) {}
    rocksdb::Status Append(const rocksdb::Slice& data) override {
      if (!env_.power_->use()) return off();
      auto s = file_->Append(data);
      if (s.ok()) env_.grow(name_, data.size());
      return s;
    }
    rocksdb::Status Append(const rocksdb::Slice& data, const rocksdb::DataVerificationInfo&) override { return Append(data); }
    rocksdb::Status Sync() override { return synced(); }
    rocksdb::Status Fsync() override { return synced(); }
    rocksdb::Status RangeSync(uint64_t, uint64_t) override { return rocksdb::Status::OK(); }
    bool IsSyncThreadSafe() const override { return true; }

   private:
    rocksdb::Status synced() {
      // With nothing to write it can't fail. RocksDB, which syncs a closed log once more before a flush, would end the process if it
      // was asked to sync a log in which that had failed.
      if (env_.is_synced(name_)) return rocksdb::Status::OK();
      if (!env_.power_->use()) return off();
      env_.mark(name_);
      return rocksdb::Status::OK();
    }
    PowerEnv& env_;
    const std::string name_;
    std::unique_ptr<rocksdb::WritableFile> file_;
  };

  void wrap(const std::string& name, std::unique_ptr<rocksdb::WritableFile>* out) {
    std::lock_guard lock(mutex_);
    files_[name] = {};
    *out = std::make_unique<Writable>(*this, name, std::move(*out));
  }
  void grow(const std::string& name, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    files_[name].written += bytes;
  }
  bool is_synced(const std::string& name) {
    std::lock_guard lock(mutex_);
    const File& f = files_[name];
    return f.synced == f.written;
  }
  void mark(const std::string& name) {
    std::lock_guard lock(mutex_);
    files_[name].synced = files_[name].written;
  }

  std::shared_ptr<Power> power_;
  std::mutex mutex_;
  std::map<std::string, File> files_;
};

}  // namespace nacre::testing
