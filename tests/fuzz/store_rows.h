// SPDX-License-Identifier: Apache-2.0
// All rows of a metadata store, and putting them back: so that a fuzzer's next input finds the same store without opening it anew,
// which takes longer than all the rest.
#pragma once
#include <map>
#include <string>

#include "metadata/store/store.h"

namespace nacre::mds::fuzz {

using Rows = std::map<std::pair<Family, std::string>, std::string>;

/// But for the super record, which belongs to the run.
Rows rows_of(const Store& store);
/// Nothing else may use the store.
void put_back(Store& store, const Rows& rows);

}  // namespace nacre::mds::fuzz
