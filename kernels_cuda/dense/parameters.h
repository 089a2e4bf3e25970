// The optimizers' step of a model's dense parameters: abi/draft/device_ops.h has the formulas.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// One launch for every kMostParameters parameters. sdk::Failure TSR_UNIMPLEMENTED: a formula that is not known here.
inline constexpr uint32_t kMostParameters = 64;
void update_parameters(const tsr_parameter_updates& updates, Stream stream);

}  // namespace tessera::gpu
