// SPDX-License-Identifier: Apache-2.0
// The default layout of files made in a directory: the directory's own, else its nearest ancestor's (up to the namespace root),
// else the cluster's. Remembered per directory, so that a create doesn't walk up; forgotten as a whole when any directory's
// layout or parent changes. Thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>

#include "metadata/ops/op.h"

namespace nacre::mds {

class DirLayouts {
 public:
  struct Found {
    std::shared_ptr<const schema::LayoutT> layout;  ///< never null
    bool own = false;                               ///< the directory's own, not inherited
  };
  /// Errors: as View's.
  Result<Found> find(OpContext& ctx, const schema::InodeRecordT& dir);
  /// Call through ctx.on_commit after a directory's layout or parent changed.
  void forget();

 private:
  std::mutex mutex_;
  uint64_t version_ = 0;
  std::unordered_map<Ino, std::shared_ptr<const schema::LayoutT>> inherited_;
};

}  // namespace nacre::mds
