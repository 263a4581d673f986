// SPDX-License-Identifier: Apache-2.0
// A recount of everything in a metadata store. Needs no test framework: the fuzzers use it too.
#pragma once
#include <string>
#include <vector>

#include "metadata/store/journal.h"

namespace nacre::mds::test {

/// Everything that must be true of a namespace at rest: one sentence for each thing that isn't.
std::vector<std::string> namespace_faults(const Store& store, const Journal& journal);

}  // namespace nacre::mds::test
