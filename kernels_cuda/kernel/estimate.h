// Estimates the time of the kernel's calls, for the planner.
#pragma once

#include "gpu/gpu.h"
#include "tessera/sdk/kernel.h"

namespace tessera::gpu {

// Computed from the bytes that the kernels move, if a machine's own figures are not given. Launches belong to the call,
// however many shards it has, and are not counted.
tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work);
tsr_estimate estimate_by_bytes(const DeviceFigures& device, const tsr_workload& work, double row_bytes,
                               double state_bytes);

}  // namespace tessera::gpu
