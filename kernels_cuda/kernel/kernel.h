// The GPU kernel as a component.
#pragma once

#include <memory>

#include "kernel/config.h"
#include "kernel/estimate.h"
#include "kernel/instance.h"

namespace tessera::gpu {

class GpuKernel : public sdk::Kernel {
 public:
  using Instance = GpuInstance;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr const int32_t* kDeviceTypes = gpu::kDeviceTypes;

  explicit GpuKernel(const sdk::Setup& setup) : host_(setup.host) {}
  static void probe(sdk::Host) { require_device(); }

  void supports(const tsr_kernel_config& config) const override { checked(config, kComputeKernels); }
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override {
    return std::make_unique<Instance>(host_, checked(config, kComputeKernels));
  }
  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    return gpu::estimate(config, work);
  }

 private:
  sdk::Host host_;
};

}  // namespace tessera::gpu
