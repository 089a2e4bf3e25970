// The bounds check of batches that are on a device.
#pragma once

#include "modules/bounds.h"

namespace tessera {

// check_bounds() for an input on a device, whose types and counts were checked. What it returns is there too, but for
// numbers and words.
CheckedIds check_bounds_on_device(BoundsCheckMode mode, const BoundsInput& input);

}  // namespace tessera
