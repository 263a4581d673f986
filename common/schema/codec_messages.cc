// SPDX-License-Identifier: Apache-2.0
#include "common/schema/codec_impl.h"

namespace nacre {
#define NACRE_MESSAGE(name) NACRE_INSTANTIATE_MESSAGE(wire::name##T)
#define NACRE_RECORD(name)
#include "common/schema/types.def"
}  // namespace nacre
