// The cpu kernel: the component.
#include "cpu_instance.h"
#include "figures.h"
#include "tessera/sdk/cost.h"
#include "tessera/sdk/kernel.h"
#include "tessera/sdk/plugin.h"

namespace {

namespace sdk = tessera::sdk;
using tessera_cpu::bytes_of;
using tessera_cpu::Config;

class CpuKernel : public sdk::Kernel {
 public:
  using Instance = tessera_cpu::CpuInstance;
  static constexpr const char* kComputeKernels[] = {"fused", "dense", nullptr};
  static constexpr int32_t kDeviceTypes[] = {kDLCPU, 0};
  static constexpr uint32_t kFlags = TSR_KERNEL_PLACES_ROWS;

  explicit CpuKernel(const sdk::Setup& setup) : host_(setup.host), ops_(tessera_cpu::best_row_ops()) {}
  static void probe(sdk::Host) { tessera_cpu::best_row_ops(); }

  const void* extension(std::string_view id) const {
    const void* changes = sdk::changes_extension<Instance>(id);
    return changes != nullptr ? changes : sdk::rows_view_extension<Instance>(id);
  }
  void supports(const tsr_kernel_config& config) const override { checked(config); }
  std::unique_ptr<sdk::KernelInstance> open(const tsr_kernel_config& config) const override {
    return std::make_unique<Instance>(host_, ops_, checked(config));
  }

  tsr_estimate estimate(const tsr_kernel_config& config, const tsr_workload& work) const override {
    const Config c = checked(config);
    int64_t state_row = 0;
    for (uint32_t k = 0; k < c.optimizer.num_states(); ++k) state_row += 4 * c.optimizer.state_width(k, work.dim);
    const double row = static_cast<double>(work.dim * bytes_of(c.weights));
    if (work.machine != nullptr && work.machine->num_row_costs > 0) {
      return sdk::estimate_by_figures(*work.machine, work, row, static_cast<double>(state_row));
    }
    tsr_estimate e =
        sdk::estimate_by_figures(tessera_cpu::typical_figures(), work, row, static_cast<double>(state_row));
    e.forward_seconds /= host_.num_threads();  // the figures are for one thread
    e.backward_seconds /= host_.num_threads();
    return e;
  }

 private:
  static Config checked(const tsr_kernel_config& config) {
    return tessera_cpu::checked(config, kComputeKernels, UINT32_MAX);
  }
  sdk::Host host_;
  const tessera_cpu::RowOps& ops_;
};

}  // namespace

TESSERA_PLUGIN("kernel-cpu", "0.1.0",
               tessera::sdk::component<CpuKernel>({.id = "cpu",
                                                   .version = "0.1.0",
                                                   .about = "AVX-512, AVX2 or portable, on the host's threads",
                                                   .priority = 10}));
