// SPDX-License-Identifier: Apache-2.0
// A BlockDevice in memory with the faults of real disks: at a power cut unsynced blocks are lost, kept or torn between sectors;
// reads and writes fail where told; bits flip. It outlives the store that uses it, so that the next one finds what a disk would
// hold. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "common/base/rng.h"
#include "common/base/units.h"
#include "common/io/block_device.h"
#include "common/runtime/sync.h"

namespace nacre::testing {

/// The power of one simulated machine: goes off after a number of I/O events, and stays off.
class Power {
 public:
  void cut_after(int64_t events) { left_ = events; }
  void cut() { off_ = true; }
  void restore() {
    off_ = false;
    left_ = INT64_MAX;
  }
  bool off() const { return off_; }
  /// One event; false = the power is off, it doesn't happen.
  bool use() {
    if (left_.fetch_sub(1) <= 0) off_ = true;
    return !off_;
  }

 private:
  std::atomic<int64_t> left_{INT64_MAX};
  std::atomic<bool> off_{false};
};

class MemoryDevice final : public BlockDevice {
 public:
  explicit MemoryDevice(uint64_t size, std::shared_ptr<Power> power = nullptr) : size_(size), power_(std::move(power)) {}

  Task<Result<void>> read(uint64_t offset, Buffer into) override {
    co_await step();
    if (auto hold = held()) (void)co_await hold->wait();
    std::lock_guard lock(mutex_);
    ++reads_;
    if (auto bad = check(offset, into.size())) co_return std::unexpected(*bad);
    if (fails(read_errors_, offset, into.size())) co_return Err(Errc::kIo, fmt::format("read of {} bytes at {}: simulated error", into.size(), offset));
    for (size_t done = 0; done < into.size(); done += kBlockSize) copy_out((offset + done) / kBlockSize, into.data() + done);
    co_return Result<void>{};
  }

  Task<Result<void>> write(uint64_t offset, Buffer from) override {
    co_await step();
    std::lock_guard lock(mutex_);
    ++writes_;
    if (auto bad = check(offset, from.size())) co_return std::unexpected(*bad);
    if (reinterpret_cast<uintptr_t>(from.data()) % kBlockSize) co_return Err(Errc::kInval, "a misaligned buffer");
    if (fails(write_errors_, offset, from.size())) co_return Err(Errc::kIo, fmt::format("write of {} bytes at {}: simulated error", from.size(), offset));
    if (!on()) co_return Err(Errc::kIo, "the power is off");
    for (size_t done = 0; done < from.size(); done += kBlockSize) {
      const uint64_t block = (offset + done) / kBlockSize;
      std::memcpy(slot(current_, block).data(), from.data() + done, kBlockSize);
      dirty_.insert(block);
    }
    co_return Result<void>{};
  }

  Task<Result<void>> sync() override {
    co_await step();
    std::lock_guard lock(mutex_);
    ++syncs_;
    if (fail_sync_) co_return Err(Errc::kIo, "fdatasync: simulated error");
    if (!on()) co_return Err(Errc::kIo, "the power is off");
    for (uint64_t block : dirty_) persist(block);
    dirty_.clear();
    co_return Result<void>{};
  }

  Task<Result<void>> punch(uint64_t offset, uint64_t length) override {
    co_await step();
    std::lock_guard lock(mutex_);
    if (!on()) co_return Err(Errc::kIo, "the power is off");
    for (uint64_t block = offset / kBlockSize; block < (offset + length) / kBlockSize; ++block) {
      current_.erase(block);
      dirty_.insert(block);
    }
    punched_ += length;
    co_return Result<void>{};
  }

  Task<void> prefetch(uint64_t, uint64_t length) override {
    prefetched_ += length;
    co_return;
  }

  uint64_t size() const override { return size_; }
  uint64_t backing_free() const override { return backing_free_; }
  std::string kind() const override { return "memory"; }

