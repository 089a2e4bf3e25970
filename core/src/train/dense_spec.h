// Optimizers of dense layers from a config.
#pragma once

#include <optional>

#include "tessera/config.h"
#include "tessera/optim.h"

namespace tessera {

// kInvalidArgument: [dense_optimizer] has a key that its optimizer does not read.
DenseOptimizerSpec dense_spec(const DenseOptimizerConfig& config);

// The optimizer of a layer that names one. Its unset options come from `common`; if that is another optimizer, only
// learning rate and weight decay do. Unset: the layer names none. kInvalidArgument, kNotFound: the error names the
// layer.
std::optional<DenseOptimizerSpec> dense_spec(const LayerConfig& layer, const DenseOptimizerConfig& common);

}  // namespace tessera
