// The options of a kernel instance in the raw form that a kernel plugin gets.
#pragma once

#include <string>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/lookup.h"
#include "tessera/runtime.h"

namespace tessera {

// A tsr_kernel_config and the arrays that it points to. `options` and `optimizer` must outlive it.
struct KernelConfig {
  KernelConfig(const LookupOptions& options, const Component* optimizer, DLDevice device);
  KernelConfig(const KernelConfig&) = delete;
  KernelConfig& operator=(const KernelConfig&) = delete;

  std::vector<tsr_kernel_table> tables;
  tsr_kernel_config raw{};
};

// Splits "tensor_train?ranks=8" into a compute kernel and the options for its tables. kInvalidArgument: the text has
// another form.
struct ComputeKernelName {
  std::string name;     // the name that plugins list
  std::string options;  // JSON; empty: none
};
ComputeKernelName compute_kernel_name(const std::string& text);

// Lists the kernels that a planner may choose from: "key_value?cache_mib=64
// 256" is one kernel with 64 and one with 256. The result has each combination of the options' values, in the order in
// which they are written. kInvalidArgument: a choice among no values, or more than 64 combinations.
std::vector<std::string> compute_kernel_choices(const std::vector<std::string>& texts);

// Returns tsr_kernel_table::poolings of a shard. A shard computes sums for a mean too, because a mean needs the whole
// bag's length.
uint32_t shard_poolings(PoolingType pooling);

// Returns the reason why the kernel cannot serve the config; empty: it can.
std::string refusal(const Component& kernel, const tsr_kernel_config& config);

}  // namespace tessera
