#include "planner/kernel_estimates.h"

#include <algorithm>
#include <cstring>

#include "planner/served_kernels.h"
#include "plugin/calls.h"
#include "tessera/abi/optimizer.h"
#include "tessera/sdk/cost.h"
#include "tessera/tensor.h"

namespace tessera {

namespace {

constexpr const char* kUsualOptimizer = "exact_rowwise_adagrad";  // of tables that name none
constexpr double kUsualStateBytes = 4;

bool estimates_for(const Part& kernel, int32_t device_type) {
  const tsr_kernel& api = kernel.api<tsr_kernel>();
  if (!TSR_HAS(tsr_kernel, &api, estimate)) return false;
  for (const int32_t* d = api.device_types; *d != 0; ++d) {
    if (*d == device_type) return true;
  }
  return false;
}

bool trains(const Part& kernel) {
  const tsr_kernel& api = kernel.api<tsr_kernel>();
  return TSR_HAS(tsr_kernel, &api, backward);
}

PartPtr estimating_kernel(const Runtime& runtime, const std::string& wanted, int32_t device_type) {
  PartPtr best;
  for (const std::string& id : runtime.ids(TSR_KERNEL_KIND)) {
    if (wanted != "auto" && id != wanted) continue;
    PartPtr kernel;
    try {
      kernel = runtime.create(TSR_KERNEL_KIND, id);
    } catch (const Error&) {
      continue;  // not usable here: the load report says why
    }
    if (!estimates_for(*kernel, device_type)) continue;
    if (wanted == "auto" && !trains(*kernel)) continue;
    if (!best || kernel->raw()->component->priority > best->raw()->component->priority) best = kernel;
  }
  return best;
}

}  // namespace

KernelEstimates::KernelEstimates(const Runtime& runtime, const std::string& kernel, const Machine& machine)
    : runtime_(runtime), device_{device_type_of(machine.device), 0} {
  part_ = estimating_kernel(runtime, kernel, device_.device_type);
  if (part_) id_ = part_->id();
  figures_ = machine.kernel(id_);
  if (figures_ == nullptr && !part_ && !machine.kernels.empty()) figures_ = &machine.kernels.front();
}

bool KernelEstimates::places_rows() const {
  return device_.device_type == kDLCPU && (!part_ || (part_->api<tsr_kernel>().flags & TSR_KERNEL_PLACES_ROWS) != 0);
}

const Part* KernelEstimates::optimizer(const OptimizerSpec& spec) const {
  const std::pair<std::string, std::string> key = spec.name.empty()
                                                      ? std::pair(std::string(kUsualOptimizer), std::string("{}"))
                                                      : std::pair(spec.name, spec.options);
  const auto known = optimizers_.find(key);
  if (known != optimizers_.end()) return known->second.get();
  PartPtr part;
  if (runtime_.has(TSR_OPTIMIZER_KIND, key.first)) part = runtime_.create(TSR_OPTIMIZER_KIND, key.first, key.second);
  return optimizers_.emplace(key, part).first->second.get();
}

tsr_estimate KernelEstimates::of(const EmbeddingBagConfig& table, const std::string& compute_kernel,
                                 tsr_workload work) const {
  tsr_machine machine{};
  if (figures_ != nullptr) {
    machine = figures_->raw();
    work.machine = &machine;
  }
  if (table.row_format) {  // packed rows cost what as many bytes of float32 cost
    work.dim = std::max<int64_t>(1, work.dim * sdk::info_of(*table.row_format).bits / 32);
  }
  const auto row_bytes = static_cast<double>(work.dim * size_of(table.data_type));
  const Part* update = part_ ? optimizer(table.optimizer) : nullptr;
  if (part_ && update != nullptr) {
    const bool served = [&] {
      for (const char* const* c = part_->api<tsr_kernel>().compute_kernels; *c != nullptr; ++c) {
        if (compute_kernel == *c) return true;
      }
      return false;
    }();
    tsr_kernel_config config{};
    config.struct_size = sizeof(config);
    config.mode = TSR_MODE_TRAIN;
    config.compute_kernel = served ? compute_kernel.c_str() : "dense";
    config.device = device_;
    config.weight_dtype = to_dl(table.data_type);
    config.output_dtype = to_dl(DType::kFloat32);
    config.optimizer = update->raw();
    config.optimizer_options = update->options().c_str();
    tsr_estimate out{};
    out.struct_size = sizeof(out);
    AbiError error;
    const tsr_kernel& api = part_->api<tsr_kernel>();
    const plugin::CallScope call(*part_, "estimate", table.name);
    error.check(api.estimate(part_->self(), &config, &work, &out, error.out()), cat(id_, ": estimate"));
    return out;
  }
  if (figures_ == nullptr) return {};
  return sdk::estimate_by_figures(machine, work, row_bytes, kUsualStateBytes);
}

}  // namespace tessera
