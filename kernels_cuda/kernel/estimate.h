// Estimates the time of the kernel's calls, for the planner.
#pragma once

#include "gpu/gpu.h"
#include "tessera/sdk/kernel.h"

namespace tessera::gpu {

// Both compute times from the bytes that the kernels move; estimate() uses the machine's own figures instead if there
// are any. Launches are not counted, because their number does not depend on the number of shards.
tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work);
tsr_estimate estimate_by_bytes(const DeviceFigures& device, const tsr_workload& work, double row_bytes,
                               double state_bytes);

}  // namespace tessera::gpu
