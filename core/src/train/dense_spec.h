// The optimizers of dense layers, as a config says them.
#pragma once

#include <optional>

#include "tessera/config.h"
#include "tessera/optim.h"

namespace tessera {

// kInvalidArgument: a key of [dense_optimizer] that its optimizer does not read.
DenseOptimizerSpec dense_spec(const DenseOptimizerConfig& config);

// Of a layer that says one: what it leaves open is that of `common`, or, of another name, its learning rate and weight
// decay alone. kInvalidArgument, kNotFound: names the layer.
std::optional<DenseOptimizerSpec> dense_spec(const LayerConfig& layer, const DenseOptimizerConfig& common);

}  // namespace tessera
