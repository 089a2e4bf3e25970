#include "kernel/config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "gpu/gpu.h"

namespace tessera::gpu {
namespace {

// The formulas that this kernel computes itself (tsr_optimizer::formula).
struct Form {
  const char* name;
  Formula formula;
};
constexpr Form kForms[] = {{"tessera.exact_sgd/1", Formula::kSgd},
                           {"tessera.exact_adagrad/1", Formula::kAdagrad},
                           {"tessera.exact_rowwise_adagrad/1", Formula::kRowwiseAdagrad},
                           {"tessera.adam/1", Formula::kAdam}};

std::string names_of_forms() {
  std::string names;
  for (const Form& f : kForms) names += (names.empty() ? "" : ", ") + std::string(f.name);
  return names;
}

void check_compute_kernel(const tsr_kernel_config& config, const char* const* served) {
  std::string list;
  for (const char* const* c = served; *c != nullptr; ++c) {
    if (std::strcmp(*c, config.compute_kernel) == 0) return;
    list += (list.empty() ? "" : ", ") + std::string(*c);
  }
  sdk::fail(TSR_UNIMPLEMENTED, "compute kernel \"", config.compute_kernel, "\" is not served, only ", list);
}

void check_device(DLDevice device) {
  if (std::find(std::begin(kDeviceTypes), std::end(kDeviceTypes) - 1, device.device_type) ==
      std::end(kDeviceTypes) - 1) {
    sdk::fail(TSR_UNIMPLEMENTED, "device type ", int{device.device_type}, " is not served, only " GPU_VENDOR, " (",
              kDeviceTypes[0], ")");
  }
  const int count = device_count();
  if (device.device_type != kDLCPU && (device.device_id < 0 || device.device_id >= count)) {
    sdk::fail(TSR_UNIMPLEMENTED, "there is no " GPU_VENDOR " device ", device.device_id, ": this machine has ", count);
  }
}

// The optimizer's formula on the device, if there is one. "fused" needs it.
std::optional<Hyper> form_of(const tsr_kernel_config& config, const sdk::OptimizerRef& optimizer) {
  if (config.mode != TSR_MODE_TRAIN) return std::nullopt;
  for (const Form& f : kForms) {
    if (optimizer.formula() == f.name) return Hyper(f.formula, config.optimizer_options);
  }
  if (std::strcmp(config.compute_kernel, "fused") != 0) return std::nullopt;
  if (config.optimizer == nullptr || !optimizer.updates()) {
    sdk::fail(TSR_UNIMPLEMENTED, "compute kernel \"fused\" updates rows in backward, but ",
              config.optimizer == nullptr ? std::string("no optimizer is given")
                                          : "optimizer \"" + std::string(optimizer.id()) + "\" updates none",
              ": choose an optimizer, or the compute kernel \"dense\"");
  }
  sdk::fail(TSR_UNIMPLEMENTED, "optimizer \"", optimizer.id(),
            "\" has no fused form on a GPU, only those of the formulas ", names_of_forms(),
            " have: choose one of them, or the compute kernel \"dense\", which hands the gradients out");
}

TableSpec checked_table(const tsr_kernel_table& table) {
  const std::string name = table.name == nullptr ? "" : table.name;
  if (table.dim <= 0 || table.rows < 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", name, "\" has ", table.rows, " rows of ", table.dim,
              " columns, but needs at least 0 rows and 1 column");
  }
  if (table.dim > INT32_MAX / 64) {
    sdk::fail(TSR_UNIMPLEMENTED, "table \"", name, "\" has ", table.dim, " columns, but at most ", INT32_MAX / 64,
              " are served");
  }
  if (table.options != nullptr) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", name, "\" has the options ", table.options,
              ", but this kernel's tables have none: leave them out");
  }
  return {name, table.rows, table.dim};
}

[[noreturn]] void bad_feature(size_t f, const char* what, int64_t got, int64_t bound) {
  sdk::fail(TSR_INVALID_ARGUMENT, "lookup feature ", f, ": ", what, " ", got, " does not fit, the bound is ", bound);
}

void check_where(const DLTensor& tensor, const Config& config, const char* what) {
  if (tensor.device.device_type == config.device.device_type && tensor.device.device_id == config.device.device_id) {
    return;
  }
  sdk::fail(TSR_INVALID_ARGUMENT, what, " lie on device type ", int{tensor.device.device_type}, " number ",
            tensor.device.device_id, ", but the tables on type ", int{config.device.device_type}, " number ",
            config.device.device_id);
}

float number_in(sdk::Options& options, const char* key, double otherwise, double below) {
  const double value = options.number(key, otherwise);
  if (!(value >= 0 && value < below)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is ", value, " but must be at least 0",
              std::isfinite(below) ? " and below 1" : " and finite");
  }
  return static_cast<float>(value);
}

WeightDecay weight_decay_mode(sdk::Options& options) {
  const std::string mode = options.string("weight_decay_mode", "none");
  if (mode == "none") return WeightDecay::kNone;
  if (mode == "l2") return WeightDecay::kL2;
  if (mode == "decouple") return WeightDecay::kDecouple;
  sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay_mode\" is \"", mode, "\" but must be none, l2 or decouple");
}

}  // namespace

