// A kernel for the planner's tests: it serves "fused" alone, and no optimizer but exact_sgd.
#include <cstring>

#include "tessera/sdk/kernel.h"

namespace {

using namespace tessera::sdk;

class FusedOnlyInstance : public KernelInstance {
 public:
  void forward(const tsr_lookup&, const DLTensor&, tsr_stream, tsr_context**) override {}
  void backward(tsr_context*, const tsr_backward&, tsr_stream) override {}
  void release(tsr_context*) noexcept override {}
  void save(uint32_t, const tsr_stream_io&) override {}
  void load(uint32_t, const tsr_stream_io&) override {}
  tsr_kernel_stats stats(uint32_t) override { return {}; }
};

class FusedOnly : public Kernel {
 public:
  using Instance = FusedOnlyInstance;
  static constexpr const char* kComputeKernels[] = {"fused", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config& config) const override {
    if (std::strcmp(OptimizerRef(config.optimizer).id(), "exact_sgd") != 0)
      fail(TSR_UNIMPLEMENTED, "no optimizer but exact_sgd");
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override {
    return std::make_unique<FusedOnlyInstance>();
  }
};

}  // namespace

TESSERA_PLUGIN("fused-only", "1.0.0",
               component<FusedOnly>({.id = "fused_only", .version = "1.0.0", .about = "for tests of the planner"}));
