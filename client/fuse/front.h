// SPDX-License-Identifier: Apache-2.0
// The FUSE front: mounts, and translates the kernel's requests to the client core's methods. Nothing is decided here.
// Each request becomes a coroutine on the loop that read it; no loop ever waits for anything. mount(), unmount() and the waits
// are for threads that are not loops; everything else runs on loops.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "client/core/filesystem.h"
#include "client/fuse/compat.h"
#include "client/fuse/notify.h"
#include "client/fuse/ring.h"
#include "client/fuse/transport.h"

namespace nacre::fuse {

struct FrontOptions {
  std::string source;                        ///< as /proc/mounts shows it
  std::string mount_point;                   ///< absolute
  std::vector<std::string> kernel_options;   ///< what mount(2) is to know: ro, dev, suid, noexec, …
  Compat compat;                             ///< with what is masked
  bool readdirplus = false;                  ///< listings bring attributes
  uint32_t ring_depth = 4;                   ///< requests per CPU that the ring holds
};

/// What `nacre client status` shows of the front.
struct Report {
  std::string transport;                     ///< "io_uring" or "/dev/fuse"
  std::string transport_note;                ///< why not io_uring, if it was offered
  uint32_t protocol_minor = 0;
  uint32_t max_io = 0;
  size_t loops = 0, devices = 0;
  std::vector<FeatureState> features;
  uint64_t requests = 0, forgets = 0, interrupts = 0, cancelled = 0;
  uint64_t running = 0, open_files = 0, open_directories = 0;
};

/// What a file handle of the kernel points at.
struct OpenFile;

class Front final : public Dispatcher {
 public:
  /// Mounts; requests are served as soon as this has returned. `notifier` outlives the front. Errors: kConfig with a sentence.
  static Result<std::unique_ptr<Front>> mount(Runtime& runtime, client::Filesystem& fs, std::shared_ptr<Notifier> notifier, FrontOptions options);
  /// After the runtime has stopped (no request is left then), or before anything was mounted.
  ~Front() override;
  /// Takes the transport off the loops, which still run. If the connection has not ended, it ends now: what still uses the mount
  /// gets ENOTCONN. Operations in progress should have been ended before (Filesystem::disconnect).
  void close();

  /// INIT is answered and the transport serves. Errors: kVersion, kDeadline.
  Result<void> wait_ready(Nanos timeout);
  /// Waits until the kernel has ended the connection. Empty = unmounted.
  std::string wait_ended();
  /// Error: kBusy if it is in use and `detach` is false. With it, those who use it go on until they have closed everything.
  Result<void> unmount(bool detach);
  /// Ends the connection: what still uses the mount gets ENOTCONN.
  void abort();
  /// Fails with EIO, at once, every operation under way, but not who waits for another's lock while the metadata server is
  /// there; the mount stays and serves what comes later. Returns how many. Any thread that is no loop.
  size_t fail_waiting();
  /// Where /metrics of this client is, for the status; 0 = nowhere.
  void set_metrics_port(uint16_t port) { metrics_port_ = port; }
  Report report() const;

  // --- for the operations
  client::Filesystem& fs() { return fs_; }
  const Compat& compat() const { return options_.compat; }
  Ino ino(uint64_t nodeid) const { return nodeid == FUSE_ROOT_ID ? root_ : Ino(nodeid); }
  uint64_t nodeid(uint64_t ino) const { return ino == root_.v ? FUSE_ROOT_ID : ino; }
  bool is_root(uint64_t nodeid) const { return nodeid == FUSE_ROOT_ID; }
  std::string status_json() const;           ///< Report and core's status
  /// Every handle that the kernel holds is on record: an unmount may end the connection before its last releases are read.
  void opened(OpenFile* file);
  void released(OpenFile* file);

  // --- Dispatcher
  void dispatch(Loop& loop, Incoming in) override;
  std::shared_ptr<Running> running(size_t loop) override { return running_[loop]; }
  void connection_ended(std::string why) override;

 private:
  Front(Runtime& runtime, client::Filesystem& fs, std::shared_ptr<Notifier> notifier, FrontOptions options);
  Result<void> make_session();
  Result<void> mount_session();
  static void on_init(void* self, fuse_conn_info* connection);
  static ssize_t write_message(int fd, iovec* iov, int count, void* self);
  static ssize_t read_message(int fd, void* to, size_t size, void* self);
  int answer_init(Sink& sink, const iovec* iov, int count);
  void start_transport();
  void give_up_ring(std::string why);
  void ready(Result<void> r);
  void interrupt(uint64_t unique);
  void interrupt_here(Loop& loop, uint64_t unique);
  Task<void> look_around(Loop& loop);
  Task<void> watch_interrupted(Loop& loop, uint64_t unique, int32_t pid);
  void count_forgets(const Incoming& in);

  Runtime& runtime_;
  client::Filesystem& fs_;
  std::shared_ptr<Notifier> notifier_;
  FrontOptions options_;
  Ino root_;
  fuse_session* session_ = nullptr;
  bool mounted_ = false;
  bool closed_ = false;
  std::vector<std::shared_ptr<Running>> running_;
  std::shared_ptr<Classic> classic_;
  std::shared_ptr<RingTransport> ring_;
  uint64_t init_unique_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<void>> ready_;
  std::optional<std::string> ended_;
  std::string transport_note_;
  size_t devices_ = 1;

  std::atomic<uint16_t> metrics_port_{0};
  std::atomic<uint64_t> requests_{0}, forgets_{0}, interrupts_{0}, cancelled_{0};
  mutable std::mutex open_mutex_;
  std::unordered_set<OpenFile*> open_;
};

}  // namespace nacre::fuse
