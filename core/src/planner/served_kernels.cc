#include "planner/served_kernels.h"

#include "plugin/calls.h"
#include "tessera/abi/optimizer.h"
#include "tessera/tensor.h"

namespace tessera {

namespace {

bool runs_on(const Part& kernel, int32_t device_type) {
  for (const int32_t* d = kernel.api<tsr_kernel>().device_types; *d != 0; ++d) {
    if (*d == device_type) return true;
  }
  return false;
}

std::string refusal_of(const Part& kernel, const tsr_kernel_config& config) {
  const tsr_kernel& api = kernel.api<tsr_kernel>();
  std::string served;
  bool listed = false;
  for (const char* const* c = api.compute_kernels; *c != nullptr; ++c) {
    served += cat(served.empty() ? "" : ", ", *c);
    listed = listed || std::string_view(*c) == config.compute_kernel;
  }
  if (!listed) return cat(kernel.id(), " serves ", served, " alone");
  if (config.mode == TSR_MODE_TRAIN && config.optimizer == nullptr) return "";  // which is chosen later
  AbiError error;
  const plugin::CallScope call(kernel, "supports");
  const tsr_code code = api.supports(kernel.self(), &config, error.out());
  if (code == TSR_OK) return "";
  return cat(kernel.id(), ": ", error.said().empty() ? cat("refused with code ", code) : std::string(error.said()));
}

}  // namespace

DLDeviceType device_type_of(const std::string& compute_device) {
  return compute_device == "cpu" ? kDLCPU : compute_device == "cuda" ? kDLCUDA : kDLROCM;
}

ServedKernels::ServedKernels(const Runtime& runtime, const std::string& kernel, const std::string& compute_device)
    : runtime_(runtime), device_{device_type_of(compute_device), 0} {
  const bool any = kernel == "auto";
  for (const std::string& id : any ? runtime.ids(TSR_KERNEL_KIND) : std::vector<std::string>{kernel}) {
    PartPtr part;
    try {
      part = runtime.create(TSR_KERNEL_KIND, id);
    } catch (const Error& e) {
      if (!any && e.code() == Code::kNotFound) throw;
      continue;  // not usable here: the load report says why
    }
    if (!runs_on(*part, device_.device_type)) {
      if (any) continue;
      // "cpu" is also what tables on a device are planned as for which the planner has no word.
      const int32_t first = part->api<tsr_kernel>().device_types[0];
      if (compute_device != "cpu" || first == 0)
        fail(Code::kInvalidArgument, "kernel \"", id, "\" does not run on ", compute_device);
      device_.device_type = static_cast<DLDeviceType>(first);
    }
    kernels_.push_back(std::move(part));
  }
}

const Part* ServedKernels::optimizer(const OptimizerSpec& spec) {
  if (spec.name.empty()) return nullptr;
  PartPtr& part = optimizers_[{spec.name, spec.options}];
  if (!part) part = runtime_.create(TSR_OPTIMIZER_KIND, spec.name, spec.options);
  return part.get();
}

std::string ServedKernels::refusal(const EmbeddingBagConfig& table, const std::string& compute_kernel) {
  const Part* update = table.row_format ? nullptr : optimizer(table.optimizer);
  // Of a shard, whose size is not known yet.
  const tsr_kernel_table shard{sizeof(tsr_kernel_table), 0, table.name.c_str(), 0, table.embedding_dim, nullptr, 0};
  tsr_kernel_config config{};
  config.struct_size = sizeof(config);
  config.mode = table.row_format ? TSR_MODE_INFER : TSR_MODE_TRAIN;
  config.compute_kernel = compute_kernel.c_str();
  config.device = device_;
  config.weight_dtype = table.row_format ? sdk::info_of(*table.row_format).dtype : to_dl(table.data_type);
  config.output_dtype = to_dl(DType::kFloat32);
  config.num_tables = 1;
  config.table_stride = sizeof(shard);
  config.tables = &shard;
  config.optimizer = update == nullptr ? nullptr : update->raw();
  config.optimizer_options = update == nullptr ? nullptr : update->options().c_str();
  config.max_gradient = table.optimizer.max_gradient;
  std::string reasons;
  for (const PartPtr& kernel : kernels_) {
    const std::string reason = refusal_of(*kernel, config);
    if (reason.empty()) return "";
    reasons += cat(reasons.empty() ? "" : "; ", reason);
  }
  return reasons;
}

}  // namespace tessera
