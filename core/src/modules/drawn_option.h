// The option "drawn", which tells a layer how the ids of its inputs are drawn.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/dense.h"

namespace tessera {

// Creates a layer. `drawn` has DrawnInput::how of each input, and 0 for others. The layer gets it as an option if an
// input is drawn and the layer takes the option.
DenseLayer layer_of_drawn(const Runtime& runtime, const DenseLayerOptions& options, const std::vector<int64_t>& drawn);

}  // namespace tessera