  // ---- what tests do
  /// What the disk holds after the power came back: each unsynced block is the old one, the new one, or sectors of both.
  void power_cut(Rng& rng) {
    std::lock_guard lock(mutex_);
    for (uint64_t block : dirty_) {
      switch (rng.below(4)) {
        case 0: persist(block); break;
        case 1: tear(block, rng, 512); break;
        case 2: tear(block, rng, kBlockSize); break;  // whole or not at all
        default: break;
      }
    }
    dirty_.clear();
    current_.clear();
    for (auto& [block, bytes] : durable_) current_[block] = std::make_unique<Bytes>(*bytes);
  }
  void fail_reads(uint64_t offset, uint64_t length) { std::lock_guard lock(mutex_); read_errors_[offset] = offset + length; }
  void fail_writes(uint64_t offset, uint64_t length) { std::lock_guard lock(mutex_); write_errors_[offset] = offset + length; }
  void fail_syncs(bool fail) { fail_sync_ = fail; }
  void heal() { std::lock_guard lock(mutex_); read_errors_.clear(), write_errors_.clear(); fail_sync_ = false; }
  void flip(uint64_t offset, unsigned bit) {
    std::lock_guard lock(mutex_);
    for (auto* map : {&current_, &durable_}) slot(*map, offset / kBlockSize)[offset % kBlockSize] ^= static_cast<std::byte>(1u << bit);
  }
  /// Offset of the first block whose bytes begin with `text`, or UINT64_MAX.
  uint64_t find(std::string_view text) {
    std::lock_guard lock(mutex_);
    for (auto& [block, bytes] : current_)
      if (std::memcmp(bytes->data(), text.data(), text.size()) == 0) return block * kBlockSize;
    return UINT64_MAX;
  }
  /// Reads stand still until release_reads().
  void hold_reads() { std::lock_guard lock(mutex_); hold_.emplace(); }
  void release_reads() {
    std::optional<Signal> hold;
    std::lock_guard lock(mutex_);
    hold.swap(hold_);
    if (hold) hold->set();
  }
  void set_backing_free(uint64_t bytes) { backing_free_ = bytes; }
  /// How often an operation lets others run before it takes place, at most; drawn from `seed`.
  void jitter(uint64_t seed, unsigned most) { rng_ = std::make_unique<SeededRng>(seed), most_ = most; }
  uint64_t reads() const { return reads_; }
  uint64_t writes() const { return writes_; }
  uint64_t syncs() const { return syncs_; }
  uint64_t punched() const { return punched_; }
  uint64_t prefetched() const { return prefetched_; }
  uint64_t blocks_held() { std::lock_guard lock(mutex_); return current_.size(); }

 private:
  using Bytes = std::array<std::byte, kBlockSize>;
  using Map = std::map<uint64_t, std::unique_ptr<Bytes>>;

  std::optional<Signal> held() {
    std::lock_guard lock(mutex_);
    return hold_;
  }
  Task<void> step() {
    unsigned times = 0;
    {
      std::lock_guard lock(mutex_);
      if (rng_ && most_) times = static_cast<unsigned>(rng_->below(most_ + 1));
    }
    for (; times > 0; --times) co_await yield_now();
  }
  bool on() { return !power_ || power_->use(); }
  std::optional<Error> check(uint64_t offset, uint64_t length) const {
    if (offset % kBlockSize || length % kBlockSize || length == 0) return Error(Errc::kInval, fmt::format("misaligned I/O: {} bytes at {}", length, offset));
    if (offset > size_ || length > size_ - offset) return Error(Errc::kInval, fmt::format("I/O beyond the device: {} bytes at {}", length, offset));
    return std::nullopt;
  }
  static bool fails(const std::map<uint64_t, uint64_t>& ranges, uint64_t offset, uint64_t length) {
    for (auto [from, to] : ranges)
      if (from < offset + length && offset < to) return true;
    return false;
  }
  static Bytes& slot(Map& map, uint64_t block) {
    auto& bytes = map[block];
    if (!bytes) {
      bytes = std::make_unique<Bytes>();
      bytes->fill(std::byte{0});
    }
    return *bytes;
  }
  void copy_out(uint64_t block, std::byte* into) const {
    auto it = current_.find(block);
    if (it == current_.end()) std::memset(into, 0, kBlockSize);
    else std::memcpy(into, it->second->data(), kBlockSize);
  }
  void persist(uint64_t block) {
    auto it = current_.find(block);
    if (it == current_.end()) durable_.erase(block);
    else slot(durable_, block) = *it->second;
  }
  void tear(uint64_t block, Rng& rng, size_t sector) {
    auto it = current_.find(block);
    if (it == current_.end()) return;
    Bytes& old = slot(durable_, block);
    for (size_t at = 0; at < kBlockSize; at += sector)
      if (rng.below(2)) std::memcpy(old.data() + at, it->second->data() + at, sector);
  }

  const uint64_t size_;
  std::shared_ptr<Power> power_;
  mutable std::mutex mutex_;
  Map current_, durable_;
  std::set<uint64_t> dirty_;
  std::map<uint64_t, uint64_t> read_errors_, write_errors_;
  std::optional<Signal> hold_;
  std::unique_ptr<Rng> rng_;
  unsigned most_ = 0;
  uint64_t reads_ = 0, writes_ = 0, syncs_ = 0, punched_ = 0, prefetched_ = 0;
  std::atomic<bool> fail_sync_{false};
  std::atomic<uint64_t> backing_free_{uint64_t{1} << 50};
};

}  // namespace nacre::testing
