// The optimizers' step for a model's dense parameters: abi/draft/device_ops.h has the formulas.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// Takes one launch per kMostParameters parameters. Throws sdk::Failure(TSR_UNIMPLEMENTED) for an unknown formula.
inline constexpr uint32_t kMostParameters = 64;
void update_parameters(const tsr_parameter_updates& updates, Stream stream);

}  // namespace tessera::gpu
