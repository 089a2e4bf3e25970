// A kernel plugin for the planner's tests, which serves only "fused", with the optimizer exact_sgd.
#include <cstring>

#include "idle_kernel.h"

namespace {

using namespace tessera::sdk;

class FusedOnly : public Kernel {
 public:
  using Instance = tessera::test::IdleInstance;
  static constexpr const char* kComputeKernels[] = {"fused", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  void supports(const tsr_kernel_config& config) const override {
    if (std::strcmp(OptimizerRef(config.optimizer).id(), "exact_sgd") != 0)
      fail(TSR_UNIMPLEMENTED, "no optimizer but exact_sgd");
  }
  std::unique_ptr<KernelInstance> open(const tsr_kernel_config&) const override {
    return std::make_unique<tessera::test::IdleInstance>();
  }
};

}  // namespace

TESSERA_PLUGIN("fused-only", "1.0.0",
               component<FusedOnly>({.id = "fused_only", .version = "1.0.0", .about = "for tests of the planner"}));
