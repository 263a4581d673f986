// SPDX-License-Identifier: Apache-2.0
// The one implementation of Peer. A reader coroutine takes many small frames from one read and receives large payloads
// straight into the buffer they are meant for; a writer coroutine sends all frames of a turn in one system call.
// Invariant: memory that the reader or writer is using outlives the call that brought it (see leave()). One loop.
#pragma once
#include <deque>
#include <vector>

#include "common/rpc/connection.h"
#include "common/runtime/core.h"

namespace nacre::rpc {

class PeerImpl;

/// A call in progress; lies in its coroutine's frame.
struct PendingCall : Waiter {
  Method method{};
  uint32_t id = 0;
  Buffer into;
  Reply reply;
  bool receiving = false;              ///< the reader fills `into`
  struct OutFrame* unsent = nullptr;   ///< the request, until it is written
  Waiter* leaving = nullptr;           ///< waits for the two above after the call has failed
};

struct OutFrame {
  wire::FrameHeader header;
  Bytes body;
  Buffer payload;
  PendingCall* call = nullptr;
  uint64_t size = 0;
  bool started = false;
  bool dropped = false;  ///< given up before its first byte left
};

class PeerImpl final : public Peer {
 public:
  PeerImpl(Loop& loop, std::unique_ptr<Stream> stream, PeerInfo info, Handler handler);
  ~PeerImpl() override;

  Task<Result<Reply>> call(Method method, Bytes body, CallOptions options) override;
  void close(Error why) override;
  bool closed() const override { return closed_; }
  Loop& loop() override { return loop_; }
  const PeerInfo& info() const override { return info_; }
  void on_close(std::function<void(Error)> fn) override;

  void start();
  uint64_t queued_bytes() const { return kMaxQueuedBytes - queue_space_.free(); }  ///< while open

 private:
  using Self = std::shared_ptr<PeerImpl>;
  Self self() { return std::static_pointer_cast<PeerImpl>(shared_from_this()); }

  // calls (peer.cc)
  static Task<Result<Reply>> run_call(Self self, Method method, Bytes body, CallOptions options);
  Task<void> leave(PendingCall& call);
  bool register_call(PendingCall& call);
  void unregister_call(PendingCall& call);
  PendingCall* find_call(uint32_t id);
  std::string where() const;

  // writing (peer.cc)
  OutFrame& enqueue(wire::FrameHeader header, Bytes body, Buffer payload);
  static Task<void> write_loop(Self self);
  void wake_writer();
  void written(size_t frames);

  // reading (peer_reader.cc)
  static Task<void> read_loop(Self self);
  Task<Result<void>> read_frames();
  Task<Result<void>> read_one(bool& dispatched);
  Task<Result<void>> fill(size_t need);
  Task<Result<void>> take(std::span<std::byte> out);
  Task<Result<void>> receive_request(wire::FrameHeader header, Bytes body);
  Task<Result<void>> receive_reply(wire::FrameHeader header, Bytes body);
  Result<void> refuse(const wire::FrameHeader& request, Error why);
  static Task<void> handle(Self self, Request request);
  size_t buffered() const { return end_ - begin_; }

  Loop& loop_;
  LoopCore& core_;
  std::unique_ptr<Stream> stream_;
  PeerInfo info_;
  Handler handler_;
  bool closed_ = false;
  Error close_reason_{Errc::kDisconnected};
  std::vector<std::function<void(Error)>> on_close_;

  struct Slot { PendingCall* call = nullptr; uint32_t round = 0; };
  std::vector<Slot> slots_;            ///< request id = round * kMaxInFlight + index
  std::vector<uint32_t> free_slots_;

  std::deque<OutFrame> queue_;
  Semaphore queue_space_{kMaxQueuedBytes};
  Waiter writer_;
  bool writer_idle_ = false;

  Buffer buffer_;                      ///< what was read and not yet taken: [begin_, end_)
  size_t begin_ = 0, end_ = 0;
  uint32_t handling_ = 0;
  uint64_t handling_bytes_ = 0;
};

}  // namespace nacre::rpc
