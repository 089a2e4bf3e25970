// The question to a kernel plugin: the raw form of a kernel instance's options.
#pragma once

#include <string>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/lookup.h"
#include "tessera/runtime.h"

namespace tessera {

// A tsr_kernel_config with the arrays that it points to. `options` and `optimizer` outlive it.
struct KernelConfig {
  KernelConfig(const LookupOptions& options, const Component* optimizer, DLDevice device);
  KernelConfig(const KernelConfig&) = delete;
  KernelConfig& operator=(const KernelConfig&) = delete;

  std::vector<tsr_kernel_table> tables;
  tsr_kernel_config raw{};
};

// "tensor_train?ranks=8": a compute kernel, and what its tables' options say. kInvalidArgument.
struct ComputeKernelName {
  std::string name;     // as plugins list it
  std::string options;  // JSON; empty: none
};
ComputeKernelName compute_kernel_name(const std::string& text);

// The kernels that a planner may choose from: "key_value?cache_mib=64|256" is one kernel with 64 and one with 256. Each
// combination of an option's values, in the order of writing. kInvalidArgument: a choice of nothing, or of more
// than 64.
std::vector<std::string> compute_kernel_choices(const std::vector<std::string>& texts);

// tsr_kernel_table::poolings of a shard: a mean is the sum of the shards' rows over the whole bag's length.
uint32_t shard_poolings(PoolingType pooling);

// The reason why the kernel cannot serve the config; empty when it can.
std::string refusal(const Component& kernel, const tsr_kernel_config& config);

}  // namespace tessera
