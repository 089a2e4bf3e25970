#include "planner/compute_kernels.h"

#include <algorithm>
#include <set>

#include "modules/kernel_config.h"
#include "tessera/calls.h"
#include "tessera/config.h"
#include "tessera/sdk/cost.h"
#include "tessera/sdk/nearest.h"

namespace tessera {

namespace {

constexpr double kUsualStateBytes = 4;  // optimizer state per row

double bytes_of_row(const EmbeddingBagConfig& table, int64_t dim) {
  return static_cast<double>(table.row_format ? sdk::row_bytes(*table.row_format, dim)
                                              : dim * size_of(table.data_type));
}
double bytes_of_state(const ComputeKernel& kernel) { return kernel.infers ? 0 : kUsualStateBytes; }

bool runs_on(const Component& kernel, int32_t device_type) {
  const int32_t* types = kernel.api<tsr_kernel>().device_types;
  while (*types != 0 && *types != device_type) ++types;
  return *types != 0;
}

bool trains(const Component& kernel) { return TSR_HAS(tsr_kernel, &kernel.api<tsr_kernel>(), backward); }
// The kernel's cost model; null if it has none.
const tsr_kernel_cost* costs_of(const Component& kernel) {
  const auto* costs = kernel.extension<tsr_kernel_cost>(TSR_KERNEL_COST);
  return TSR_HAS(tsr_kernel_cost, costs, estimate) ? costs : nullptr;
}

std::vector<std::string> compute_kernels_of(const Component& kernel) {
  std::vector<std::string> out;
  for (const char* const* c = kernel.api<tsr_kernel>().compute_kernels; *c != nullptr; ++c) out.emplace_back(*c);
  return out;
}

}  // namespace

ComputeKernels::ComputeKernels(const Runtime& runtime, const std::string& kernel, const Topology& topology)
    : runtime_(runtime), device_{static_cast<DLDeviceType>(topology.device_type), 0} {
  const bool any = kernel == "auto";
  for (const std::string& id : any ? runtime.ids(TSR_KERNEL_KIND) : std::vector<std::string>{kernel}) {
    ComponentPtr part;
    try {
      part = runtime.create(TSR_KERNEL_KIND, id);
    } catch (const Error& e) {
      if (!any && (e.code() == Code::kNotFound || e.code() == Code::kInvalidArgument)) throw;
      continue;  // it cannot be used here; the load report says why
    }
    if (runs_on(*part, device_.device_type))
      plugins_.push_back(std::move(part));
    else if (!any)
      fail(Code::kInvalidArgument, "kernel \"", id, "\" does not run on ", topology.compute_device);
  }
  std::stable_sort(plugins_.begin(), plugins_.end(), [](const ComponentPtr& a, const ComponentPtr& b) {
    return a->raw()->component->priority > b->raw()->component->priority;
  });
  for (const ComponentPtr& p : plugins_) {
    if (usual_ == nullptr && trains(*p)) usual_ = p.get();
    if (estimator_ == nullptr && trains(*p) && costs_of(*p) != nullptr) estimator_ = p.get();
  }
  if (usual_ == nullptr && !plugins_.empty()) usual_ = plugins_.front().get();
}

ComputeKernels::Question ComputeKernels::question_of(const EmbeddingBagConfig& t,
                                                     const std::vector<std::string>& asked) {
  const OptimizerSpec& o = t.optimizer;
  return {t.embedding_dim, t.data_type, t.row_format, o.name, o.options, o.max_gradient, t.pooling, t.any_id, asked};
}

const Component* ComputeKernels::optimizer(const OptimizerSpec& spec) {
  const PartSpec usual = TableConfig{}.optimizer;  // stands for an optimizer that is chosen later
  const auto key = spec.name.empty() ? std::pair(usual.name, usual.options) : std::pair(spec.name, spec.options);
  const auto known = optimizers_.find(key);
  if (known != optimizers_.end()) return known->second.get();
  ComponentPtr part;
  if (!spec.name.empty() || runtime_.has(TSR_OPTIMIZER_KIND, key.first))
    part = runtime_.create(TSR_OPTIMIZER_KIND, key.first, key.second);
  return optimizers_.emplace(key, part).first->second.get();
}

LookupOptions ComputeKernels::options_of(const EmbeddingBagConfig& table, const std::string& compute_kernel) const {
  const ComputeKernelName kernel = compute_kernel_name(compute_kernel);
  LookupOptions out{.compute_kernel = kernel.name,
                    .train = !table.row_format,
                    .weight_dtype = table.data_type,
                    .row_format = table.row_format,
                    .optimizer = table.optimizer};
  // The number of rows is set later, by estimate_of().
  out.tables = {{table.name, 0, table.embedding_dim, kernel.options, shard_poolings(table.pooling), {}, table.any_id}};
  return out;
}

std::string ComputeKernels::refusal_of(const Component& plugin, const EmbeddingBagConfig& table,
                                       const std::string& compute_kernel) {
  if (!table.row_format && !trains(plugin)) return str_cat(plugin.id(), " only infers");
  if (table.any_id && (plugin.api<tsr_kernel>().flags & TSR_KERNEL_ROWS_ON_DEMAND) == 0)
    return str_cat(plugin.id(), " has all rows from the start, and with any_id a row comes when its id does");
  const Component* update = table.row_format ? nullptr : optimizer(table.optimizer);
  if (!table.row_format && table.optimizer.name.empty()) return "";  // the optimizer is chosen later
  const LookupOptions options = options_of(table, compute_kernel);
  std::string reason = refusal(plugin, KernelConfig(options, update, device_).raw);
  if (reason.empty() || reason.starts_with(plugin.id() + ' ')) return reason;  // many kernels begin with their name
  return str_cat(plugin.id(), ": ", reason);
}

std::vector<std::string> ComputeKernels::names() const {
  std::set<std::string> out;
  for (const ComponentPtr& plugin : plugins_) {
    for (const std::string& name : compute_kernels_of(*plugin)) out.insert(name);
  }
  return {out.begin(), out.end()};
}

const std::vector<ComputeKernel>& ComputeKernels::serving(const EmbeddingBagConfig& table,
                                                          const std::vector<std::string>& asked) {
  const Question question = question_of(table, asked);
  const auto known = serving_.find(question);
  if (known != serving_.end()) return known->second;
  const bool infers = table.row_format.has_value();
  const Component* update = infers ? nullptr : optimizer(table.optimizer);
  std::vector<ComputeKernel> out;
  const auto offer = [&](const std::string& name, const Component* plugin) {
    // Quantized collections open only TSR_COMPUTE_QUANT.
    if (infers != (compute_kernel_name(name).name == TSR_COMPUTE_QUANT)) return;
    if (plugin == nullptr) return out.push_back({name, infers, {}, update});
    if (!refusal_of(*plugin, table, name).empty()) return;
    const auto same = std::find_if(out.begin(), out.end(), [&](const ComputeKernel& k) { return k.name == name; });
    if (same == out.end()) return out.push_back({name, infers, {plugin}, update});
    same->plugins.push_back(plugin);
  };
  for (const ComponentPtr& plugin : plugins_) {
    for (const std::string& name : compute_kernels_of(*plugin)) {
      offer(name, plugin.get());
      for (const std::string& text : asked) {
        if (text != name && compute_kernel_name(text).name == name) offer(text, plugin.get());
      }
    }
  }
  if (plugins_.empty()) {
    for (const char* name : {TSR_COMPUTE_DENSE, TSR_COMPUTE_FUSED, TSR_COMPUTE_QUANT}) offer(name, nullptr);
  }
  return serving_.emplace(question, std::move(out)).first->second;
}

const ComputeKernel& ComputeKernels::named(const EmbeddingBagConfig& table, const std::string& name) {
  for (const ComputeKernel& k : serving(table, {name})) {
    if (k.name == name) return k;
  }
  return unserved_.emplace_back(ComputeKernel{name, table.row_format.has_value(), {}, nullptr});
}

std::string ComputeKernels::why_not(const EmbeddingBagConfig& table, const std::string& name) {
  std::string reasons;
  for (const ComponentPtr& plugin : plugins_) {
    const std::vector<std::string> served = compute_kernels_of(*plugin);
    std::string why;
    if (std::find(served.begin(), served.end(), compute_kernel_name(name).name) != served.end()) {
      why = refusal_of(*plugin, table, name);
    } else {
      why = str_cat(plugin->id(), " serves only ", sdk::joined(served));
    }
    if (!why.empty()) reasons += str_cat(reasons.empty() ? "" : "; ", why);
  }
  return reasons;
}

const KernelFigures* ComputeKernels::figures(const Machine& machine) const {
  const KernelFigures* out = usual_ == nullptr ? nullptr : machine.kernel(usual_->id());
  return out == nullptr && estimator_ == nullptr && !machine.kernels.empty() ? &machine.kernels.front() : out;
}

bool ComputeKernels::places_rows() const {
  return device_.device_type == kDLCPU &&
         (usual_ == nullptr || (usual_->api<tsr_kernel>().flags & TSR_KERNEL_PLACES_ROWS) != 0);
}

tsr_estimate ComputeKernels::estimate(const EmbeddingBagConfig& table, const ComputeKernel& kernel,
                                      const Machine& machine, int64_t rows, const tsr_workload& work) const {
  if (kernel.plugins.empty()) return estimate_of(nullptr, table, kernel, machine, rows, work);
  std::optional<Error> refused;
  for (const Component* plugin : kernel.plugins) {
    try {
      return estimate_of(plugin, table, kernel, machine, rows, work);
    } catch (const Error& e) {
      if (!refused) refused = e;
    }
  }
  throw Error(*refused);
}

tsr_estimate ComputeKernels::estimate_of(const Component* plugin, const EmbeddingBagConfig& table,
                                         const ComputeKernel& kernel, const Machine& machine, int64_t rows,
                                         tsr_workload work) const {
  const bool own = plugin != nullptr && costs_of(*plugin) != nullptr;
  const Component* asked = own ? plugin : kernel.infers ? nullptr : estimator_;
  const KernelFigures* figures = asked == nullptr ? nullptr : machine.kernel(asked->id());
  if (asked == nullptr && !machine.kernels.empty()) figures = &machine.kernels.front();
  tsr_machine raw{};
  if (figures != nullptr) {
    raw = figures->raw();
    work.machine = &raw;
  }
  tsr_estimate out{};
  out.struct_size = sizeof(out);
  if (asked != nullptr && (kernel.infers || kernel.optimizer != nullptr)) {
    LookupOptions options = options_of(table, own ? kernel.name : TSR_COMPUTE_DENSE);
    options.tables.front().rows = rows;
    options.tables.front().dim = work.dim;
    const KernelConfig config(options, kernel.infers ? nullptr : kernel.optimizer, device_);
    plugin::call({*asked, "estimate", table.name, asked->id()}, costs_of(*asked)->estimate, asked->self(), &config.raw,
                 &work, &out);
  } else if (figures != nullptr) {
    out = sdk::estimate_by_figures(raw, work, bytes_of_row(table, work.dim), bytes_of_state(kernel));
  }
  return out;
}

double ComputeKernels::usual_bytes(const EmbeddingBagConfig& table, const ComputeKernel& kernel, int64_t rows,
                                   int64_t dim) {
  return static_cast<double>(rows) * (bytes_of_row(table, dim) + bytes_of_state(kernel));
}

}  // namespace tessera
