// SPDX-License-Identifier: Apache-2.0
// flock and POSIX locks: test, set, wait. A waiter is known to the server by its number; the grant comes as a call from the
// server and counts from that moment. After a lost connection every waiter asks again under the same number.
#include "client/core/filesystem_impl.h"

namespace nacre::client {

namespace {
/// close(2) returns before the kernel's RELEASE, which frees a flock, has arrived. A non-blocking flock that is refused is
/// tried again for a moment, so that "close, then lock elsewhere" works as on a local filesystem.
constexpr std::array<Nanos, 5> kFlockPatience{1 * kMillisecond, 4 * kMillisecond, 15 * kMillisecond, 30 * kMillisecond, 100 * kMillisecond};
}  // namespace

Task<Result<wire::LockSpecT>> FilesystemImpl::lock_test(HandlePtr handle, wire::LockSpecT spec, Caller caller) {
  auto file = as_file(handle);
  spec.handle = file->number();
  wire::LockTestRequestT request;
  request.ino = file->ino().v;
  request.lock = std::make_unique<wire::LockSpecT>(std::move(spec));
  CO_TRY(auto reply, co_await core_->mds.call<rpc::Method::kLockTest>(std::move(request), begin("LockTest", std::move(caller))));
  if (!reply.lock) co_return Err(Errc::kProtocol, "a LockTest reply without a lock");
  co_return std::move(*reply.lock);
}

/// One request that doesn't wait.
Task<Result<void>> FilesystemImpl::lock_once(FileHandlePtr file, wire::LockSpecT spec, OpPtr op) {
  spec.handle = file->number();
  for (int attempt = 0; attempt < 3; ++attempt) {
    wire::LockRequestT request;
    request.ino = file->ino().v;
    request.lock = std::make_unique<wire::LockSpecT>(spec);
    bool crossed = false;
    CallExtra extra;
    extra.session = file->session();
    extra.crossed_restart = &crossed;
    auto core = core_;
    extra.abandoned = [core, ino = file->ino(), spec](Result<rpc::Reply> reply) {
      if (reply) core->locks.apply(ino, spec);  // granted after all: the owner's close frees it
    };
    auto reply = co_await core_->mds.call<rpc::Method::kLock>(std::move(request), op, std::move(extra));
    if (!reply) co_return std::unexpected(std::move(reply).error());
    core_->locks.apply(file->ino(), spec);
    // An answer given before a restart says nothing about what the new server knows: ask for the same once more.
    if (!crossed) break;
  }
  co_return Result<void>{};
}

namespace {
/// A lock request that is taken back. Who waited hears the outcome if it comes within the grace; a grant that turns up after that
/// is given back, for nobody wants it. One loop.
struct TakingBack {
  Signal done;
  bool given_up = false, was_granted = false;
};
Task<void> take_back(std::shared_ptr<Core> core, FileHandlePtr file, wire::LockSpecT spec, uint64_t waiter, std::shared_ptr<TakingBack> shared) {
  auto op = make_op(core, "LockCancel", Caller{});
  op->unlimited();
  wire::LockCancelRequestT cancel;
  cancel.ino = file->ino().v;
  cancel.waiter = waiter;
  auto cancelled = co_await core->mds.call<rpc::Method::kLockCancel>(std::move(cancel), op, CallExtra{.session = file->session()});
  shared->was_granted = cancelled && cancelled->was_granted;
  shared->done.set();
  if (!shared->given_up || !shared->was_granted) co_return;
  wire::LockRequestT free;
  free.ino = file->ino().v;
  free.lock = std::make_unique<wire::LockSpecT>(std::move(spec));
  free.lock->type = kLockFree;
  (void)co_await core->mds.call<rpc::Method::kLock>(std::move(free), op, CallExtra{.session = file->session()});
}
}  // namespace

Task<Result<void>> FilesystemImpl::lock_wait(FileHandlePtr file, wire::LockSpecT spec, OpPtr op) {
  spec.handle = file->number();
  auto waiter = core_->locks.add_waiter(file->ino(), spec);
  struct Remove {
    Locks& locks;
    std::shared_ptr<LockWaiter> waiter;
    ~Remove() { locks.remove_waiter(waiter); }
  } remove{core_->locks, waiter};
  for (;;) {
    core_->locks.arm(waiter);
    wire::LockRequestT request;
    request.ino = file->ino().v;
    request.lock = std::make_unique<wire::LockSpecT>(spec);
    request.wait = true;
    request.waiter = waiter->number;
    CallExtra extra;
    extra.session = file->session();
    auto core = core_;
    extra.abandoned = [core, waiter](Result<rpc::Reply> reply) {
      if (reply) core->locks.apply(waiter->ino, waiter->spec);
    };
    auto reply = co_await core_->mds.call<rpc::Method::kLock>(std::move(request), op, std::move(extra));
    if (reply) {
      core_->locks.apply(file->ino(), spec);
      co_return Result<void>{};
    }
    if (reply.error().code != Errc::kWouldBlock) co_return std::unexpected(std::move(reply).error());
    // The caller's own cancel, without grace: an alarm must end a lock wait at once.
    auto woken = co_await waiter->signal.wait(kForever, op->caller().cancel);
    switch (core_->locks.state(waiter)) {
      case LockWaiter::State::kGranted: co_return Result<void>{};
      case LockWaiter::State::kRefused: co_return Err(waiter->error);
      case LockWaiter::State::kAskAgain: if (woken) continue; break;
      case LockWaiter::State::kWaiting: break;
    }
    auto taking = std::make_shared<TakingBack>();
    Loop::current()->spawn(take_back(core_, file, spec, waiter->number, taking));
    (void)co_await taking->done.wait(core_->clock().boot() + kInterruptGrace);
    if (core_->locks.state(waiter) == LockWaiter::State::kGranted) co_return Result<void>{};
    if (taking->was_granted) {
      core_->locks.apply(file->ino(), spec);
      co_return Result<void>{};
    }
    taking->given_up = true;
    co_return std::unexpected(woken ? Error(Errc::kIntr) : std::move(woken).error());
  }
}

Task<Result<void>> FilesystemImpl::lock_set(HandlePtr handle, wire::LockSpecT spec, bool wait, Caller caller) {
  auto file = as_file(handle);
  if (file->is_directory() && !spec.flock) co_return Err(Errc::kInval);
  if (file->stale) co_return Err(Errc::kStale, "the file was open in a session that the metadata server has evicted");
  if (spec.type > kLockFree || spec.start > spec.end) co_return Err(Errc::kInval);
  if (spec.type == kLockFree) caller.cancel = nullptr;  // freeing never fails half way
  auto op = begin(spec.flock ? "flock" : "Lock", std::move(caller));
  if (wait && spec.type != kLockFree) co_return co_await lock_wait(file, std::move(spec), op);
  auto done = co_await lock_once(file, spec, op);
  for (size_t i = 0; spec.flock && !done && done.error().code == Errc::kAgain && i < kFlockPatience.size(); ++i) {
    CO_CHECK_OK(co_await sleep_for(kFlockPatience[i]));
    done = co_await lock_once(file, spec, op);
  }
  co_return done;
}

}  // namespace nacre::client
