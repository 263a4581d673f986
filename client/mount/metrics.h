// SPDX-License-Identifier: Apache-2.0
// What /metrics of a client shows. Any thread.
#pragma once
#include <string>
#include <vector>

#include "client/core/filesystem.h"
#include "client/fuse/front.h"
#include "common/metrics/endpoint.h"

namespace nacre::mount {

std::vector<metrics::Family> client_families(const fuse::Front& front, const client::Filesystem& fs, const std::string& mount_point);

}  // namespace nacre::mount
