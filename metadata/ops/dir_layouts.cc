// SPDX-License-Identifier: Apache-2.0
// See dir_layouts.h.
#include "metadata/ops/dir_layouts.h"

#include "metadata/ops/common.h"

namespace nacre::mds {
namespace {
constexpr size_t kMaxRemembered = 65'536;  // directories; about 8 MiB
}  // namespace

void DirLayouts::forget() {
  std::lock_guard lock(mutex_);
  ++version_;
  inherited_.clear();
}

Result<DirLayouts::Found> DirLayouts::find(OpContext& ctx, const schema::InodeRecordT& dir) {
  auto own = [](const schema::InodeRecordT& r) { return r.layout && !r.layout->components.empty(); };
  if (own(dir)) return Found{std::make_shared<const schema::LayoutT>(*dir.layout), true};
  uint64_t version;
  {
    std::lock_guard lock(mutex_);
    version = version_;
    auto it = inherited_.find(Ino(dir.ino));
    if (it != inherited_.end()) return Found{it->second, false};
  }
  std::shared_ptr<const schema::LayoutT> found;
  uint64_t at = dir.parent, below = dir.ino;
  for (int depth = 0; !found && at != below && depth < kMaxDirectoryDepth; ++depth) {
    NACRE_TRY(auto up, ctx.view().inode(Ino(at)));
    if (!up) break;  // the directory was removed: it gets what the cluster says
    if (own(*up)) found = std::make_shared<const schema::LayoutT>(*up->layout);
    below = at;
    at = up->parent;
  }
  if (!found) found = std::make_shared<const schema::LayoutT>(ctx.hooks().cluster_layout());
  std::lock_guard lock(mutex_);
  if (version == version_) {
    if (inherited_.size() >= kMaxRemembered) inherited_.clear();
    inherited_[Ino(dir.ino)] = found;
  }
  return Found{found, false};
}

}  // namespace nacre::mds
