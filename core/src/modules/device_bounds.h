// The bounds check of batches that are on a device.
#pragma once

#include "modules/bounds.h"

namespace tessera {

// Does what check_bounds() does for an input on a device, whose types and counts were checked. The returned tensors are
// on the device too; numbers and texts are on the host.
CheckedIds check_bounds_on_device(BoundsCheckMode mode, const BoundsInput& input);

}  // namespace tessera
