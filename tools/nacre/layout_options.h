// SPDX-License-Identifier: Apache-2.0
// From the letters of `stripe set` and `migrate` to a layout.
#pragma once
#include <vector>

#include "common/schema/codec.h"
#include "tools/nacre/commands.h"

namespace nacre::cli {

/// A layout as it can be asked for. Errors: kConfig with a sentence.
Result<schema::LayoutT> layout_of(const std::vector<StripeComponent>& components);

}  // namespace nacre::cli
