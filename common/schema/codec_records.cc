// SPDX-License-Identifier: Apache-2.0
#include "common/schema/codec_impl.h"

namespace nacre {
#define NACRE_MESSAGE(name)
#define NACRE_RECORD(name) NACRE_INSTANTIATE_RECORD(schema::name##T)
#include "common/schema/types.def"
}  // namespace nacre
