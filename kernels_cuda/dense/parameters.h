// The optimizers' step of a model's dense parameters: abi/device.h has the formulas.
#pragma once

#include "gpu/gpu.h"
#include "tessera/abi/device.h"

namespace tessera::gpu {

// One launch for every kMostParameters parameters. sdk::Failure TSR_UNIMPLEMENTED: a formula that is not known here.
inline constexpr uint32_t kMostParameters = 64;
void update_parameters(const tsr_parameter_updates& updates, Stream stream);

}  // namespace tessera::gpu
