// What a kernel plugin is asked: the raw form of a kernel instance's options.
#pragma once

#include <string>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/lookup.h"
#include "tessera/runtime.h"

namespace tessera {

// A tsr_kernel_config with the arrays that it points to. `options` and `optimizer` outlive it.
struct KernelConfig {
  KernelConfig(const LookupOptions& options, const Part* optimizer, DLDevice device);
  KernelConfig(const KernelConfig&) = delete;
  KernelConfig& operator=(const KernelConfig&) = delete;

  std::vector<tsr_kernel_table> tables;
  tsr_kernel_config raw{};
};

// The reason why the kernel cannot serve the config; empty when it can.
std::string refusal(const Part& kernel, const tsr_kernel_config& config);

}  // namespace tessera