// Reads the options of a formula, with the names and defaults of docs/config.md. An option that is not known here may
// change results, so it is refused.
Hyper::Hyper(Formula formula, const char* text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  sdk::Options options(text == nullptr ? "{}" : text);
  step_.formula = formula;
  step_.weight_decay_mode = weight_decay_mode(options);
  step_.eps = number_in(options, "eps", 1e-8, kInfinity);
  step_.weight_decay = number_in(options, "weight_decay", 0, kInfinity);
  step_.beta1 = number_in(options, "beta1", 0.9, 1);
  step_.beta2 = number_in(options, "beta2", 0.999, 1);
  for (const char* unused : {"learning_rate", "eta", "momentum"}) (void)number_in(options, unused, 0, kInfinity);
  options.finish();
}

UpdateStep Hyper::at(const tsr_update& update) const {
  UpdateStep step = step_;
  step.learning_rate = static_cast<float>(update.learning_rate);
  const double t = static_cast<double>(update.step);
  step.correction1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(step.beta1), t)));
  step.correction2 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(step.beta2), t)));
  return step;
}

Storage storage_of(DLDataType dtype, const char* what) {
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 32) return Storage::kFloat32;
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 16) return Storage::kFloat16;
  if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16) return Storage::kBFloat16;
  sdk::fail(TSR_UNIMPLEMENTED, what, " must be float32, float16 or bfloat16, not DLPack type code ", int{dtype.code},
            " with ", int{dtype.bits}, " bits");
}

int64_t Config::max_dim() const {
  int64_t most = 1;
  for (const TableSpec& t : tables) most = std::max(most, t.dim);
  return most;
}
bool Config::vectors() const {
  return std::all_of(tables.begin(), tables.end(), [](const TableSpec& t) { return t.dim % 4 == 0; });
}

Config checked(const tsr_kernel_config& config, const char* const* compute_kernels) {
  check_compute_kernel(config, compute_kernels);
  check_device(config.device);
  Config out;
  out.train = config.mode == TSR_MODE_TRAIN;
  out.device = config.device;
  out.weights = storage_of(config.weight_dtype, "the type of rows");
  out.output = storage_of(config.output_dtype, "the type of outputs");
  out.optimizer = sdk::OptimizerRef(out.train ? config.optimizer : nullptr);
  out.fused = form_of(config, out.optimizer);
  out.optimizer.check_states();
  if (!(config.max_gradient >= 0) || std::isinf(config.max_gradient)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "max_gradient is ", config.max_gradient, " but must be 0 (off) or positive");
  }
  out.max_gradient = static_cast<float>(config.max_gradient);
  out.tables.reserve(config.num_tables);
  for (uint32_t t = 0; t < config.num_tables; ++t) out.tables.push_back(checked_table(sdk::table_of(config, t)));
  return out;
}

Indices indices_of(const DLTensor& tensor, const char* what) {
  const bool wide = sdk::holds<int64_t>(tensor);
  if (!wide && !sdk::holds<int32_t>(tensor)) {
    sdk::fail(TSR_INVALID_ARGUMENT, what, " must be int32 or int64, not DLPack type code ", int{tensor.dtype.code},
              " with ", int{tensor.dtype.bits}, " bits");
  }
  return {sdk::raw(tensor), wide};
}

void check_batch(const tsr_lookup& lookup, const Config& config, const DLTensor& values) {
  if (storage_of(values.dtype, "output and its gradient") != config.output) {
    sdk::fail(TSR_INVALID_ARGUMENT, "the output or its gradient has another type than the kernel was opened with");
  }
  check_where(*lookup.ids, config, "ids");
  check_where(*lookup.offsets, config, "offsets");
  check_where(values, config, "the output or its gradient");
  if (lookup.weights != nullptr) {
    check_where(*lookup.weights, config, "weights");
    const size_t weights = sdk::elements<const float>(*lookup.weights, "weights").size();
    if (static_cast<int64_t>(weights) != sdk::numel(*lookup.ids)) {
      sdk::fail(TSR_INVALID_ARGUMENT, "there are ", weights, " weights for ", sdk::numel(*lookup.ids), " ids");
    }
  }
  const int64_t size = sdk::numel(values);
  const int64_t offsets = sdk::numel(*lookup.offsets);
  for (size_t f = 0; f < lookup.num_features; ++f) {
    const tsr_lookup_feature& x = sdk::feature_of(lookup, f);
    if (x.table < 0 || static_cast<size_t>(x.table) >= config.tables.size()) {
      bad_feature(f, "table", x.table, static_cast<int64_t>(config.tables.size()));
    }
    if (x.bags == 0) continue;
    if (x.bags < 0 || x.first_offset < 0 || x.first_offset + x.bags >= offsets) {
      bad_feature(f, "last offset", x.first_offset + x.bags, offsets);
    }
    if (x.pooling == TSR_POOLING_MAX) {
      sdk::fail(TSR_UNIMPLEMENTED, "lookup feature ", f,
                ": MAX pooling is not served on a GPU, only SUM, MEAN and none: keep its tables on the CPU");
    }
    if (x.pooling < TSR_POOLING_NONE || x.pooling > TSR_POOLING_MAX)
      sdk::fail(TSR_UNIMPLEMENTED, "lookup feature ", f, ": pooling ", x.pooling, " is not known to this kernel");
    const int64_t rows = x.pooling == TSR_POOLING_NONE ? 0 : x.bags;
    const int64_t last = x.output_offset + (rows - 1) * x.output_stride + config.tables[x.table].dim;
    if (x.output_offset < 0 || (rows > 0 && last > size)) bad_feature(f, "end of output", last, size);
  }
}

}  // namespace tessera::gpu
